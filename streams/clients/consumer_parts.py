"""State that the modules of one consumer share."""

from collections.abc import Callable, Mapping

from attrs import frozen

from streams.clients.metadata import MetadataCache
from streams.clients.metrics_push import metrics_push
from streams.clients.network import Network
from streams.clients.sensors import ConsumerSensors, ShareSensors
from streams.clients.settings import check_group_id
from streams.clients.subscription import SubscriptionState
from streams.core.client_settings import ClientSettings, ConsumerSettings
from streams.core.clock import Clock
from streams.protocol.transport import Cluster


def network_of_reader(
    broker: Cluster,
    client_id: str,
    clock: Clock,
    settings: ClientSettings,
    sensors: ConsumerSensors | ShareSensors,
    labels: Callable[[], Mapping[str, str]],
) -> Network:
    """Return the connection of a consumer or share consumer, which pushes what its sensors record (KIP-714).

    ``labels`` describes the client; those that are "" are left out.
    """

    def given() -> dict[str, str]:
        return {name: text for name, text in labels().items() if text}

    push = metrics_push(client_id, clock, settings, given, lambda: sensors.source(client_id, clock))
    connection = broker.connect(client_id)
    return Network(connection, clock, request_timeout_ms=settings.request_timeout_ms, metrics_push=push)


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
            check_group_id(group_id)
            settings.check_membership()
        sensors = ConsumerSensors()

        def labels() -> dict[str, str]:
            return {
                "group_id": group_id or "",
                "group_instance_id": settings.group_instance_id,
                "group_member_id": member_id(),
                "client_rack": settings.client_rack,
            }

        network = network_of_reader(broker, settings.client_id, clock, settings.client, sensors, labels)
        return cls(network, clock, SubscriptionState(), MetadataCache(), settings, group_id or "", sensors)
