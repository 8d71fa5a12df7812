"""Settings: one table of names, types, units, defaults and meaning.

The fields of ``StreamsConfig`` are the table; parsing, checks and the reference page read it.
Names are Kafka Streams' own in snake_case.  Imports errors only.
"""

import difflib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import attrs
from attrs import field, frozen

from streams.core.errors import ConfigError
from streams.core.handlers import check_handler
from streams.core.user_code import refuse_unawaited, refuse_unawaited_methods

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


@frozen
class Setting:
    """One line of the table.

    ``kind`` is one of int, float, bool, text, choice; ``choices`` belong to the last, and
    ``takes_function`` says that a function or handler may stand in place of a name.
    """

    name: str
    kind: str
    unit: str
    default: Any
    doc: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    takes_function: bool = False

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.kind == "choice":
            names = " or ".join(self.choices)
            return f"{names}, or a function" if self.takes_function else names
        if self.kind == "bool":
            return "true or false"
        if self.kind == "text":
            return "text"
        number = "a whole number" if self.kind == "int" else "a number"
        unit = f" of {self.unit}" if self.unit else ""
        bounds = [("at least", self.minimum), ("at most", self.maximum)]
        return number + unit + "".join(f", {words} {bound:g}" for words, bound in bounds if bound is not None)


def _entry(kind: str, default: Any, doc: str, **more: Any) -> Any:
    return field(default=default, metadata={"kind": kind, "doc": doc, **more})


def _whole(default: int, unit: str, doc: str, *, minimum: int | None = 0, maximum: int | None = None) -> Any:
    return _entry("int", default, doc, unit=unit, minimum=minimum, maximum=maximum)


def _text(default: str, doc: str) -> Any:
    return _entry("text", default, doc)


def _flag(default: bool, doc: str) -> Any:
    return _entry("bool", default, doc)


def _choice(default: str, choices: tuple[str, ...], doc: str, *, takes_function: bool = False) -> Any:
    return _entry("choice", default, doc, choices=choices, takes_function=takes_function)


_HANDLING = ("fail", "continue")
#: Settings that take a function of (context, record, error).
_HANDLERS = ("deserialization_handler", "processing_handler", "production_handler")
_MIB = 1 << 20


@frozen(kw_only=True)
class StreamsConfig:
    """All settings of an application, checked.  Make one with ``of``.

    >>> StreamsConfig.of(application_id="shop", commit_interval_ms="100").commit_interval_ms
    100
    """

    # The application.
    application_id: str = _text("", "Name of the application: its group, and the prefix of its internal topics.")
    bootstrap_servers: str = _text("", "Brokers to start from, host:port, comma-separated; empty = embedded broker.")
    client_id: str = _text("", "Prefix of the names of clients and threads; empty = the application id.")
    application_server: str = _text(
        "",
        "host:port under which other instances reach this one; they are told, and `owner_of` tells (KIP-67). "
        "Nothing listens there by itself.",
    )
    state_dir: str = _text("", "Folder of the stores; empty = they are in memory, and restored from their changelogs.")
    num_stream_threads: int = _whole(1, "threads", "Threads that run tasks.", minimum=1)
    num_standby_replicas: int = _whole(0, "replicas", "Copies of each store kept warm on other instances.")
    acceptable_recovery_lag: int = _whole(10_000, "records", "Lag up to which a copy of a store counts as caught up.")
    max_warmup_replicas: int = _whole(2, "replicas", "Extra copies that may warm up at once.", minimum=1)
    probing_rebalance_interval_ms: int = _whole(
        600_000, "ms", "How often to check whether warm-up copies have caught up.", minimum=60_000
    )
    processing_guarantee: str = _choice(
        "at_least_once", ("at_least_once", "exactly_once_v2"), "What a failure may do to results."
    )
    topology_optimization: str = _choice(
        "none", ("none", "all"), "Whether to merge repartition topics and use source topics as changelogs."
    )
    default_store: str = _choice(
        "rocksdb", ("rocksdb", "in_memory"), "Engine of stores that name none, in a state_dir (default.dsl.store)."
    )
    # Processing.
    commit_interval_ms: int = _whole(30_000, "ms", "How often to commit; 100 with exactly_once_v2 unless given.")
    max_task_idle_ms: int = _whole(
        0,
        "ms",
        "How long to wait for records of an empty partition; -1 = never, 0 = only for those known to be on the broker.",
        minimum=-1,
    )
    buffered_records_per_partition: int = _whole(
        1000, "records", "Above so many buffered records a partition is paused.", minimum=1
    )
    max_partition_ahead_ms: int = _whole(
        -1,
        "ms",
        "Event time by which a partition may be ahead of its task's others before it is paused; -1 = only a full "
        "buffer pauses it.",
        minimum=-1,
    )
    poll_ms: int = _whole(100, "ms", "How long a poll waits when there is nothing to do.")
    cache_max_bytes: int = _whole(
        10 * _MIB, "bytes", "Memory of the record caches of all threads (statestore.cache.max.bytes); 0 = none."
    )
    unknown_state: str = _choice(
        "warn",
        ("warn", "fail", "ignore"),
        "What to do at the start about stores, changelogs and repartition topics that the application has and its "
        "topology does not know; warn refuses too where a generated name seems to have moved.",
    )
    lost_records: str = _choice(
        "fail",
        ("fail", "rebuild", "accept"),
        "What to do at the start when a changelog or repartition topic has lost records that were committed: rebuild "
        "writes a changelog anew from the store in the state directory, accept goes on with what is left.",
    )
    task_timeout_ms: int = _whole(300_000, "ms", "How long a task may fail for lack of a broker before it is an error.")
    deserialization_handler: Any = _choice(
        "fail", _HANDLING, "What to do with a record that cannot be read.", takes_function=True
    )
    processing_handler: Any = _choice(
        "fail", _HANDLING, "What to do with a record on which user code fails.", takes_function=True
    )
    production_handler: Any = _choice(
        "fail", _HANDLING, "What to do with a result that cannot be written.", takes_function=True
    )
    errors_dead_letter_queue_topic_name: str = _text(
        "", "Topic that gets the records which a handler skips; empty = none."
    )
    default_timestamp_extractor: Any = _choice(
        "fail_on_invalid",
        ("fail_on_invalid", "log_and_skip", "use_partition_time", "wall_clock"),
        "Event time of topics that declare none.",
        takes_function=True,
    )
    max_cycle_rounds: int = _whole(
        10_000,
        "rounds",
        "How often records may go round topics that the topology both reads and writes, after its inputs have ended, "
        "before a bounded run, a replay or a test fails; 0 = any number. A live run has no such limit.",
    )
    repartition_purge_interval_ms: int = _whole(
        30_000, "ms", "How often consumed records of repartition topics are deleted."
    )
    replication_factor: int = _whole(
        -1, "replicas", "Copies of internal topics on a cluster; -1 = the broker's default.", minimum=-1
    )
    # State.
    state_memory_max_bytes: int = _whole(
        512 * _MIB,
        "bytes",
        "Memory of all stores of the process: record caches (`cache_max_bytes` is part of it), writes that wait for a "
        "commit, read caches, RocksDB's blocks and memtables; not the entries of stores in memory.",
    )
    # Consumer.
    auto_offset_reset: str = _choice(
        "earliest",
        ("earliest", "latest", "none"),
        "Where a live run begins on a topic without a committed offset; none = an error.",
    )
    max_poll_records: int = _whole(
        10_000, "records", "Most records of one poll (Kafka Streams: 1,000; blocks make more cheap).", minimum=1
    )
    max_poll_interval_ms: int = _whole(
        300_000, "ms", "Longest time between polls before the member is taken for dead.", minimum=1
    )
    session_timeout_ms: int = _whole(45_000, "ms", "Time without a heartbeat after which a member is dead.", minimum=1)
    heartbeat_interval_ms: int = _whole(3_000, "ms", "How often a member says that it lives.", minimum=1)
    group_instance_id: str = _text(
        "", "Name of a static member, which may restart without a rebalance; empty = dynamic."
    )
    fetch_max_wait_ms: int = _whole(500, "ms", "Longest time that the broker gathers.")
    fetch_max_bytes: int = _whole(50 * _MIB, "bytes", "Most bytes of one fetch.", minimum=1)
    max_partition_fetch_bytes: int = _whole(_MIB, "bytes", "Most bytes per partition of one fetch.", minimum=1)
    isolation_level: str = _choice(
        "read_uncommitted",
        ("read_uncommitted", "read_committed"),
        "Whether open and aborted transactions of other applications are read; exactly_once_v2 never reads them.",
    )
    # Producer.
    linger_ms: int = _whole(
        0, "ms", "How long a record waits for others to share its batch (Kafka Streams: 100); runs are blocks anyway."
    )
    batch_size_bytes: int = _whole(128 * 1024, "bytes", "Size at which a batch is sent at once.", minimum=1)
    buffer_memory_bytes: int = _whole(
        32 * _MIB, "bytes", "Unsent records that a producer holds before it blocks.", minimum=1
    )
    max_block_ms: int = _whole(60_000, "ms", "How long a full producer blocks before it is an error.")
    max_request_bytes: int = _whole(_MIB, "bytes", "Largest record or request that a producer sends.", minimum=1)
    max_in_flight_requests: int = _whole(
        5,
        "requests",
        "Requests to one broker without an answer; with acks other than all one of a partition, which keeps its order.",
        minimum=1,
        maximum=5,
    )
    compression_type: str = _choice("none", ("none", "gzip", "snappy", "lz4", "zstd"), "Compression of batches.")
    acks: str = _choice("all", ("all", "1", "0"), "Which replicas must have a record before it counts as sent.")
    delivery_timeout_ms: int = _whole(120_000, "ms", "Longest time from sending a record to its acknowledgement.")
    transaction_timeout_ms: int = _whole(
        10_000, "ms", "After how long the broker aborts an open transaction.", minimum=1
    )
    # Network.
    request_timeout_ms: int = _whole(30_000, "ms", "How long to wait for an answer.", minimum=1)
    retry_backoff_ms: int = _whole(
        100, "ms", "First pause before a retry; that of a producer doubles up to the maximum."
    )
    retry_backoff_max_ms: int = _whole(1_000, "ms", "Longest pause before a producer's retry.")
    reconnect_backoff_ms: int = _whole(50, "ms", "First pause before a new connection.")
    reconnect_backoff_max_ms: int = _whole(1_000, "ms", "Longest pause before a new connection.")
    connections_max_idle_ms: int = _whole(540_000, "ms", "After how long an unused connection is closed.")
    metadata_max_age_ms: int = _whole(300_000, "ms", "How often to look for new topics and partitions.")
    security_protocol: str = _choice(
        "plaintext", ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"), "How connections are secured."
    )
    sasl_mechanism: str = _choice(
        "PLAIN", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), "How the client proves who it is."
    )
    sasl_username: str = _text("", "User name for SASL.")
    sasl_password: str = field(default="", repr=False, metadata={"kind": "text", "doc": "Password for SASL."})
    ssl_ca_location: str = _text("", "File of the certificates to trust; empty = the system's.")
    ssl_certificate_location: str = _text("", "File of the client's certificate; empty = none.")
    ssl_key_location: str = _text("", "File of the client's private key.")

    @classmethod
    def of(cls, **settings: Any) -> "StreamsConfig":
        """Check and parse settings; text is parsed, so that ``--set NAME=VALUE`` may pass it on.

        Kafka's dotted names are understood too, and a ``timedelta`` where the unit is ms.

        Raises:
            ConfigError: a name is unknown (with the nearest known one), or a value does not fit.
        """
        return cls().replace(**settings)

    def replace(self, **settings: Any) -> "StreamsConfig":
        """Return a copy with other values, checked as by ``of``."""
        values = _checked(settings)
        is_switched = values.get("processing_guarantee") == "exactly_once_v2" and not self.is_exactly_once
        if is_switched and self.commit_interval_ms == SETTINGS["commit_interval_ms"].default:
            # Results of a transaction are seen only after its commit; Kafka Streams shortens it too.
            values.setdefault("commit_interval_ms", 100)
        changed = attrs.evolve(self, **values)
        if changed.heartbeat_interval_ms >= changed.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms ({changed.heartbeat_interval_ms}) must be less than "
                f"session_timeout_ms ({changed.session_timeout_ms}); a third of it is usual"
            )
        if changed.is_exactly_once and changed.acks != "all":
            raise ConfigError(f"acks={changed.acks} and exactly_once_v2 exclude each other: leave acks at 'all'")
        return changed

    @property
    def is_exactly_once(self) -> bool:
        """Whether outputs, state and offsets are one transaction."""
        return self.processing_guarantee == "exactly_once_v2"

    def as_dict(self) -> dict[str, Any]:
        """Return all settings by name."""
        return {name: getattr(self, name) for name in SETTINGS}


#: Kafka's names that differ from ours, and short forms.
ALIASES: Mapping[str, str] = {
    "statestore_cache_max_bytes": "cache_max_bytes",
    "cache_max_bytes_buffering": "cache_max_bytes",
    "default_dsl_store": "default_store",
    "default_deserialization_exception_handler": "deserialization_handler",
    "deserialization_exception_handler": "deserialization_handler",
    "processing_exception_handler": "processing_handler",
    "default_production_exception_handler": "production_handler",
    "production_exception_handler": "production_handler",
    "batch_size": "batch_size_bytes",
    "buffer_memory": "buffer_memory_bytes",
    "max_request_size": "max_request_bytes",
    "max_in_flight_requests_per_connection": "max_in_flight_requests",
    "default_ts_extractor": "default_timestamp_extractor",
}


def _table() -> dict[str, Setting]:
    entries = {}
    for entry in attrs.fields(StreamsConfig):
        facts = entry.metadata
        entries[entry.name] = Setting(
            name=entry.name,
            kind=facts["kind"],
            unit=facts.get("unit", ""),
            default=entry.default,
            doc=facts["doc"],
            choices=facts.get("choices", ()),
            minimum=facts.get("minimum"),
            maximum=facts.get("maximum"),
            takes_function=facts.get("takes_function", False),
        )
    return entries


#: The table, by name.
SETTINGS: Mapping[str, Setting] = _table()


def describe_settings() -> list[Setting]:
    """Return the table in its order, for the reference and ``--help``."""
    return list(SETTINGS.values())


def setting_name(name: str) -> str:
    """Return our name of a setting, given ours or Kafka's.

    Raises:
        ConfigError: there is none; the nearest is suggested.
    """
    ours = name.strip().lower().replace(".", "_").replace("-", "_")
    ours = ALIASES.get(ours, ours)
    if ours in SETTINGS:
        return ours
    near = difflib.get_close_matches(ours, [*SETTINGS, *ALIASES], n=1)
    hint = f"did you mean {ALIASES.get(near[0], near[0])!r}?" if near else "the reference lists all settings"
    raise ConfigError(f"unknown setting {name!r}: {hint}")


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for given, value in settings.items():
        name = setting_name(given)
        if name in values:
            raise ConfigError(f"setting {name!r} is given twice, once as {given!r}")
        values[name] = _parsed(SETTINGS[name], value)
    return values


def _parsed(setting: Setting, value: Any) -> Any:
    parsed = _PARSERS[setting.kind](setting, value)
    if setting.minimum is not None and parsed < setting.minimum:
        raise _misfit(setting, value)
    if setting.maximum is not None and parsed > setting.maximum:
        raise _misfit(setting, value)
    return parsed


def _misfit(setting: Setting, value: Any) -> ConfigError:
    shown = "the given value" if setting.name == "sasl_password" else f"{value!r} of type {type(value).__qualname__}"
    return ConfigError(f"setting {setting.name!r}: expected {setting.expected}, not {shown}")


def _parse_int(setting: Setting, value: Any) -> int:
    if setting.unit == "ms" and isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise _misfit(setting, value) from None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _misfit(setting, value)


def _parse_float(setting: Setting, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _misfit(setting, value)
    try:
        return float(value)
    except ValueError:
        raise _misfit(setting, value) from None


def _parse_bool(setting: Setting, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE + _FALSE:
        return value.strip().lower() in _TRUE
    raise _misfit(setting, value)


def _parse_text(setting: Setting, value: Any) -> str:
    if setting.name == "bootstrap_servers" and isinstance(value, (list, tuple)):
        if all(isinstance(server, str) for server in value):
            return ",".join(value)
        raise _misfit(setting, value)
    if hasattr(value, "__fspath__"):  # A Path, where a folder is meant.
        value = value.__fspath__()
    if not isinstance(value, str):
        raise _misfit(setting, value)
    if setting.name == "application_id":
        _check_application_id(value)
    if setting.name == "application_server":
        _check_server(value)
    return value


def _check_application_id(value: str) -> None:
    # It begins the names of internal topics, and is a folder of the state directory.
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
    host, _, port = value.rpartition(":")
    if value and not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ConfigError(f"setting 'application_server': {value!r} is no host:port, such as orders-1:8080")


def _parse_choice(setting: Setting, value: Any) -> Any:
    if isinstance(value, str):
        for choice in setting.choices:
            if value.strip().lower().replace("-", "_") == choice.lower().replace("-", "_"):
                return choice
    elif isinstance(value, int) and not isinstance(value, bool) and str(value) in setting.choices:
        return str(value)
    elif setting.name in _HANDLERS and callable(value):
        check_handler(setting.name, value)
        return value
    elif setting.name == "default_timestamp_extractor" and (callable(value) or hasattr(value, "block")):
        refuse_unawaited(value, f"setting {setting.name!r}", error=ConfigError)
        refuse_unawaited_methods(value, ("block", "one"), f"setting {setting.name!r}", error=ConfigError)
        return value
    raise _misfit(setting, value)


_PARSERS: Mapping[str, Callable[[Setting, Any], Any]] = {
    "int": _parse_int,
    "float": _parse_float,
    "bool": _parse_bool,
    "text": _parse_text,
    "choice": _parse_choice,
}
