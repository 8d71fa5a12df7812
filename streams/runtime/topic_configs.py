"""Settings of internal topics, as Kafka Streams gives them.

The plan names the topics, ``provisioning`` makes them.  Imports state only.
"""

from streams.state import StoreSpec

# Kafka Streams' own (RepartitionTopicConfig): small segments, for what is purged goes by whole ones.
REPARTITION_CONFIG = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
}


def changelog_config(spec: StoreSpec) -> dict[str, str]:
    """Return the configuration of a store's changelog: compacted, and what its kind and the user add."""
    config = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
    return config | spec.kind.topic_config(spec) | dict(spec.changelog_config)
