"""The settings of topics and of the broker, with Kafka's names.

Kafka settings without an effect in a single broker are accepted and shown, so that scripts written for Kafka run
unchanged.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypedDict

from attrs import evolve, field, frozen

from streams.clients import STRATEGIES
from streams.core.errors import BrokerError, ConfigError
from streams.core.settings.config import FsyncPolicy
from streams.core.settings.setting import (
    LONG_MAX,
    Setting,
    check,
    choice,
    decimal,
    flag,
    group,
    items,
    kafka_table,
    number,
    text,
    texts_of,
    with_texts,
)
from streams.core.settings.settings import Milliseconds
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


def _long(name: str, default: int | None, unit: str = "", doc: str = "", **more: Any) -> Any:
    return number(name, default, unit, doc, maximum=LONG_MAX, **more)


@frozen(kw_only=True)
class TopicSettingsWithoutEffect:
    """Settings of topics that are only shown.

    A single broker has one replica and no tiered storage, ``fsync`` of the broker decides when to flush, and levels of
    compression and sizes of indexes change no record.
    """

    compression_gzip_level: int = number("compression.gzip.level", -1, minimum=-1, maximum=9)
    compression_lz4_level: int = number("compression.lz4.level", 9, minimum=1, maximum=17)
    compression_zstd_level: int = number("compression.zstd.level", 3, minimum=-131_072, maximum=22)
    file_delete_delay_ms: int = _long("file.delete.delay.ms", 60_000, "ms")
    flush_messages: int = _long("flush.messages", LONG_MAX, minimum=1)
    flush_ms: int = _long("flush.ms", LONG_MAX, "ms")
    follower_replication_throttled_replicas: str = items("", ())
    index_interval_bytes: int = number("index.interval.bytes", 4096, "bytes")
    leader_replication_throttled_replicas: str = items("", ())
    local_retention_bytes: int = _long("local.retention.bytes", -2, "bytes", minimum=-2)
    local_retention_ms: int = _long("local.retention.ms", -2, "ms", minimum=-2)
    min_insync_replicas: int = number("min.insync.replicas", 1, minimum=1)
    preallocate: bool = flag(False)
    remote_log_copy_disable: bool = flag(False)
    remote_log_delete_on_disable: bool = flag(False)
    remote_storage_enable: bool = flag(False)
    segment_index_bytes: int = number("segment.index.bytes", 10_485_760, "bytes", minimum=4)
    segment_jitter_ms: int = _long("segment.jitter.ms", 0, "ms")
    unclean_leader_election_enable: bool = flag(False)


@frozen(kw_only=True)
class OlderTopicSettings:
    """Settings of scripts, which Kafka 4.0 removed, and of its own tests; they are shown only if they were set."""

    # There is one message format.
    message_downconversion_enable: bool = flag(True)
    message_format_version: str = text("")
    internal_segment_bytes: int = number(
        "internal.segment.bytes", 1 << 30, "bytes", "Goes before `segment.bytes`; Kafka's own tests set it.", minimum=14
    )
    message_timestamp_difference_max_ms: int = _long(
        "message.timestamp.difference.max.ms", LONG_MAX, "ms", "Limit of timestamps in both directions."
    )


@frozen(kw_only=True)
class TopicConfig:
    """The parsed settings of a topic.

    Defaults are Kafka's, except for ``retention.ms`` (seven days in Kafka), since an embedded broker often gets
    historical records, which would expire at once, and for ``message.timestamp.after.max.ms`` (an hour in Kafka), since
    tests often have times in the future. ``own`` has the settings that were set explicitly, as text, and ``of_broker``
    those that the broker has set for topics without their own.
    """

    own: Mapping[str, str]
    of_broker: Mapping[str, str] = field(factory=dict)
    cleanup_policy: str = items(
        "delete",
        ("delete", "compact"),
        "Whether old records, or older ones of a key, go; empty = neither (KIP-1161).",
        broker_name="log.cleanup.policy",
    )
    retention_ms: int = _long(
        "retention.ms",
        -1,
        "ms",
        "How long records are kept; -1 = forever.",
        minimum=-1,
        broker_name="log.retention.ms",
    )
    retention_bytes: int = _long(
        "retention.bytes",
        -1,
        "bytes",
        "Size of a partition above which its oldest records go; -1 = none.",
        minimum=-1,
        broker_name="log.retention.bytes",
    )
    max_message_bytes: int = number(
        "max.message.bytes", 1_048_588, "bytes", "Largest batch of records.", broker_name="message.max.bytes"
    )
    timestamp_type: TimestampType = choice(  # noqa: RUF009 - frozen.
        "CreateTime",
        ("CreateTime", "LogAppendTime"),
        "Whether records keep their timestamps.",
        aliases=("message_timestamp_type",),
        broker_name="log.message.timestamp.type",
    )
    timestamp_before_max_ms: int = _long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "ms",
        "How far timestamps may be behind the broker's time.",
        broker_name="log.message.timestamp.before.max.ms",
    )
    timestamp_after_max_ms: int = _long(
        "message.timestamp.after.max.ms",
        LONG_MAX,
        "ms",
        "How far timestamps may be ahead of the broker's time.",
        broker_name="log.message.timestamp.after.max.ms",
    )
    segment_bytes: int = number(
        "segment.bytes", 1 << 30, "bytes", "Size of a file of records.", minimum=14, broker_name="log.segment.bytes"
    )
    segment_ms: int = _long(
        "segment.ms",
        7 * _DAY_MS,
        "ms",
        "Age at which a file of records is closed.",
        minimum=1,
        broker_name="log.roll.ms",
    )
    delete_retention_ms: int = _long(
        "delete.retention.ms",
        _DAY_MS,
        "ms",
        "How long compaction keeps deletions.",
        broker_name="log.cleaner.delete.retention.ms",
    )
    min_compaction_lag_ms: int = _long(
        "min.compaction.lag.ms",
        0,
        "ms",
        "Age below which records are not compacted.",
        broker_name="log.cleaner.min.compaction.lag.ms",
    )
    max_compaction_lag_ms: int = _long(
        "max.compaction.lag.ms",
        LONG_MAX,
        "ms",
        "Age at which records have to be compacted.",
        minimum=1,
        broker_name="log.cleaner.max.compaction.lag.ms",
    )
    min_cleanable_dirty_ratio: float = decimal(
        0.5,
        "Part of a partition that is not compacted yet, at which it is compacted.",
        minimum=0,
        maximum=1,
        broker_name="log.cleaner.min.cleanable.ratio",
    )
    compression: str = choice(
        "producer",
        ("producer", *CODECS),
        "Compression of stored batches.",
        aliases=("compression_type",),
        broker_name="compression.type",
    )
    partitioner: str = choice(
        "default", STRATEGIES, "How producers choose partitions.", aliases=("streams_partitioner",), is_fixed=True
    )
    storage: str = choice(
        "",
        ("", *STORAGE_NAMES),
        "Where records are stored; empty = the broker's default.",
        aliases=("streams_storage",),
        is_fixed=True,
    )
    record_ttl_ms: int | None = _long(
        RECORD_TTL,
        None,
        "ms",
        "Life of a record after its timestamp; -1 = as in its header, off = not even so.",
        minimum=-1,
        none_text="off",
    )
    without_effect: TopicSettingsWithoutEffect = group(TopicSettingsWithoutEffect)  # noqa: RUF009 - frozen.
    older: OlderTopicSettings = group(OlderTopicSettings)  # noqa: RUF009 - frozen.

    @property
    def is_compacted(self) -> bool:
        """Whether older records of a key are removed."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether records are deleted by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def limits_timestamps(self) -> bool:
        """Whether a record may be refused because its timestamp is too far from the broker's time."""
        nearest_ms = min(self.timestamp_before_max_ms, self.timestamp_after_max_ms)
        return self.timestamp_type == "CreateTime" and nearest_ms < LONG_MAX

    @property
    def limits_compaction_lag(self) -> bool:
        """Whether records have to be compacted at a certain age."""
        return self.max_compaction_lag_ms < LONG_MAX

    @property
    def needs_maintenance(self) -> bool:
        """Whether retention, compaction or a time to live can ever remove records."""
        has_retention = self.is_deleted and (self.retention_ms >= 0 or self.retention_bytes >= 0)
        return self.is_compacted or has_retention or self.record_ttl_ms is not None

    @property
    def texts(self) -> dict[str, str]:
        """The settings that the topic or the broker has set."""
        return {**self.of_broker, **self.own}

    def described(self) -> dict[str, str]:
        """Return every setting that has an effect in this broker, and every setting that was set explicitly."""
        return {name: text for name, text in _DEFAULTS.items() if TOPIC_SETTINGS[name].doc} | self.texts

    def shown(self) -> dict[str, str]:
        """Return every Kafka topic setting, including those without an effect, because tools expect them."""
        return _DEFAULTS | self.texts


#: The settings of topics by Kafka's name.
TOPIC_SETTINGS: Final[Mapping[str, Setting]] = kafka_table(TopicConfig)
_DEFAULTS: Final[dict[str, str]] = {
    name: text for name, text in texts_of(TopicConfig(own={})).items() if name not in kafka_table(OlderTopicSettings)
}
#: The settings of a broker for topics that have none of their own, by Kafka's names of these.
TOPIC_DEFAULTS: Final[Mapping[str, Setting]] = {
    row.broker_name: row for row in TOPIC_SETTINGS.values() if row.broker_name
}


def parse_config(texts: Mapping[str, str], of_broker: Mapping[str, str] = MappingProxyType({})) -> TopicConfig:
    """Validate and parse the settings of a topic; ``of_broker`` has those of topics without their own.

    Raises:
        BrokerError: a setting is unknown or has an invalid value, or two settings contradict each other
            (``INVALID_CONFIG``).
    """
    try:
        config = with_texts(TopicConfig(own={}), {**of_broker, **texts}, TOPIC_SETTINGS, "topics")
    except ConfigError as error:
        raise BrokerError(str(error), code=ErrorCode.INVALID_CONFIG) from error
    least_ms = config.min_compaction_lag_ms
    most_ms = config.max_compaction_lag_ms
    if least_ms > most_ms:
        raise BrokerError(
            f"min.compaction.lag.ms={least_ms} exceeds max.compaction.lag.ms={most_ms}: it must not",
            code=ErrorCode.INVALID_CONFIG,
        )
    difference_ms = config.older.message_timestamp_difference_max_ms
    shown = texts_of(config)
    return evolve(
        config,
        own={name: shown[name] for name in texts},
        of_broker={name: shown[name] for name in of_broker if name not in texts},
        timestamp_before_max_ms=min(config.timestamp_before_max_ms, difference_ms),
        timestamp_after_max_ms=min(config.timestamp_after_max_ms, difference_ms),
    )


def _check_rack(rack: str) -> None:
    if not rack:
        raise ConfigError("rack='': give the broker a rack with a name, or None")


@frozen(kw_only=True)
class OfSingleBroker:
    """Settings of brokers that clients ask for; a single broker has no others."""

    default_replication_factor: int = number("default.replication.factor", 1)
    delete_topic_enable: bool = flag(True)
    min_insync_replicas: int = number("min.insync.replicas", 1)
    offsets_topic_replication_factor: int = number("offsets.topic.replication.factor", 1)
    transaction_state_log_replication_factor: int = number("transaction.state.log.replication.factor", 1)


@frozen
class BrokerConfig:
    """The settings of a broker.

    Raises:
        ConfigError: a value is invalid.
    """

    node_id: int = number("node.id", 0, "", "Number of the broker.")
    auto_create_topics: bool = flag(
        True,
        "Whether a Metadata request for an unknown topic creates it, as by default in Kafka.",
        aliases=("auto_create_topics_enable",),
    )
    default_partitions: int = number(
        "num.partitions", 1, "partitions", "Partition count of topics created without one.", minimum=1
    )
    maintenance_interval_ms: int | None = number(
        "log.retention.check.interval.ms",
        300_000,
        "ms",
        "How often `tick` starts a retention and compaction pass; none = only `maintain` starts one.",
        maximum=LONG_MAX,
        none_text="none",
    )
    serves_damaged: bool = flag(
        False,
        "Whether partitions with damaged records are offline and the others are served; otherwise a broker with "
        "damaged records does not open.",
        aliases=("streams_serves_damaged",),
    )
    fsync: FsyncPolicy = choice(  # noqa: RUF009 - frozen.
        "never", ("never", "commit", "always"), "When files are synced to disk.", aliases=("streams_fsync",)
    )
    is_private: bool = flag(
        False,
        "Whether only this process and its child processes connect to the broker.",
        aliases=("streams_is_private",),
    )
    rack: str | None = text(
        None,
        "Rack or zone of the broker, which clients are told.",
        aliases=("broker_rack",),
        takes_none=True,
        check=_check_rack,
    )
    transaction_max_timeout_ms: int = number(
        "transaction.max.timeout.ms", 900_000, "ms", "Longest timeout that a transaction may ask for.", minimum=1
    )
    transactional_id_expiration_ms: int = number(
        "transactional.id.expiration.ms",
        604_800_000,
        "ms",
        "Time without use that removes a transactional ID.",
        minimum=1,
    )
    of_single: OfSingleBroker = group(OfSingleBroker)  # noqa: RUF009 - frozen.

    def __attrs_post_init__(self) -> None:
        check(self)


class BrokerOptions(TypedDict, total=False):
    """The fields of ``BrokerConfig`` that ``EmbeddedBroker`` accepts as keyword arguments."""

    auto_create_topics: bool
    default_partitions: int
    maintenance_interval_ms: Milliseconds | None
    serves_damaged: bool
    fsync: FsyncPolicy
    is_private: bool
    rack: str | None
    transaction_max_timeout_ms: Milliseconds
    transactional_id_expiration_ms: Milliseconds
