"""All metrics, each declared once: recording, exporters and the reference page read this table.

Names, groups, tags and levels are those of Kafka Streams where it has the metric (KIP-444, KIP-471, KIP-607, KIP-613,
KIP-869, KIP-1091); ``origin`` is the KIP. Amounts of time are recorded in nanoseconds, end-to-end latency in
milliseconds. Pure values.
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


_ours, _debug = partial(_sensor, origin=""), partial(_sensor, level=RecordingLevel.DEBUG)
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
FENCED = _ours(Scope.THREAD, counted("fenced", "times the thread was out of the group"))
TURN_AGE = _sensor(Scope.THREAD, value("last-turn-age-ms", "time since the loop began an iteration", "ms"), origin="")

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
PUNCTUATED = _debug(Scope.TASK, counted("punctuate", "punctuations of both kinds"))
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
DROPPED_FOR = _sensor(
    Scope.DROPS, counted("dropped-records", "records dropped for a reason"), level=RecordingLevel.OFF, origin=""
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
    *(found for found in list(globals().values()) if isinstance(found, SensorSpec)),
    *PROPERTIES.values(),
)
