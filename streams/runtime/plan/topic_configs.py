"""Topic configurations of internal topics, as in Kafka Streams.

The plan defines the topics, and ``provisioning`` creates them.  The module imports only ``state``.
"""

from streams.state import StoreSpec

# As in Kafka Streams (RepartitionTopicConfig).  Segments are small, since purging can delete only whole segments.
REPARTITION_CONFIG = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
}


def changelog_config(spec: StoreSpec) -> dict[str, str]:
    """Return the topic configuration of a store's changelog.

    It contains the cleanup policy, other settings of the kind of store, and the user's settings, which have precedence.
    """
    config = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
    return config | spec.kind.topic_config(spec) | dict(spec.changelog_config)
