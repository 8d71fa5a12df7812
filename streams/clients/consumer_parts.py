"""What the parts of one consumer share.  Imports core."""

from attrs import frozen

from streams.clients.metadata import MetadataCache
from streams.clients.network import Network
from streams.clients.subscription import SubscriptionState
from streams.core.client_settings import ConsumerSettings
from streams.core.clock import Clock


@frozen(eq=False)
class ConsumerParts:
    """One consumer's network, time, partitions, metadata and settings; ``group_id`` is empty without a group."""

    network: Network
    clock: Clock
    subscription: SubscriptionState
    metadata: MetadataCache
    settings: ConsumerSettings
    group_id: str
