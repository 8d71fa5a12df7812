"""Settings of internal topics, as Kafka Streams gives them.

The plan names the topics, ``provisioning`` makes them.  Imports state only.
"""

from streams.state.specs import StoreKind, StoreSpec

#: One day: what Kafka Streams keeps of a windowed changelog beyond its store's retention.
_CHANGELOG_ADDITIONAL_MS = 86_400_000
#: Kafka's longest time: what a topic keeps for ever.
_LONGEST_MS = (1 << 63) - 1
# Kafka Streams' own (RepartitionTopicConfig): small segments, for what is purged goes by whole ones.
REPARTITION_CONFIG = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
}


def changelog_config(spec: StoreSpec) -> dict[str, str]:
    """Return the configuration of a store's changelog: compacted, windows also deleted by age."""
    config = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
    if spec.kind in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION):
        config["cleanup.policy"] = "compact,delete"
        config["retention.ms"] = str(min(spec.retention_ms + _CHANGELOG_ADDITIONAL_MS, _LONGEST_MS))
    elif spec.kind is StoreKind.VERSIONED:
        config["min.compaction.lag.ms"] = str(min(spec.history_ms + _CHANGELOG_ADDITIONAL_MS, _LONGEST_MS))
    return config | dict(spec.changelog_config)
