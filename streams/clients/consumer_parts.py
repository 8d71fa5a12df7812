"""State that the modules of one consumer share."""

from attrs import field, frozen

from streams.clients.metadata import MetadataCache
from streams.clients.network import Network
from streams.clients.sensors import ConsumerSensors
from streams.clients.subscription import SubscriptionState
from streams.core.client_settings import ConsumerSettings
from streams.core.clock import Clock
from streams.protocol.transport import Cluster


@frozen(eq=False)
class ConsumerParts:
    """Network, clock, partitions, metadata and settings of one consumer; ``group_id`` is empty without a group."""

    network: Network
    clock: Clock
    subscription: SubscriptionState
    metadata: MetadataCache
    settings: ConsumerSettings
    group_id: str
    sensors: ConsumerSensors = field(factory=ConsumerSensors)

    @classmethod
    def of(cls, broker: Cluster, group_id: str | None, settings: ConsumerSettings, clock: Clock) -> "ConsumerParts":
        """Return the parts of a new consumer, with a connection of its own."""
        if group_id is not None:
            settings.check_membership()
        connection = broker.connect(settings.client_id)
        network = Network(connection, clock, request_timeout_ms=settings.client.request_timeout_ms)
        return cls(network, clock, SubscriptionState(), MetadataCache(), settings, group_id or "")
