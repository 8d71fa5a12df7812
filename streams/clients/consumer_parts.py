"""State that the modules of one consumer share."""

from attrs import field, frozen

from streams.clients.metadata import MetadataCache
from streams.clients.network import Network
from streams.clients.sensors import ConsumerSensors
from streams.clients.subscription import SubscriptionState
from streams.core.client_settings import ConsumerSettings
from streams.core.clock import Clock


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
