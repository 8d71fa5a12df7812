"""State that the modules of one share consumer share."""

from attrs import field, frozen

from streams.clients.metadata import MetadataCache
from streams.clients.network import Network
from streams.clients.sensors import ShareSensors
from streams.core.client_settings import ShareConsumerSettings
from streams.core.clock import Clock, Deadline
from streams.protocol.transport import Cluster


@frozen(eq=False)
class ShareParts:
    """Network, clock, metadata and settings of one share consumer."""

    network: Network
    clock: Clock
    metadata: MetadataCache
    settings: ShareConsumerSettings
    group_id: str
    sensors: ShareSensors = field(factory=ShareSensors)

    @classmethod
    def of(cls, broker: Cluster, group_id: str, settings: ShareConsumerSettings, clock: Clock) -> "ShareParts":
        """Return the parts of a new share consumer, with a connection of its own."""
        connection = broker.connect(settings.client_id)
        network = Network(connection, clock, request_timeout_ms=settings.client.request_timeout_ms)
        return cls(network, clock, MetadataCache(), settings, group_id)

    def deadline(self, timeout_ms: int | None) -> Deadline:
        """Return a deadline from now on, by default after ``default_api_timeout_ms``."""
        timeout_ms = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return Deadline(self.clock, self.clock.monotonic_ms() + timeout_ms)
