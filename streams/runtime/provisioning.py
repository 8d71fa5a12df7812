"""Topics of an application: looked up, made where they are missing, checked where they exist.

Run at the start, and by the group's leader when partition counts have changed.  Imports clients.
"""

from collections.abc import Mapping, Sequence

from attrs import define

from streams.clients.errors import error_for
from streams.clients.network import ANY_NODE, Network
from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.errors import BrokerError, TopologyError
from streams.core.records import TopicPartition
from streams.protocol.messages import (
    CreateTopics,
    CreateTopicsResponse,
    DescribeGroup,
    DescribeGroupResponse,
    ErrorCode,
    FindCoordinator,
    FindCoordinatorResponse,
    LeaveGroup,
    LeaveGroupResponse,
    Metadata,
    MetadataResponse,
    OffsetAndMetadata,
    OffsetFetch,
    OffsetFetchResponse,
    TopicSpec,
)
from streams.protocol.transport import Cluster
from streams.runtime.plan import InternalTopicPlan
from streams.topology.graph import Topology
from streams.topology.subtopologies import sub_topologies


@define(eq=False)
class Provisioner:
    """Makes and checks the topics of one application.

    ``creates_topics`` lets missing source and sink topics be made, with the partitions that their
    declarations name; a cluster of others is left as it is.
    """

    _cluster: Cluster
    _clock: Clock
    _config: StreamsConfig
    _topology: Topology
    _creates_topics: bool

    def known(self) -> dict[str, int]:
        """Return the partition counts of all topics, those declared by the topology made if need be."""
        network = self._network()
        try:
            known = self._counts(network)
            if self._creates_topics and self._create_declared(network, known):
                known = self._counts(network)
            return known
        finally:
            network.close()

    def provide(self, plans: Sequence[InternalTopicPlan], known: Mapping[str, int]) -> None:
        """Create the internal topics that are missing.

        Raises:
            TopologyError: one exists with another number of partitions.
            BrokerError: one cannot be made.
        """
        missing = []
        for plan in plans:
            if plan.name not in known:
                missing.append(TopicSpec(plan.name, plan.partitions, plan.config))
            elif known[plan.name] != plan.partitions:
                raise TopologyError(
                    f"internal topic {plan.name!r} has {known[plan.name]} partitions, but the topology needs "
                    f"{plan.partitions}: the partition count of an input has changed since it was made; "
                    "go back to the old count, or start with a new application id (or state directory)"
                )
        if missing:
            network = self._network()
            try:
                self._create(network, missing)
            finally:
                network.close()

    def committed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of the application's group, as they are now."""
        group_id = self._config.application_id
        network = self._network()
        try:
            found = network.request(ANY_NODE, FindCoordinator(group_id), FindCoordinatorResponse)
            if found.error is not ErrorCode.NONE:
                raise error_for(found.error, f"coordinator of group {group_id!r}")
            response = network.request(found.node_id, OffsetFetch(group_id), OffsetFetchResponse)
            if response.error is not ErrorCode.NONE:
                raise error_for(response.error, f"committed offsets of group {group_id!r}")
            return response.offsets
        finally:
            network.close()

    def remove_members(self) -> None:
        """Let members of an earlier bounded run leave, which was killed before it could say so itself.

        A bounded run has its broker to itself, so whoever is in the group at its start is dead.
        """
        network = self._network()
        try:
            group_id = self._config.application_id
            group = network.request(ANY_NODE, DescribeGroup(group_id), DescribeGroupResponse)
            for member in group.members:
                leave = LeaveGroup(group_id, member.member_id, member.group_instance_id)
                network.request(ANY_NODE, leave, LeaveGroupResponse)
        finally:
            network.close()

    def _network(self) -> Network:
        connection = self._cluster.connect(f"{self._config.application_id}-admin")
        return Network(connection, self._clock, request_timeout_ms=self._config.request_timeout_ms)

    def _counts(self, network: Network) -> dict[str, int]:
        response = network.request(ANY_NODE, Metadata(None), MetadataResponse)
        return {
            topic.name: len(topic.leaders)
            for topic in response.topics
            if topic.error is ErrorCode.NONE and not topic.is_internal
        }

    def _create_declared(self, network: Network, known: Mapping[str, int]) -> bool:
        names: dict[str, None] = {}
        for sub in sub_topologies(self._topology):
            names |= dict.fromkeys((*sub.source_topics, *sub.sink_topics))
        if self._config.errors_dead_letter_queue_topic_name:
            names[self._config.errors_dead_letter_queue_topic_name] = None
        specs = []
        for name in names:
            if name not in known and name not in self._topology.internal_topics:
                declared = self._topology.topics.get(name)
                specs.append(TopicSpec(name, declared.partitions if declared and declared.partitions else -1))
        if specs:
            self._create(network, specs)
        return bool(specs)

    def _create(self, network: Network, specs: Sequence[TopicSpec]) -> None:
        response = network.request(ANY_NODE, CreateTopics(tuple(specs)), CreateTopicsResponse)
        for name, (code, message) in response.errors.items():
            # Another instance that starts at the same time may have been faster.
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise BrokerError(f"topic {name!r} cannot be created: {message or code.name}", code=code)
