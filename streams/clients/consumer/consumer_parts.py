"""State that the modules of one consumer share."""

from collections.abc import Callable

from attrs import define, frozen

from streams.clients.consumer.subscription import SubscriptionState
from streams.clients.metadata import MetadataCache
from streams.clients.network import Network
from streams.clients.sensors import ConsumerSensors
from streams.clients.settings import check_group_id, reset_timestamp
from streams.core.clock import Clock
from streams.core.settings.client_settings import ConsumerSettings
from streams.protocol.transport import Cluster


@define(eq=False)
class OffsetResets:
    """The reset policies of topics: that of the settings, unless ``of_topic`` returns another one."""

    _default: str
    _clock: Clock
    of_topic: Callable[[str], str | None] = lambda topic: None

    def policy(self, topic: str) -> str:
        """Return the policy of a topic."""
        return self.of_topic(topic) or self._default

    def timestamp(self, topic: str) -> int | None:
        """Return the timestamp to look up for a reset of a topic's partitions, or None if a reset is an error."""
        return reset_timestamp(self.policy(topic), self._clock.now_ms())


@frozen(eq=False)
class ConsumerParts:
    """Network, clock, partitions, metadata and settings of one consumer; ``group_id`` is empty without a group."""

    network: Network
    clock: Clock
    subscription: SubscriptionState
    metadata: MetadataCache
    settings: ConsumerSettings
    group_id: str
    sensors: ConsumerSensors
    resets: OffsetResets

    @classmethod
    def of(cls, cluster: Cluster, group_id: str | None, settings: ConsumerSettings, clock: Clock) -> "ConsumerParts":
        """Return the parts of a new consumer, with a connection of its own."""
        if group_id is not None:
            check_group_id(group_id)
            settings.check_membership()
        connection = cluster.connect(settings.client_id)
        network = Network(connection, clock, request_timeout_ms=settings.client.request_timeout_ms)
        resets = OffsetResets(settings.auto_offset_reset, clock)
        state = SubscriptionState()
        metadata = MetadataCache()
        return cls(network, clock, state, metadata, settings, group_id or "", ConsumerSensors(), resets)
