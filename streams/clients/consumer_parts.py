"""State that the modules of one consumer share."""

from collections.abc import Callable, Mapping

from attrs import define, frozen

from streams.clients.metadata import MetadataCache
from streams.clients.metrics_push import metrics_push
from streams.clients.network import Network
from streams.clients.sensors import ConsumerSensors, ShareSensors
from streams.clients.settings import check_group_id, reset_timestamp
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
        resets = OffsetResets(settings.auto_offset_reset, clock)
        return cls(network, clock, SubscriptionState(), MetadataCache(), settings, group_id or "", sensors, resets)
