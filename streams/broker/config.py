"""Configuration of a topic: Kafka's names, checked once when the topic is made.

One table holds name, default and parser.  Settings of Kafka that mean nothing to one
broker in process are accepted and shown, so that scripts for Kafka run unchanged.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from attrs import frozen

from streams.clients.partitioners import STRATEGIES
from streams.core.errors import BrokerError
from streams.protocol.compression import CODECS
from streams.protocol.messages import ErrorCode

TimestampType: TypeAlias = Literal["CreateTime", "LogAppendTime"]

#: Settings that Kafka does not have: how the producers of a topic choose partitions, where its
#: records lie ("" = the broker's default), and how long each of them lives.
PARTITIONER = "streams.partitioner"
STORAGE = "streams.storage"
RECORD_TTL = "streams.record.ttl.ms"

#: Storages of the broker's own, and the word for one of the user's.
STORAGE_NAMES = ("array", "linked", "file", "custom")

_DAY_MS = 86_400_000


@frozen
class TopicConfig:
    """A topic's settings, parsed; times in milliseconds, -1 = without limit.

    ``given`` is what was set for this topic, as text.  ``record_ttl_ms`` None: its records have
    no time to live, whatever their headers say.
    """

    given: Mapping[str, str]
    is_compacted: bool
    is_deleted: bool
    retention_ms: int
    retention_bytes: int
    max_message_bytes: int
    timestamp_type: TimestampType
    segment_bytes: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    compression: str
    partitioner: str
    storage: str
    record_ttl_ms: int | None

    @property
    def needs_maintenance(self) -> bool:
        """True where retention, compaction or a time to live may ever take records away."""
        has_retention = self.is_deleted and (self.retention_ms >= 0 or self.retention_bytes >= 0)
        return self.is_compacted or has_retention or self.record_ttl_ms is not None

    def described(self) -> dict[str, str]:
        """Return every setting that has an effect, and what was given beside."""
        return {name: default for name, (default, _) in _SETTINGS.items()} | dict(self.given)

    def shown(self) -> dict[str, str]:
        """Return every setting that Kafka's topics have, without effect too: tools take it for granted."""
        return _WITHOUT_EFFECT | self.described()


def parse_config(given: Mapping[str, str]) -> TopicConfig:
    """Check and parse the settings of a topic.

    Raises:
        BrokerError: an unknown name or a value that does not fit (``INVALID_CONFIG``).
    """
    for name in given:
        if name not in _SETTINGS and name not in _WITHOUT_EFFECT and name not in _OF_OLDER_KAFKA:
            known = ", ".join(sorted(_SETTINGS))
            raise BrokerError(
                f"topic configuration {name!r} is unknown; known are {known}", code=ErrorCode.INVALID_CONFIG
            )
    values: dict[str, Any] = {}
    for name, (default, parse) in _SETTINGS.items():
        text = given.get(name, default)
        try:
            values[name] = parse(text)
        except ValueError as error:
            raise BrokerError(f"topic configuration {name}={text!r}: {error}", code=ErrorCode.INVALID_CONFIG) from error
    policies: set[str] = values["cleanup.policy"]
    return TopicConfig(
        given=dict(given),
        is_compacted="compact" in policies,
        is_deleted="delete" in policies,
        retention_ms=values["retention.ms"],
        retention_bytes=values["retention.bytes"],
        max_message_bytes=values["max.message.bytes"],
        timestamp_type=values["message.timestamp.type"],
        segment_bytes=values["segment.bytes"],
        delete_retention_ms=values["delete.retention.ms"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
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
    return None if text == "off" else _at_least(-1)(text)


def _at_least(lowest: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError("expected a whole number") from None
        if number < lowest:
            raise ValueError(f"must be at least {lowest}")
        return number

    return parse


def _ratio(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("expected a number") from None
    if not 0 <= number <= 1:
        raise ValueError("must lie between 0 and 1")
    return number


#: Default and parser by Kafka's name.  Defaults are Kafka's but for ``retention.ms`` (there
#: seven days): a broker in process is often fed history, whose age says nothing.
_SETTINGS: dict[str, tuple[str, Callable[[str], object]]] = {
    "cleanup.policy": ("delete", _policies),
    "retention.ms": ("-1", _at_least(-1)),
    "retention.bytes": ("-1", _at_least(-1)),
    "max.message.bytes": ("1048588", _at_least(0)),
    "message.timestamp.type": ("CreateTime", _one_of("CreateTime", "LogAppendTime")),
    "segment.bytes": (str(1 << 30), _at_least(14)),
    "delete.retention.ms": (str(_DAY_MS), _at_least(0)),
    "min.compaction.lag.ms": ("0", _at_least(0)),
    "min.cleanable.dirty.ratio": ("0.5", _ratio),
    "compression.type": ("producer", _one_of("producer", *CODECS)),
    PARTITIONER: ("default", _one_of(*STRATEGIES)),
    STORAGE: ("", _one_of("", *STORAGE_NAMES)),
    RECORD_TTL: ("off", _ttl),
}

_FOREVER = str(2**63 - 1)
#: Default by Kafka's name of what is shown because tools read it: one node has one replica and no tiers, and
#: leaves when to write to the file system.
_WITHOUT_EFFECT: dict[str, str] = {
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.zstd.level": "3",
    "file.delete.delay.ms": "60000",
    "flush.messages": _FOREVER,
    "flush.ms": _FOREVER,
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": _FOREVER,
    "message.timestamp.after.max.ms": _FOREVER,
    "message.timestamp.before.max.ms": _FOREVER,
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}

#: Settings that Kafka had before 4.0 and scripts still name.
_OF_OLDER_KAFKA = frozenset(
    {"message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms"}
)


@frozen
class BrokerConfig:
    """Settings of a broker.

    ``auto_create_topics``: a Metadata request for an unknown topic creates it with
    ``default_partitions`` (Kafka's ``auto.create.topics.enable``, true there as here).
    ``maintenance_interval_ms``: how often ``tick`` begins a pass of retention and compaction (Kafka's
    ``log.retention.check.interval.ms``); None = only when ``maintain`` is called.
    ``serves_damaged``: partitions whose records are damaged are offline, the others are served; False = the broker
    does not open.
    """

    node_id: int = 0
    auto_create_topics: bool = True
    default_partitions: int = 1
    maintenance_interval_ms: int | None = 300_000
    serves_damaged: bool = False
