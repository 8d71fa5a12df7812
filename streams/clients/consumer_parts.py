"""State shared by the parts of one consumer.  Imports core."""

from attrs import frozen

from streams.clients.metadata import MetadataCache
from streams.clients.network import Network
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
