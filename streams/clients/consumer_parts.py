"""State that the modules of one consumer share."""

from collections.abc import Callable

from attrs import frozen

from streams.clients.metadata import MetadataCache
from streams.clients.metrics_push import metrics_push
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
    sensors: ConsumerSensors

    @classmethod
    def of(
        cls,
        broker: Cluster,
        group_id: str | None,
        settings: ConsumerSettings,
        clock: Clock,
        member_id: Callable[[], str],
    ) -> "ConsumerParts":
        """Return the parts of a new consumer, with a connection of its own; ``member_id`` returns its current ID."""
        if group_id is not None:
            settings.check_membership()
        sensors, client_id = ConsumerSensors(), settings.client_id

        def labels() -> dict[str, str]:
            found = {
                "group_id": group_id or "",
                "group_instance_id": settings.group_instance_id,
                "group_member_id": member_id(),
                "client_rack": settings.client_rack,
            }
            return {name: text for name, text in found.items() if text}

        push = metrics_push(client_id, clock, settings.client, labels, lambda: sensors.source(client_id, clock))
        network = Network(
            broker.connect(client_id),
            clock,
            request_timeout_ms=settings.client.request_timeout_ms,
            metrics_push=push,
        )
        return cls(network, clock, SubscriptionState(), MetadataCache(), settings, group_id or "", sensors)
