"""All metrics, each declared once: recording, exporters and the reference page read this table.

Names, groups, tags and levels are those of Kafka Streams where it has the metric (KIP-444, KIP-471, KIP-607, KIP-613,
KIP-869, KIP-1091); ``origin`` is the KIP. Durations are recorded in nanoseconds, and end-to-end latency in
milliseconds. This module imports only ``core.metrics.declared``.
"""

from collections.abc import Mapping
from functools import partial

from streams.core.metrics.declared import MetricSpec, RecordingLevel, Scope, SensorSpec, Stat, counted, spread, value

_MS = 1e-6
_LATENCY = (Stat.AVG, Stat.MAX)


def _sensor(
    scope: Scope, *metrics: tuple[MetricSpec, ...], origin: str = "KIP-444", level: RecordingLevel = RecordingLevel.INFO
) -> SensorSpec:
    return SensorSpec(scope, level, tuple(metric for group in metrics for metric in group), origin=origin)


_ours = partial(_sensor, origin="")
_debug = partial(_sensor, level=RecordingLevel.DEBUG)
_restore = partial(_sensor, Scope.UPDATER, origin="KIP-869")


def _ratio(name: str, what: str) -> tuple[MetricSpec]:
    return (MetricSpec(f"{name}-ratio", Stat.RATIO, f"share of the thread's time spent on {what}"),)


def _latency(name: str, what: str, unit: str = "ms", scale: float = _MS) -> tuple[MetricSpec, ...]:
    return spread(f"{name}-latency", f"time of {what}", _LATENCY, unit, scale)


def _text(name: str, description: str) -> tuple[MetricSpec]:
    return (MetricSpec(name, Stat.TEXT, description),)


_E2E = (
    *spread("record-e2e-latency", "time from event to processing", (Stat.AVG, Stat.MIN, Stat.MAX), "ms"),
    *spread("record-e2e-latency", "time from event to processing", (Stat.P50, Stat.P99), "ms"),
)

# --- the instance -------------------------------------------------------------------------

VERSION = _sensor(Scope.CLIENT, _text("version", "version of this library"))
APPLICATION_ID = _sensor(Scope.CLIENT, _text("application-id", "the application"))
TOPOLOGY_DESCRIPTION = _sensor(Scope.CLIENT, _text("topology-description", "the topology as `describe` prints it"))
STATE = _sensor(Scope.CLIENT, _text("state", "state of the instance"))
CLIENT_STATE = _sensor(
    Scope.CLIENT, value("client-state", "state of the instance: its number in Kafka Streams"), origin="KIP-1091"
)
RECORDING_LEVEL = _sensor(
    Scope.CLIENT, value("recording-level", "0 for info, 1 for debug, 2 for trace"), origin="KIP-1091"
)
ALIVE_THREADS = _sensor(Scope.CLIENT, value("alive-stream-threads", "threads that run"))
FAILED_THREADS = _sensor(Scope.CLIENT, value("failed-stream-threads", "threads that have failed since the start"))

# --- a thread -----------------------------------------------------------------------------

THREAD_PROCESSED = _sensor(
    Scope.THREAD,
    counted("process", "records processed"),
    _latency("process", "a record"),
    spread("process-latency", "time of a record", (Stat.P50, Stat.P99), "ms", _MS),
    _ratio("process", "records"),
)
PROCESSED_AT_ONCE = _sensor(
    Scope.THREAD, spread("process-records", "records processed in an iteration of the loop", _LATENCY)
)
POLLED = _sensor(
    Scope.THREAD, counted("poll", "polls"), _latency("poll", "a poll"), _ratio("poll", "polls, which wait for records")
)
POLLED_AT_ONCE = _sensor(Scope.THREAD, spread("poll-records", "records of a poll", _LATENCY))
COMMITTED = _sensor(
    Scope.THREAD,
    counted("commit", "commits"),
    _latency("commit", "a commit"),
    spread("commit-latency", "time of a commit", (Stat.P50, Stat.P99), "ms", _MS),
    _ratio("commit", "commits"),
)
THREAD_PUNCTUATED = _sensor(
    Scope.THREAD,
    counted("punctuate", "wall-clock punctuations"),
    _latency("punctuate", "a punctuation"),
    _ratio("punctuate", "wall-clock punctuations"),
)
TASK_CREATED = _sensor(Scope.THREAD, counted("task-created", "tasks opened"))
TASK_CLOSED = _sensor(Scope.THREAD, counted("task-closed", "tasks closed"))
BLOCKED_TIME = _sensor(
    Scope.THREAD, (MetricSpec("blocked-time-ns-total", Stat.SUM, "time spent in polls and commits", "ns"),),
    origin="KIP-761",
)  # fmt: skip
START_TIME = _sensor(Scope.THREAD, value("thread-start-time", "start of the thread, epoch", "ms"))
THREAD_STATE = _sensor(
    Scope.THREAD, value("thread-state", "state of the thread: its number in Kafka Streams"), origin="KIP-1091"
)
TASKS_RESTORED = _ours(Scope.THREAD, counted("restored-tasks", "tasks restored"))
TAKEN_OVER = _ours(Scope.THREAD, counted("standby-takeover", "tasks taken over from a standby"))
PATIENCE_ENDED = _ours(
    Scope.THREAD, counted("repartition-wait-ended", "waits for a task upstream that ended without its records")
)
FENCED = _ours(Scope.THREAD, counted("fenced", "times the thread was out of the group"))
LAST_POLL = _sensor(
    Scope.THREAD, value("last-poll-seconds-ago", "time since the last iteration of the poll loop began", "s"), origin=""
)
BROKER_AWAY = _ours(Scope.THREAD, value("broker-away-ms", "for how long no broker can be reached; 0 = one can", "ms"))
UNWRITABLE = _ours(
    Scope.THREAD, value("unwritable-partitions", "partitions that brokers cannot write, as their disk is full")
)

# --- restoring (KIP-869) ------------------------------------------------------------------

RESTORING_TASKS = _restore(value("active-restoring-tasks", "tasks being restored"))
UPDATING_TASKS = _restore(value("standby-updating-tasks", "standby tasks being updated"))
PAUSED_RESTORES = _restore(value("active-paused-tasks", "restores of a paused instance"))
PAUSED_STANDBYS = _restore(value("standby-paused-tasks", "standby tasks that wait for restores"))
RESTORE_POLLED = _restore(
    (MetricSpec("restore-call-rate", Stat.RATE, "polls of changelogs per second", "1/s"),),
    (MetricSpec("active-restore-ratio", Stat.RATIO, "share of the thread's time spent on restoring tasks"),),
)
STANDBY_POLLED = _restore(
    (MetricSpec("standby-update-ratio", Stat.RATIO, "share of the thread's time spent on updating standby tasks"),),
)
RESTORED_BY_THREAD = _restore(
    (MetricSpec("restore-records-rate", Stat.RATE, "records restored per second", "1/s"),),
)
RESTORED = _sensor(Scope.TASK, counted("restore", "records restored"), origin="KIP-869")
UPDATED = _sensor(Scope.TASK, counted("update", "records applied to a standby"), origin="KIP-869")
RESTORE_REMAINING = _sensor(
    Scope.TASK, value("restore-remaining-records-total", "records to restore"), origin="KIP-869"
)
RESTORE_ETA = _sensor(Scope.TASK, value("restore-eta-ms", "time until the task is restored at the current rate", "ms"),
                      origin="")  # fmt: skip

# --- a task -------------------------------------------------------------------------------

PROCESSED = _sensor(
    Scope.TASK,
    counted("process", "records processed"),
    level=RecordingLevel.OFF,
)
PROCESS_LATENCY = _sensor(
    Scope.TASK,
    _latency("process", "a record", "ns", 1),
    spread("process-latency", "time of a record", (Stat.P50, Stat.P99), "ns"),
)
PROCESS_RATIO = _sensor(
    Scope.TASK, value("active-process-ratio", "share of this task in the processing time of its thread")
)
PUNCTUATED = _debug(
    Scope.TASK, counted("punctuate", "punctuations of both kinds"), _latency("punctuate", "a punctuation", "ns", 1)
)
LATENESS = _debug(
    Scope.TASK,
    spread("record-lateness", "time by which a record is behind stream time", _LATENCY, "ms"),
)
DROPPED = _sensor(Scope.TASK, counted("dropped-records", "records dropped"), level=RecordingLevel.OFF)
ENFORCED = _debug(Scope.TASK, counted("enforced-processing", "runs that did not wait for an empty partition"))
BUFFERED = _debug(Scope.TASK, value("active-buffer-count", "records fetched and not processed"))
CACHE_BYTES = _debug(Scope.TASK, value("cache-size-bytes-total", "size of the record cache", "bytes"))
STREAM_TIME = _ours(Scope.TASK, value("stream-time-ms", "stream time, epoch", "ms"))
STREAM_TIME_AGE = _sensor(Scope.TASK, value("stream-time-age-ms", "wall-clock time minus stream time", "ms"), origin="")
LAG = _ours(Scope.TASK, value("records-lag", "records not processed yet, over all inputs"))

# --- an input of a task -------------------------------------------------------------------

INPUT_LAG = _ours(Scope.INPUT, value("input-records-lag", "records of the partition not processed yet"))
KEYS_SAMPLED = _ours(
    Scope.INPUT, counted("sampled-keys", "keys looked at to see whether they are in their partition"),
    level=RecordingLevel.OFF,
)  # fmt: skip
KEYS_MISPLACED = _ours(
    Scope.KEYS,
    counted("misplaced-keys", "sampled keys in another partition than the default partitioner gives"),
    level=RecordingLevel.OFF,
)
INPUT_TIME_LAG = _ours(
    Scope.INPUT,
    value(
        "input-event-time-lag-ms",
        "event time between the last processed record and the newest; wall-clock time if the newest is not fetched",
        "ms",
    ),
)
INPUT_WAITED_FOR = _ours(
    Scope.INPUT,
    value("input-waited-for-ms", "how long the task has waited for a record of this partition; 0 = it does not", "ms"),
)
DISORDER = _ours(
    Scope.INPUT, value("disorder-ms", "largest time by which a record of history is older than one before it", "ms"),
    level=RecordingLevel.OFF,
)  # fmt: skip

# --- a node -------------------------------------------------------------------------------

SOURCE_PROCESSED = _debug(Scope.NODE, counted("process", "records processed at a source"))
E2E_LATENCY = _sensor(Scope.NODE, _E2E, origin="KIP-613")
SUPPRESSION_EMITTED = _debug(Scope.NODE, counted("suppression-emit", "results that a suppression emitted"))
FINAL_EMITTED = _debug(
    Scope.NODE, counted("window-aggregate-final-emit", "results of closed windows emitted"), origin="KIP-825"
)
FINAL_EMIT_TIME = _debug(
    Scope.NODE,
    _latency("window-aggregate-final-emit", "an emission of the results of closed windows"),
    origin="KIP-825",
)
DROPPED_FOR = _sensor(
    Scope.DROPS, counted("dropped-records", "records dropped for a reason"), level=RecordingLevel.OFF, origin=""
)

LATE = _sensor(
    Scope.LATENESS,
    counted("late-records", "records dropped as late by less than a time after their window had closed"),
    level=RecordingLevel.OFF,
    origin="",
)

CALLED = _ours(
    Scope.NODE,
    counted("call", "finished calls of an async operator or a look-up"),
    _latency("call", "a call with its retries"),
    spread("call-latency", "time of a call with its retries", (Stat.P50, Stat.P99), "ms", _MS),
)
CALLS_RETRIED = _ours(Scope.NODE, counted("call-retry", "retries of calls"))
CALLS_TIMED_OUT = _ours(Scope.NODE, counted("call-timeout", "attempts of calls that timed out"))
CALLS_FAILED = _ours(Scope.NODE, counted("call-failed", "calls that failed after their retries"))
CALLS_IN_FLIGHT = _ours(Scope.NODE, value("calls-in-flight", "calls that run"))
RECORDS_HELD = _ours(Scope.NODE, value("records-held", "records whose result, of a call or a batch, is not forwarded"))
BATCHED = _ours(
    Scope.NODE,
    counted("batch", "calls of a batch function"),
    _latency("batch", "a call of a batch function"),
    spread("batch-latency", "time of a call of a batch function", (Stat.P50, Stat.P99), "ms", _MS),
)
BATCH_SIZE = _ours(Scope.NODE, spread("batch-records", "records of a call of a batch function", _LATENCY))
BATCHES_FAILED = _ours(Scope.NODE, counted("batch-failed", "calls of a batch function that failed"))

LOOK_UP_HITS = _ours(Scope.NODE, counted("look-up-hit", "records whose look-up was answered by a fresh cached answer"))
LOOK_UP_NEGATIVE_HITS = _ours(
    Scope.NODE, counted("look-up-negative-hit", "records whose look-up was answered by a cached 'not found'")
)
LOOK_UP_STALE_HITS = _ours(
    Scope.NODE, counted("look-up-stale-hit", "records whose look-up was answered by an old cached answer")
)
LOOK_UP_MISSES = _ours(Scope.NODE, counted("look-up-miss", "records that waited for a call of the look-up function"))
LOOK_UP_REFRESHES = _ours(Scope.NODE, counted("look-up-refresh", "calls that refreshed an old answer"))
LOOK_UP_ERRORS = _ours(Scope.NODE, counted("look-up-error", "calls of the look-up function that failed"))

DEAD_LETTERS_FOR = _sensor(
    Scope.DROPS,
    counted("dead-letter-records", "dropped records of which a dead letter was written, for a reason"),
    level=RecordingLevel.OFF,
    origin="",
)
DEAD_LETTERS = _sensor(Scope.TASK, counted("dead-letters", "dead letters written"), level=RecordingLevel.OFF, origin="")

# --- a topic ------------------------------------------------------------------------------

CONSUMED = _sensor(
    Scope.TOPIC,
    (MetricSpec("records-consumed-total", Stat.TOTAL, "records consumed"),),
    (MetricSpec("bytes-consumed-total", Stat.SUM, "bytes consumed; estimated in large blocks", "bytes"),),
    origin="KIP-846",
)
PRODUCED = _sensor(
    Scope.TOPIC,
    (MetricSpec("records-produced-total", Stat.TOTAL, "records produced"),),
    (MetricSpec("bytes-produced-total", Stat.SUM, "bytes produced; estimated in large blocks", "bytes"),),
    origin="KIP-846",
)

# --- a store ------------------------------------------------------------------------------

FLUSHED = _debug(
    Scope.STORE,
    (MetricSpec("flush-rate", Stat.RATE, "commits of the store per second", "1/s"),),
    _latency("flush", "a commit of the store", "ns", 1),
)
STORE_RESTORED = _debug(
    Scope.STORE,
    (MetricSpec("restore-rate", Stat.RATE, "records restored per second", "1/s"),),
    _latency("restore", "a restored record", "ns", 1),
)

SUPPRESSED_COUNT = _debug(Scope.STORE, spread("suppression-buffer-count", "changes in a suppression buffer", _LATENCY))
SUPPRESSED_SIZE = _debug(
    Scope.STORE, spread("suppression-buffer-size", "size of a suppression buffer", _LATENCY, "bytes")
)

# --- consumers and producers --------------------------------------------------------------

_fetch = partial(_sensor, Scope.FETCH, origin="Kafka")
_coordinator = partial(_sensor, Scope.COORDINATOR, origin="Kafka")
_producer = partial(_sensor, Scope.PRODUCER, origin="Kafka")
CONSUMED_BY_CLIENT = _fetch(counted("records-consumed", "records that polls returned"))
BYTES_CONSUMED = _fetch(counted("bytes-consumed", "bytes that polls returned, estimated in large blocks,"))
CLIENT_LAG = _fetch(spread("records-lag", "records of a partition that are not consumed", (Stat.MAX,)))
FETCHED = _fetch(counted("fetch", "fetch requests answered"), _latency("fetch", "a fetch, which waits for records"))
OFFSETS_COMMITTED = _coordinator(counted("commit", "offset commits"), _latency("commit", "an offset commit"))
RECORDS_SENT = _producer(counted("record-send", "records sent"))
RECORDS_RETRIED = _producer(counted("record-retry", "records sent again"))
RECORDS_FAILED = _producer(counted("record-error", "records that could not be written"))
BATCHES = _producer(spread("batch-size", "bytes of a batch", _LATENCY, "bytes"))
RECORDS_PER_REQUEST = _producer(spread("records-per-request", "records of a produce request", (Stat.AVG,)))
REQUESTS = _producer(counted("request", "produce requests answered"), _latency("request", "a produce request"))
BUFFER_AVAILABLE = _producer(value("buffer-available-bytes", "free bytes of the buffer", "bytes"))
BUFFER_TOTAL = _producer(value("buffer-total-bytes", "size of the buffer", "bytes"))

#: Calls of a store, by the names that Kafka Streams gives them.
CALLS: Mapping[str, SensorSpec] = {
    name: _debug(
        Scope.STORE,
        (MetricSpec(f"{name}-rate", Stat.RATE, f"calls of {name} per second", "1/s"),),
        _latency(name, f"a call of {name}", "ns", 1),
    )
    for name in (
        *("put", "put-if-absent", "put-all", "get", "fetch", "all", "range", "prefix-scan", "delete", "remove"),
    )
}
HIT_RATIO = _debug(
    Scope.CACHE,
    spread(
        "hit-ratio",
        "share of the updates until a flush whose key was buffered",
        (Stat.AVG, Stat.MIN, Stat.MAX),
        scale=1e-6,
    ),
)

# --- statistics of RocksDB (KIP-471) ------------------------------------------------------

_statistic = partial(_sensor, Scope.STORE, origin="KIP-471", level=RecordingLevel.DEBUG)


def _rate(name: str, what: str) -> tuple[MetricSpec]:
    return (MetricSpec(f"{name}-rate", Stat.RATE, f"{what} per second", "1/s"),)


#: Sensors of counters, by the names of RocksDB.
COUNTED_STATISTICS: Mapping[str, SensorSpec] = {
    "bytes.written": _statistic(counted("bytes-written", "bytes written")),
    "bytes.read": _statistic(counted("bytes-read", "bytes read")),
    "flush.write.bytes": _statistic(counted("memtable-bytes-flushed", "bytes of memtables written to files")),
    "compact.read.bytes": _statistic(_rate("bytes-read-compaction", "bytes read by compactions")),
    "compact.write.bytes": _statistic(_rate("bytes-written-compaction", "bytes written by compactions")),
    "no.file.errors": _statistic((MetricSpec("number-file-errors-total", Stat.TOTAL, "errors of files"),)),
}
#: Sensors of hit ratios, by the names of their two counters without ``.hit`` and ``.miss``.
HIT_STATISTICS: Mapping[str, SensorSpec] = {
    name: _statistic((MetricSpec(f"{ours}-hit-ratio", Stat.AVG, f"share of reads that {what} answered"),))
    for name, ours, what in (
        ("memtable", "memtable", "memtables"),
        ("block.cache.data", "block-cache-data", "the block cache, for data blocks,"),
        ("block.cache.index", "block-cache-index", "the block cache, for index blocks,"),
        ("block.cache.filter", "block-cache-filter", "the block cache, for filter blocks,"),
    )
}
#: Sensors of times, by the names of histograms in microseconds.
TIME_STATISTICS: Mapping[str, SensorSpec] = {
    "db.flush.micros": _statistic(spread("memtable-flush-time", "time of a flush of memtables", _LATENCY, "ms", _MS)),
    "compaction.times.micros": _statistic(spread("compaction-time", "time of a compaction", _LATENCY, "ms", _MS)),
    "db.write.stall": _statistic(
        spread("write-stall-duration", "time for which a write was stalled", (Stat.AVG,), "ms", _MS),
        (MetricSpec("write-stall-duration-total", Stat.SUM, "time for which writes were stalled", "ms", _MS),),
    ),
}

#: Properties of the engine of a store, by the names that Kafka Streams gives those of RocksDB (KIP-607).
PROPERTIES: Mapping[str, SensorSpec] = {
    name: _sensor(Scope.STORE, value(name, description, unit), origin="KIP-607")
    for name, description, unit in (
        ("num-entries-active-mem-table", "entries of the active memtable", ""),
        ("num-deletes-active-mem-table", "deletions in the active memtable", ""),
        ("num-entries-imm-mem-tables", "entries of memtables that are not flushed", ""),
        ("num-deletes-imm-mem-tables", "deletions in memtables that are not flushed", ""),
        ("num-immutable-mem-table", "memtables that are not flushed", ""),
        ("cur-size-active-mem-table", "size of the active memtable", "bytes"),
        ("cur-size-all-mem-tables", "size of the active memtable and those not flushed", "bytes"),
        ("size-all-mem-tables", "size of all memtables, pinned ones included", "bytes"),
        ("mem-table-flush-pending", "1 if a flush of a memtable is pending", ""),
        ("num-running-flushes", "running flushes", ""),
        ("compaction-pending", "1 if a compaction is pending", ""),
        ("num-running-compactions", "running compactions", ""),
        ("estimate-pending-compaction-bytes", "bytes to rewrite by compactions", "bytes"),
        ("total-sst-files-size", "size of all files", "bytes"),
        ("live-sst-files-size", "size of the files of the current version", "bytes"),
        ("num-live-versions", "versions that are in use", ""),
        ("block-cache-capacity", "capacity of the block cache, which all stores of the process share", "bytes"),
        ("block-cache-usage", "size of the entries of the block cache, of all stores", "bytes"),
        ("block-cache-pinned-usage", "size of the pinned entries of the block cache, of all stores", "bytes"),
        ("estimate-num-keys", "estimated number of keys; also of stores in memory", ""),
        ("estimate-table-readers-mem", "memory for reading files, without the block cache", "bytes"),
        ("background-errors", "errors in the background", ""),
    )
}

#: All sensors, in the order of the reference.
SENSORS: tuple[SensorSpec, ...] = (
    *(sensor for sensor in list(globals().values()) if isinstance(sensor, SensorSpec)),
    *CALLS.values(),
    *COUNTED_STATISTICS.values(),
    *HIT_STATISTICS.values(),
    *TIME_STATISTICS.values(),
    *PROPERTIES.values(),
)
