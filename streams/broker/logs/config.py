"""Topic configuration with Kafka's setting names, validated whenever a topic is created, altered or loaded.

One table has the name, default and parser of each setting.  Kafka settings without an effect
in a single broker are accepted and shown, so that scripts written for Kafka run unchanged.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypedDict

from attrs import frozen

from streams.clients import STRATEGIES
from streams.core.errors import BrokerError, ConfigError
from streams.core.settings.config import FsyncPolicy
from streams.protocol.compression import CODECS
from streams.protocol.error_codes import ErrorCode

TimestampType: TypeAlias = Literal["CreateTime", "LogAppendTime"]

#: Settings that Kafka does not have: how producers choose partitions, where records are
#: stored ("" = the broker default), and the record time to live.
PARTITIONER = "streams.partitioner"
STORAGE = "streams.storage"
RECORD_TTL = "streams.record.ttl.ms"

#: Built-in storages, and the name for a user-defined one.
STORAGE_NAMES = ("array", "linked", "file", "custom")

#: The settings of internal topics.
INTERNAL_CONFIG: Final[Mapping[str, str]] = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}

_DAY_MS = 86_400_000
_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@frozen
class TopicConfig:
    """The parsed settings of a topic; times are in milliseconds, and -1 means no limit.

    ``given`` has the settings that were set explicitly, as text.  If ``record_ttl_ms`` is None, records have
    no time to live, and time-to-live headers are ignored.
    """

    given: Mapping[str, str]
    is_compacted: bool
    is_deleted: bool
    retention_ms: int
    retention_bytes: int
    max_message_bytes: int
    timestamp_type: TimestampType
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    segment_bytes: int
    segment_ms: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    compression: str
    partitioner: str
    storage: str
    record_ttl_ms: int | None

    @property
    def limits_timestamps(self) -> bool:
        """Whether a record may be refused because its timestamp is too far from the broker's time."""
        nearest_ms = min(self.timestamp_before_max_ms, self.timestamp_after_max_ms)
        return self.timestamp_type == "CreateTime" and nearest_ms < _FOREVER_MS

    @property
    def limits_compaction_lag(self) -> bool:
        """Whether records have to be compacted at a certain age."""
        return self.max_compaction_lag_ms < _FOREVER_MS

    @property
    def needs_maintenance(self) -> bool:
        """Whether retention, compaction or a time to live can ever remove records."""
        has_retention = self.is_deleted and (self.retention_ms >= 0 or self.retention_bytes >= 0)
        return self.is_compacted or has_retention or self.record_ttl_ms is not None

    def described(self) -> dict[str, str]:
        """Return every setting that has an effect in this broker, and every setting that was set explicitly."""
        return {name: default for name, (default, _) in _SETTINGS.items()} | dict(self.given)

    def shown(self) -> dict[str, str]:
        """Return every Kafka topic setting, including those without an effect, because tools expect them."""
        return {name: default for name, (default, _) in _WITHOUT_EFFECT.items()} | self.described()


def parse_config(given: Mapping[str, str]) -> TopicConfig:
    """Validate and parse the settings of a topic.

    Raises:
        BrokerError: a setting is unknown or has an invalid value, or two settings contradict each other
            (``INVALID_CONFIG``).
    """
    for name in given:
        if name not in _SETTINGS and name not in _WITHOUT_EFFECT and name not in _OF_OLDER_KAFKA:
            known = ", ".join(sorted(_SETTINGS))
            raise BrokerError(
                f"topic configuration {name!r} is unknown; known are {known}", code=ErrorCode.INVALID_CONFIG
            )
    values: dict[str, Any] = {}
    for name, (default, parse) in (_SETTINGS | _WITHOUT_EFFECT | _OF_OLDER_KAFKA).items():
        text = given.get(name, default)
        if not isinstance(text, str):
            raise BrokerError(
                f"topic configuration {name}={text!r}: expected text, such as {default!r}, not {type(text).__name__}",
                code=ErrorCode.INVALID_CONFIG,
            )
        try:
            values[name] = parse(text)
        except ValueError as error:
            raise BrokerError(f"topic configuration {name}={text!r}: {error}", code=ErrorCode.INVALID_CONFIG) from error
    policies: set[str] = values["cleanup.policy"]
    least = values["min.compaction.lag.ms"]
    most = values["max.compaction.lag.ms"]
    if least > most:
        raise BrokerError(
            f"topic configuration min.compaction.lag.ms={least} exceeds max.compaction.lag.ms={most}: it must not",
            code=ErrorCode.INVALID_CONFIG,
        )
    difference_ms: int = values["message.timestamp.difference.max.ms"]
    return TopicConfig(
        given=dict(given),
        is_compacted="compact" in policies,
        is_deleted="delete" in policies,
        retention_ms=values["retention.ms"],
        retention_bytes=values["retention.bytes"],
        max_message_bytes=values["max.message.bytes"],
        timestamp_type=values["message.timestamp.type"],
        timestamp_before_max_ms=min(values["message.timestamp.before.max.ms"], difference_ms),
        timestamp_after_max_ms=min(values["message.timestamp.after.max.ms"], difference_ms),
        segment_bytes=values["segment.bytes"],
        segment_ms=values["segment.ms"],
        delete_retention_ms=values["delete.retention.ms"],
        min_compaction_lag_ms=least,
        max_compaction_lag_ms=most,
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        compression=values["compression.type"],
        partitioner=values[PARTITIONER],
        storage=values[STORAGE],
        record_ttl_ms=values[RECORD_TTL],
    )


def _policies(text: str) -> set[str]:
    policies = {part.strip() for part in text.split(",")}
    if not policies <= {"delete", "compact"}:
        raise ValueError("expected 'delete', 'compact' or 'compact,delete'")
    return policies


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return text

    return parse


def _ttl(text: str) -> int | None:
    return None if text == "off" else _long(-1)(text)


def _whole(lowest: int, highest: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _NUMBER.fullmatch(text.strip()):
            raise ValueError("expected a whole number, in digits 0 to 9")
        # Python rejects very long numbers with a message that does not name the setting's bound.
        number = int(text) if len(text) < 100 else highest + 1
        if number < lowest:
            raise ValueError(f"must be at least {lowest}")
        if number > highest:
            raise ValueError(f"must be at most {highest}")
        return number

    return parse


def _int(lowest: int) -> Callable[[str], int]:
    return _whole(lowest, 2**31 - 1)


def _long(lowest: int) -> Callable[[str], int]:
    return _whole(lowest, 2**63 - 1)


def _truth(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.strip().lower() == "true"


def _ratio(text: str) -> float:
    if not _DECIMAL.fullmatch(text.strip()):
        raise ValueError("expected a number")
    number = float(text)
    if not 0 <= number <= 1:
        raise ValueError("must be between 0 and 1")
    return number


_FOREVER_MS: Final = 2**63 - 1
_FOREVER: Final = str(_FOREVER_MS)

#: Default and parser by setting name.  Defaults are Kafka's, except for ``retention.ms`` (seven days in Kafka), since
#: an embedded broker often gets historical records, which would expire at once, and for
#: ``message.timestamp.after.max.ms`` (an hour in Kafka), since tests often have times in the future.
_SETTINGS: dict[str, tuple[str, Callable[[str], object]]] = {
    "cleanup.policy": ("delete", _policies),
    "retention.ms": ("-1", _long(-1)),
    "retention.bytes": ("-1", _long(-1)),
    "max.message.bytes": ("1048588", _int(0)),
    "message.timestamp.type": ("CreateTime", _one_of("CreateTime", "LogAppendTime")),
    "message.timestamp.before.max.ms": (_FOREVER, _long(0)),
    "message.timestamp.after.max.ms": (_FOREVER, _long(0)),
    "segment.bytes": (str(1 << 30), _int(14)),
    "segment.ms": (str(7 * _DAY_MS), _long(1)),
    "delete.retention.ms": (str(_DAY_MS), _long(0)),
    "min.compaction.lag.ms": ("0", _long(0)),
    "max.compaction.lag.ms": (_FOREVER, _long(1)),
    "min.cleanable.dirty.ratio": ("0.5", _ratio),
    "compression.type": ("producer", _one_of("producer", *CODECS)),
    PARTITIONER: ("default", _one_of(*STRATEGIES)),
    STORAGE: ("", _one_of("", *STORAGE_NAMES)),
    RECORD_TTL: ("off", _ttl),
}

#: Defaults of the settings that are only shown: a single broker has one replica and no tiered storage, ``fsync`` of
#: the broker decides when to flush, and levels of compression and sizes of indexes change no record.
_WITHOUT_EFFECT: dict[str, tuple[str, Callable[[str], object]]] = {
    "compression.gzip.level": ("-1", _whole(-1, 9)),
    "compression.lz4.level": ("9", _whole(1, 17)),
    "compression.zstd.level": ("3", _whole(-131_072, 22)),
    "file.delete.delay.ms": ("60000", _long(0)),
    "flush.messages": (_FOREVER, _long(1)),
    "flush.ms": (_FOREVER, _long(0)),
    "follower.replication.throttled.replicas": ("", str),
    "index.interval.bytes": ("4096", _int(0)),
    "leader.replication.throttled.replicas": ("", str),
    "local.retention.bytes": ("-2", _long(-2)),
    "local.retention.ms": ("-2", _long(-2)),
    "min.insync.replicas": ("1", _int(1)),
    "preallocate": ("false", _truth),
    "remote.log.copy.disable": ("false", _truth),
    "remote.log.delete.on.disable": ("false", _truth),
    "remote.storage.enable": ("false", _truth),
    "segment.index.bytes": ("10485760", _int(4)),
    "segment.jitter.ms": ("0", _long(0)),
    "unclean.leader.election.enable": ("false", _truth),
}

#: Settings removed in Kafka 4.0 that scripts still use.  The last one limits timestamps in both directions; the others
#: have no effect, because there is one message format.
_OF_OLDER_KAFKA: dict[str, tuple[str, Callable[[str], object]]] = {
    "message.downconversion.enable": ("true", _truth),
    "message.format.version": ("", str),
    "message.timestamp.difference.max.ms": (_FOREVER, _long(0)),
}


@frozen
class BrokerConfig:
    """The settings of a broker.

    - ``auto_create_topics``: a Metadata request for an unknown topic creates the topic with
      ``default_partitions`` partitions (Kafka's ``auto.create.topics.enable``, which is also true by default).
    - ``maintenance_interval_ms``: how often ``tick`` starts a retention and compaction pass (Kafka's
      ``log.retention.check.interval.ms``); with None, only ``maintain`` starts one.
    - ``serves_damaged``: partitions with damaged records are offline and the others are served; if False, a broker
      with damaged records does not open.
    - ``fsync``: when files are synced to disk.
    - ``is_private``: whether only this process and its child processes connect to the broker.
    - ``rack``: the rack or zone of the broker (Kafka's ``broker.rack``), which clients are told.
    """

    node_id: int = 0
    auto_create_topics: bool = True
    default_partitions: int = 1
    maintenance_interval_ms: int | None = 300_000
    serves_damaged: bool = False
    fsync: FsyncPolicy = "never"
    is_private: bool = False
    rack: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.rack == "":
            raise ConfigError("rack='': give the broker a rack with a name, or None")


class BrokerOptions(TypedDict, total=False):
    """The fields of ``BrokerConfig`` that ``EmbeddedBroker`` accepts as keyword arguments."""

    auto_create_topics: bool
    default_partitions: int
    maintenance_interval_ms: int | None
    serves_damaged: bool
    fsync: FsyncPolicy
    is_private: bool
    rack: str | None
