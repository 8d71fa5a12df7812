"""The settings of an application, including the groups of ``core.settings.client_settings``.

Each setting is declared once, as a field with its name, type, unit, default, bounds and meaning.
``core.settings.setting`` reads the fields as a table. Names are those of Kafka Streams in snake_case. This module
imports only other modules of ``core``.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from attrs import frozen

from streams.core.errors import ConfigError
from streams.core.handlers import check_handler
from streams.core.http.address import parse_address
from streams.core.settings.client_settings import (
    ClientSettings,
    ConnectionSettings,
    ConsumerSettings,
    ProducerSettings,
    Security,
)
from streams.core.settings.setting import (
    Setting,
    canonical_name,
    choice,
    flag,
    group,
    pairs_of,
    parsed,
    replaced,
    table_of,
    text,
    whole,
)
from streams.core.user_code import refuse_unawaited, refuse_unawaited_methods
from streams.core.wrapping import check_wrapper

#: When appended records are synced to disk: "never" (the operating system decides), "commit" (with every commit of
#: offsets), or "always" (with every append).
FsyncPolicy: TypeAlias = Literal["never", "commit", "always"]

_HANDLING = ("fail", "continue")
_MIB = 1 << 20
#: Size of the record cache that Kafka Streams has by default.
KAFKA_STREAMS_CACHE_BYTES = 10 * _MIB
# The limits of Kafka Streams (KIP-708).
_MAX_TAGS = 5
_MAX_TAG_NAME = 20
_MAX_TAG_VALUE = 30


def _check_application_id(value: str) -> None:
    # The id is the prefix of the names of internal topics, and a directory name in the state directory.
    allowed = value.replace("-", "").replace("_", "").replace(".", "")
    if (
        not value
        or len(value) > 200
        or value in (".", "..")
        or (allowed and not (allowed.isascii() and allowed.isalnum()))
    ):
        raise ConfigError(
            f"setting 'application_id': {value!r} cannot begin a topic name; "
            "use 1 to 200 ASCII letters, digits, '.', '_' and '-'"
        )


def _check_server(value: str) -> None:
    if value:
        parse_address(value, "setting 'application_server': ", lowest_port=1)


def _check_tags(value: str) -> None:
    tags = pairs_of(value)
    if len(tags) > _MAX_TAGS:
        raise ConfigError(f"setting 'client_tags': {len(tags)} tags; at most {_MAX_TAGS} are possible")
    for name, tag in tags.items():
        if len(name) > _MAX_TAG_NAME or len(tag) > _MAX_TAG_VALUE:
            raise ConfigError(
                f"setting 'client_tags': {name}={tag} is too long; a name has at most {_MAX_TAG_NAME} characters, "
                f"a value {_MAX_TAG_VALUE}"
            )


def _is_handler(name: str, value: Any) -> bool:
    if not callable(value):
        return False
    check_handler(name, value)
    return True


def _is_wrapper(name: str, value: Any) -> bool:
    if not callable(value):
        return False
    check_wrapper(name, value)
    return True


def _is_extractor(name: str, value: Any) -> bool:
    if not (callable(value) or hasattr(value, "block")):
        return False
    if callable(value):
        refuse_unawaited(value, f"setting {name!r}", error=ConfigError)
    refuse_unawaited_methods(value, ("block", "one"), f"setting {name!r}", error=ConfigError)
    return True


@frozen(kw_only=True)
class StreamsConfig:
    """The validated settings of an application. Create one with ``of``.

    Client settings are in the groups ``consumer``, ``producer``, ``connection`` and ``security``. Pass them to
    ``of`` by their plain names, like all other settings.

    >>> config = StreamsConfig.of(application_id="shop", commit_interval_ms="100", linger_ms=5)
    >>> config.commit_interval_ms, config.producer.linger_ms
    (100, 5)
    """

    # The application.
    application_id: str = text(
        "", "Name of the application: its group, and the prefix of its internal topics.", check=_check_application_id
    )
    bootstrap_servers: str = text(
        "", "Brokers to start from, host:port, comma-separated; empty = embedded broker.", joins=True
    )
    client_id: str = text("", "Prefix of the names of clients and threads; empty = the application id.")
    application_server: str = text(
        "",
        "host:port under which other instances reach this one; `owner_of` returns it to them (KIP-67). "
        "Empty = the address of `Streams.serve`, if that is called.",
        check=_check_server,
    )
    state_dir: str = text("", "Folder of the stores; empty = they are in memory, and restored from their changelogs.")
    state_cleanup_dir_max_age_ms: int = whole(
        -1,
        "ms",
        "State in `state_dir` that was not written for longer is deleted when the application starts, and restored "
        "from its changelog: less than the `delete.retention.ms` of the changelogs, so that no row comes back whose "
        "deletion they no longer have (KIP-1259). -1 = all is kept.",
        minimum=-1,
    )
    num_stream_threads: int = whole(1, "threads", "Threads that run tasks.", minimum=1)
    group_protocol: str = choice(
        "classic",
        ("classic", "streams"),
        "streams = the broker assigns the tasks and creates their internal topics (KIP-1071, Kafka 4.2), and "
        "sets session_timeout_ms, heartbeat_interval_ms and what concerns replicas. Bounded runs have a group of "
        "their own.",
    )
    num_standby_replicas: int = whole(0, "replicas", "Standby replicas of each store on other instances.")
    client_tags: str = text(
        "",
        "Where this instance runs, such as zone=eu-1,cluster=c1: at most 5 tags, with names of at most 20 characters "
        "and values of at most 30 (KIP-708, client.tag.NAME); in Python also a mapping.",
        of_pairs=True,
        check=_check_tags,
    )
    rack_aware_assignment_tags: str = text(
        "",
        "Names of tags, comma-separated: the standby replicas of a task are on instances whose `client_tags` have "
        "other values than those of its other copies, as far as possible (KIP-708); empty = tags have no influence.",
        joins=True,
    )
    acceptable_recovery_lag: int = whole(10_000, "records", "Lag up to which a replica of a store counts as caught up.")
    max_warmup_replicas: int = whole(2, "replicas", "Maximum number of warm-up replicas at a time.", minimum=1)
    probing_rebalance_interval_ms: int = whole(
        600_000, "ms", "How often to check whether warm-up replicas have caught up.", minimum=60_000
    )
    processing_guarantee: str = choice(
        "at_least_once", ("at_least_once", "exactly_once_v2"), "Guarantee for results after a failure."
    )
    topology_optimization: str = choice(
        "none", ("none", "all"), "Whether to merge repartition topics and use source topics as changelogs."
    )
    default_store: str = choice(
        "rocksdb",
        ("rocksdb", "in_memory"),
        "Engine of stores that do not name one, in a state_dir (default.dsl.store).",
        aliases=("default_dsl_store",),
    )
    ensure_explicit_internal_resource_naming: bool = flag(
        False,
        "Whether to reject a topology with stores, changelogs or repartition topics that have generated names "
        "(KIP-1111).",
    )
    processor_wrapper: Any = choice(
        "none",
        ("none",),
        "Wraps the process function of every processing node, for tracing and tests (KIP-1112).",
        takes_function=_is_wrapper,
        aliases=("processor_wrapper_class",),
    )
    # Processing.
    commit_interval_ms: int = whole(30_000, "ms", "How often to commit; 100 with exactly_once_v2 unless given.")
    max_task_idle_ms: int = whole(
        0,
        "ms",
        "How long to wait for records of an empty partition; -1 = never, 0 = only for those known to be on the broker.",
        minimum=-1,
    )
    buffered_records_per_partition: int = whole(
        1000, "records", "Number of buffered records above which a partition is paused.", minimum=1
    )
    repartition_patience_ms: int = whole(
        60_000,
        "ms",
        "How long the reader of a repartition topic waits for a task that writes to it and does not move, before it "
        "goes on without the records of this task; 0 = records are read as they come, as in Kafka Streams.",
    )
    repartition_buffer_bytes: int = whole(
        64 * _MIB,
        "bytes",
        "Size of the records of a repartition topic by which the tasks that write to it may be ahead of the slowest of "
        "them, all together; a task that is further ahead waits.",
        minimum=1,
    )
    max_partition_ahead_ms: int = whole(
        -1,
        "ms",
        "Event time by which a partition may be ahead of its task's others before it is paused; -1 = only a full "
        "buffer pauses it.",
        minimum=-1,
    )
    idle_close_ms: int = whole(
        0,
        "ms",
        "How long all inputs of an operator must be at their end before its stream time advances with the wall clock, "
        "so that windows close; 0 = never. `stream(idle_close=...)` overrides it for one source.",
    )
    poll_ms: int = whole(100, "ms", "How long a poll waits when there is nothing to do.")
    async_close_timeout_ms: int = whole(
        5_000,
        "ms",
        "How long a closing thread waits for calls of async functions in flight; the others are repeated after a "
        "restart.",
    )
    columns: str = choice(
        "auto",
        ("auto", "off", "check"),
        "Whether a replay computes blocks of records by columns, with the same results, where the functions on the way "
        "to an aggregate allow it (`streams describe --format columns`); check = by rows too, and a difference is an "
        "error.",
    )
    cache_max_bytes: int = whole(
        0,
        "bytes",
        "Memory of the record caches of all threads (statestore.cache.max.bytes); 0 = none: each update is emitted at "
        "once. Kafka Streams has 10 MiB by default.",
        aliases=("statestore_cache_max_bytes", "cache_max_bytes_buffering"),
    )
    unknown_state: str = choice(
        "warn",
        ("warn", "fail", "ignore"),
        "What to do at the start about stores, changelogs and repartition topics that the application has and its "
        "topology does not know; warn also fails if a generated name seems to have changed.",
    )
    misplaced_keys: str = choice(
        "warn",
        ("warn", "fail", "ignore"),
        "What to do about keys that are not in the partition that the default partitioner gives, in a sample of the "
        "records that sources read into state: such a record finds no partner in a join, and is counted apart.",
    )
    lost_records: str = choice(
        "fail",
        ("fail", "rebuild", "accept"),
        "What to do at the start when a changelog or repartition topic has lost records that were committed: rebuild "
        "rewrites a changelog from the store in the state directory, accept continues with the remaining records.",
    )
    fsync: FsyncPolicy = choice(
        "never",
        ("never", "commit", "always"),
        "When the broker that `streams run` or a bounded run opens in its state directory syncs files to disk: never "
        "survives a killed process, but not a power failure; commit survives both. A broker that is passed has its "
        "own `fsync`.",
    )
    task_timeout_ms: int = whole(
        300_000, "ms", "How long a task retries while no broker is reachable, before it fails."
    )
    deserialization_handler: Any = choice(
        "fail",
        _HANDLING,
        "What to do with a record that cannot be read, or whose event time cannot be extracted.",
        takes_function=_is_handler,
        aliases=("default_deserialization_exception_handler", "deserialization_exception_handler"),
    )
    processing_handler: Any = choice(
        "fail",
        _HANDLING,
        "What to do with a record on which user code fails.",
        takes_function=_is_handler,
        aliases=("processing_exception_handler",),
    )
    processing_exception_handler_global_enabled: bool = flag(
        False,
        "Whether `processing_handler` is also called for records of global stores; otherwise such a failure ends the "
        "application (KIP-1270).",
    )
    production_handler: Any = choice(
        "fail",
        _HANDLING,
        "What to do with a result that cannot be written.",
        takes_function=_is_handler,
        aliases=("default_production_exception_handler", "production_exception_handler"),
    )
    errors_dead_letter_queue_topic_name: str = text(
        "", "Dead letter queue topic for records that a handler skips; empty = none."
    )
    default_timestamp_extractor: Any = choice(
        "fail_on_invalid",
        ("fail_on_invalid", "log_and_skip", "use_partition_time", "wall_clock"),
        "Event time of topics that declare none.",
        takes_function=_is_extractor,
        aliases=("default_ts_extractor",),
    )
    max_cycle_rounds: int = whole(
        10_000,
        "rounds",
        "Maximum number of rounds of records through topics that the topology reads and writes, after its inputs "
        "ended, "
        "before a bounded run, a replay or a test fails; 0 = any number. A live run has no such limit.",
    )
    repartition_purge_interval_ms: int = whole(
        30_000, "ms", "How often consumed records of repartition topics are deleted."
    )
    flight_recorder: bool = flag(
        False,
        "Whether to record, with each commit, the order in which tasks took their inputs, for `streams capture` and "
        "`streams reproduce`.",
    )
    flight_recorder_retention_ms: int = whole(
        86_400_000,
        "ms",
        "How long the flight recorder keeps an order, and consumed records of repartition topics.",
        minimum=1,
    )
    replication_factor: int = whole(
        -1, "replicas", "Replication factor of internal topics on a cluster; -1 = the broker's default.", minimum=-1
    )
    # Metrics.
    metrics_recording_level: str = choice(
        "info", ("info", "debug", "trace", "off"), "Which metrics are recorded; off measures what recording costs."
    )
    metrics_sample_window_ms: int = whole(
        30_000, "ms", "Rates, averages and extremes are over one to two such windows.", minimum=1
    )
    otlp_endpoint: str = text(
        "",
        "Collector that gets metrics, and traces if asked for, over OTLP (HTTP), such as http://localhost:4318; empty "
        "= none. Needs the extra `otel`.",
    )
    otlp_interval_ms: int = whole(60_000, "ms", "How often metrics are sent to the collector.", minimum=1)
    otlp_traces_per_million: int = whole(
        -1,
        "records",
        "How many of a million records without a `traceparent` header get a span; 0 = only those whose header says so, "
        "-1 = no traces at all.",
        minimum=-1,
        maximum=1_000_000,
    )
    openlineage_url: str = text(
        "",
        "Collector that gets an OpenLineage event at the start and at the end, such as http://localhost:5000; empty = "
        "none. Needs the extra `openlineage`.",
    )
    openlineage_namespace: str = text("default", "Namespace of the application as a job of OpenLineage.")
    watchdog_ms: int = whole(
        0,
        "ms",
        "Time without an iteration of a thread's loop after which the stack of the thread is logged, once "
        "a minute; 0 = never. An iteration begins every poll_ms, and after each run of at most 10,000 "
        "records.",
    )
    # State.
    state_memory_max_bytes: int = whole(
        512 * _MIB,
        "bytes",
        "Memory of all stores of the process: record caches (`cache_max_bytes` is part of it), writes that wait for a "
        "commit, read caches, RocksDB's blocks and memtables; not the entries of stores in memory.",
    )
    # Clients.
    consumer: ConsumerSettings = group(ConsumerSettings, of_application=True)
    producer: ProducerSettings = group(ProducerSettings, of_application=True)
    connection: ConnectionSettings = group(ConnectionSettings, of_application=True)
    security: Security = group(Security, of_application=True)

    @classmethod
    def of(cls, **settings: Any) -> "StreamsConfig":
        """Parse and validate settings; values may be text, such as those from ``--set NAME=VALUE``.

        Kafka's dotted names are also accepted, and a ``timedelta`` is accepted for settings in milliseconds.

        Raises:
            ConfigError: a name is unknown (the message suggests the nearest known name), or a value is invalid.
        """
        return cls().replace(**settings)

    def replace(self, **settings: Any) -> "StreamsConfig":
        """Return a copy with other values, which are validated as in ``of``."""
        values = parsed(settings, SETTINGS)
        is_switched = values.get("processing_guarantee") == "exactly_once_v2" and not self.is_exactly_once
        if is_switched and self.commit_interval_ms == SETTINGS["commit_interval_ms"].default:
            # Output is visible to read_committed consumers only after a commit; Kafka Streams has the same default.
            values.setdefault("commit_interval_ms", 100)
        changed = replaced(self, values)
        changed.consumer.check_membership()
        changed._check_assignment_tags()
        changed._check_group_protocol()
        acks = changed.producer.acks
        if changed.is_exactly_once and acks != "all":
            raise ConfigError(f"acks={acks} and exactly_once_v2 exclude each other: leave acks at 'all'")
        return changed

    def _check_group_protocol(self) -> None:
        """Check that all settings of the group are heeded.

        Raises:
            ConfigError: a setting belongs to the other group protocol.
        """
        if self.group_protocol == "classic":
            return
        for name, instead in SET_ON_BROKER.items():
            value = getattr(self, name) if hasattr(self, name) else getattr(self.consumer, name)
            if value != SETTINGS[name].default:
                raise ConfigError(
                    f"{name}={value} and group_protocol=streams exclude each other: {instead}; leave it out"
                )

    @property
    def tags(self) -> dict[str, str]:
        """The pairs in ``client_tags``."""
        return pairs_of(self.client_tags)

    @property
    def assignment_tags(self) -> tuple[str, ...]:
        """The names in ``rack_aware_assignment_tags``."""
        return tuple(name.strip() for name in self.rack_aware_assignment_tags.split(",") if name.strip())

    def _check_assignment_tags(self) -> None:
        missing = [name for name in self.assignment_tags if name not in self.tags]
        if missing:
            raise ConfigError(
                f"setting 'rack_aware_assignment_tags': this instance has no tag {missing[0]!r}; "
                f"give it one, such as client_tags={{{missing[0]!r}: 'a'}}"
            )

    @property
    def client(self) -> ClientSettings:
        """The client settings of the application that consumers and producers have in common."""
        return self.consumer.client

    @property
    def is_exactly_once(self) -> bool:
        """Whether outputs, state and offsets are committed in one transaction."""
        return self.processing_guarantee == "exactly_once_v2"


def _of_group(name: str) -> str:
    return f"the broker heeds the setting {name} of the group (kafka-configs.sh --entity-type groups)"


#: What takes the place of settings in groups whose broker assigns the tasks.
SET_ON_BROKER: Mapping[str, str] = {
    "num_standby_replicas": _of_group("streams.num.standby.replicas"),
    "acceptable_recovery_lag": _of_group("streams.acceptable.recovery.lag"),
    "rack_aware_assignment_tags": _of_group("streams.rack.aware.assignment.tags"),
    "max_warmup_replicas": _of_group("streams.num.warmup.replicas") + ", which Kafka 4.4 does not use",
    "probing_rebalance_interval_ms": "the broker sees which warm-up replicas have caught up",
    "session_timeout_ms": _of_group("streams.session.timeout.ms"),
    "heartbeat_interval_ms": _of_group("streams.heartbeat.interval.ms"),
}

#: The settings of an application, by name.
SETTINGS: Mapping[str, Setting] = table_of(StreamsConfig, of_application=True)


def setting_name(name: str) -> str:
    """Return the canonical name of an application setting, given that name or Kafka's name.

    Raises:
        ConfigError: the setting is unknown; the message suggests the nearest name.
    """
    return canonical_name(name, SETTINGS)
