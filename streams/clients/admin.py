"""Administration of topics, groups and offsets; each method waits for the response."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from attrs import evolve, frozen

from streams.clients.admin_requests import AdminRequests
from streams.clients.errors import StatefulGroupError, error_for, raise_first
from streams.clients.internal_topics import internal_topics
from streams.clients.metadata import MetadataCache
from streams.clients.network import Network
from streams.clients.offsets import list_offsets, with_metadata
from streams.clients.tcp import Security, TcpCluster, cluster_of
from streams.core.blocks.records import TopicPartition
from streams.core.clock import Clock, SystemClock
from streams.core.closeable import Closeable
from streams.core.errors import ConfigError, MemberFencedError, OffsetOutOfRangeError
from streams.core.topic import TopicLike, topic_name, topic_names
from streams.group import decode_assignment, decode_subscription
from streams.group.assignment.subscriptions import CONSUMER_PROTOCOL_TYPE
from streams.protocol.admin_messages import (
    ChangedConfigs,
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
    ResourceType,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    CreateGroup,
    DeleteGroup,
    DescribedMember,
    DescribeGroup,
    DescribeGroupResponse,
    LeaveGroup,
    ListGroups,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetFetch,
    ResetOffsets,
    Shift,
)
from streams.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    CreatePartitions,
    CreateTopics,
    DeleteRecords,
    DeleteTopics,
    Metadata,
    MetadataResponse,
    TopicMetadata,
    TopicSpec,
)
from streams.protocol.streams_group_messages import (
    DescribedStreamsMember,
    StreamsGroupDescribe,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeat,
)
from streams.protocol.transport import ANY_NODE, Cluster

#: Special timestamps of ``list_offsets``, in addition to epoch milliseconds.
EARLIEST: Final = EARLIEST_TIMESTAMP
LATEST: Final = LATEST_TIMESTAMP


@frozen
class GroupListing:
    """A listed group; ``state`` is Kafka's name for the group state."""

    group_id: str
    protocol_type: str
    state: str


class Admin(Closeable):
    """Admin client for topics, groups and offsets.  Times are milliseconds.

    Every method raises RequestTimeoutError if no response comes in time.  Until then, transient errors
    (a moved coordinator, a lost connection) are retried.  Creating and deleting topics is not retried, because
    a retry could not distinguish its own success from another client's.

    Args:
        broker: the embedded broker, or another ``Cluster``.
        bootstrap_servers: Kafka brokers as "host:port", instead of ``broker``; ``security`` configures TLS and SASL.

    Raises:
        ConfigError: neither ``broker`` nor ``bootstrap_servers`` is given, or both are.
    """

    def __init__(
        self,
        broker: Cluster | str | None = None,
        *,
        bootstrap_servers: str | Iterable[str] = "",
        security: Security | None = None,
        client_id: str = "admin",
        request_timeout_ms: int = 30_000,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        broker = cluster_of(broker, bootstrap_servers, security, "an admin")
        self._cluster = broker
        clock = clock or SystemClock()
        network = Network(broker.connect(client_id), clock, request_timeout_ms=request_timeout_ms)
        self._requests = AdminRequests(network, clock, request_timeout_ms)
        # Generates request numbers, by which the broker recognizes a repeated request.
        self._rng = rng or Random()

    # --- topics -----------------------------------------------------------------------

    def create_topics(self, topics: Iterable[TopicSpec], *, exist_ok: bool = False) -> None:
        """Create topics.  All topics are attempted before the first error is raised.

        Raises:
            TopicExistsError: a topic already exists, and ``exist_ok`` is not set.
            BrokerError: a name, partition count or configuration is invalid.
        """
        specs = tuple(topics)
        for spec in specs:
            if not isinstance(spec, TopicSpec):
                raise ConfigError(f"create_topics() needs TopicSpec(name, partitions), got {spec!r}")
        response = self._requests.ask_controller(CreateTopics(specs), when_lost=exist_ok)
        for name, (code, detail) in response.errors.items():
            if code is ErrorCode.TOPIC_ALREADY_EXISTS and exist_ok:
                continue
            if code is not ErrorCode.NONE:
                raise error_for(code, f"creation of topic {name!r}", detail)

    def create_partitions(self, counts: Mapping[str, int]) -> None:
        """Increase the partition counts of topics to the given numbers.

        Raises:
            UnknownTopicError: a topic does not exist.
            BrokerError: a count is not higher than the topic's current count.
        """
        counts = {topic_name(topic, "create_partitions()", ConfigError): count for topic, count in counts.items()}
        response = self._requests.ask_controller(CreatePartitions(counts))
        for name, (code, detail) in response.errors.items():
            if code is not ErrorCode.NONE:
                raise error_for(code, f"{counts[name]} partitions for topic {name!r}", detail)

    def delete_topics(self, topics: Iterable[TopicLike]) -> None:
        """Delete topics with their records.

        Raises:
            UnknownTopicError: a topic does not exist.
        """
        response = self._requests.ask_controller(
            DeleteTopics(tuple(topic_names(topics, "delete_topics()", ConfigError)))
        )
        for name, code in response.errors.items():
            if code is not ErrorCode.NONE:
                raise error_for(code, f"deletion of topic {name!r}")

    def describe_topics(self, topics: Iterable[TopicLike]) -> dict[str, TopicMetadata]:
        """Return the partitions, leaders and configuration of topics.

        Raises:
            UnknownTopicError: a topic does not exist.
        """
        names = tuple(topic_names(topics, "describe_topics()", ConfigError))
        descriptions = self._requests.repeated(lambda: self._describe_topics(names))
        if isinstance(self._cluster, TcpCluster):
            configs = self._cluster.topic_configs(names)
            descriptions = {name: evolve(topic, config=configs[name]) for name, topic in descriptions.items()}
        return descriptions

    def _describe_topics(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        by_name = {topic.name: topic for topic in self._metadata(names).topics}
        for name in names:
            code = by_name[name].error if name in by_name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code is not ErrorCode.NONE:
                raise error_for(code, f"description of topic {name!r}")
        return {name: by_name[name] for name in names}

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Return the names of all topics, by default without the broker's internal ones."""
        return sorted(topic.name for topic in self.all_topics() if include_internal or not topic.is_internal)

    def all_topics(self) -> list[TopicMetadata]:
        """Return the metadata of all topics, including the broker's internal ones."""
        metadata = self._requests.repeated(lambda: self._metadata(None))
        return [topic for topic in metadata.topics if topic.error is ErrorCode.NONE]

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below the given offsets (-1 for all records); return the new log start offsets.

        Raises:
            OffsetOutOfRangeError: an offset is beyond the log end.
            UnknownTopicError: a partition does not exist.
        """
        return self._requests.repeated(lambda: self._delete_records(offsets))

    def _delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        metadata = MetadataCache()
        topics = tuple(sorted({partition.topic for partition in offsets}))
        metadata.update(self._metadata(topics), topics)
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for partition, offset in offsets.items():
            node = metadata.leader(partition)
            if node is None:
                raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"deletion of records of {partition}")
            by_node.setdefault(node, {})[partition] = offset
        starts: dict[TopicPartition, int] = {}
        for node, asked in by_node.items():
            response = self._requests.ask(DeleteRecords(asked), node)
            for partition, (code, start) in response.partitions.items():
                if code is not ErrorCode.NONE:
                    raise error_for(code, f"deletion of records of {partition} below {asked[partition]}")
                starts[partition] = start
        return starts

    def list_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after each timestamp (ms), or -1; EARLIEST and LATEST mean log start and end.

        Raises:
            UnknownTopicError: a partition does not exist.
        """
        timed_offsets = list_offsets(self._requests.network, MetadataCache(), times, self._requests.deadline())
        return {partition: offset for partition, (_, offset) in timed_offsets.items()}

    # --- groups -----------------------------------------------------------------------

    def list_groups(self) -> list[GroupListing]:
        """Return a listing of all groups in the cluster."""
        groups = self._requests.repeated(self._list_groups)
        # A Kafka cluster does not return the states in this response.
        listed = (
            GroupListing(group_id, kind, state or self.describe_group(group_id).state)
            for group_id, kind, state, _ in groups
        )
        return sorted(listed, key=lambda group: group.group_id)

    def _list_groups(self) -> list[tuple[str, str, str, str]]:
        groups: list[tuple[str, str, str, str]] = []
        for node in sorted(self._metadata(()).brokers) or [ANY_NODE]:
            response = self._requests.ask(ListGroups(), node)
            if response.error is not ErrorCode.NONE:
                raise error_for(response.error, "list of groups")
            groups += response.groups
        return groups

    def create_group(self, group_id: str, *, ephemeral: bool = False, session_timeout_ms: int | None = None) -> None:
        """Create a group before its first member joins; idempotent for the same settings.

        An ``ephemeral`` group is deleted with its committed offsets when the last member leaves.
        ``session_timeout_ms`` overrides the session timeout that members request, and is kept after they have
        left.  Kafka's own brokers do not support creating groups.

        Raises:
            GroupExistsError: the group exists with other settings, or was created by its members.
            BrokerError: the group id is empty, the session timeout is out of bounds, or the broker is Kafka's own.
        """
        request = CreateGroup(group_id, ephemeral, session_timeout_ms)
        self._requests.ask_group(group_id, request, f"creation of group {group_id!r}")

    def remove_member(self, group_id: str, group_instance_id: str) -> None:
        """Remove a static member from its group before its session expires.

        Raises:
            MemberFencedError: the group does not have this member.
        """
        request = LeaveGroup(group_id, "", group_instance_id)
        self._requests.ask_group(group_id, request, f"removal of {group_instance_id!r} from group {group_id!r}")

    def remove_members(self, group_id: str, is_gone: Callable[[DescribedMember], bool] = lambda _: True) -> None:
        """Remove members from a group before their sessions expire, by default all; those still running rejoin.

        It is not an error if a member has left in the meantime.
        """
        for member in filter(is_gone, self.describe_group(group_id).members):
            request = LeaveGroup(group_id, member.member_id, member.group_instance_id)
            with suppress(MemberFencedError):
                self._requests.ask_group(group_id, request, f"removal of {member.member_id!r} from group {group_id!r}")

    def describe_group(self, group_id: str) -> DescribeGroupResponse:
        """Return the state and members of a group; the state of a group that does not exist is ``Dead``."""
        return self._requests.ask_group(group_id, DescribeGroup(group_id), f"description of group {group_id!r}")

    def describe_streams_group(self, group_id: str) -> StreamsGroupDescribeResponse:
        """Return the state, topology and members of a streams group (KIP-1071).

        Raises:
            BrokerError: there is no streams group of this name, or the broker has none.
        """
        request = StreamsGroupDescribe(group_id)
        return self._requests.ask_group(group_id, request, f"description of streams group {group_id!r}")

    def remove_streams_members(self, group_id: str, is_gone: Callable[[DescribedStreamsMember], bool]) -> None:
        """Have members leave a streams group before their sessions expire; those still running join again.

        The tasks of a static member wait for its successor.  It is not an error if a member has left in the meantime.

        Raises:
            BrokerError: there is no streams group of this name, or the broker has none.
        """
        for member in filter(is_gone, self.describe_streams_group(group_id).members):
            instance = member.group_instance_id
            epoch = LEAVE_EPOCH if instance is None else LEAVE_STATIC_EPOCH
            request = StreamsGroupHeartbeat(group_id, member.member_id, epoch, group_instance_id=instance)
            with suppress(MemberFencedError):
                self._requests.ask_group(group_id, request, f"removal of {member.member_id!r} from group {group_id!r}")

    def delete_group(self, group_id: str, *, force: bool = False) -> None:
        """Delete a group with its committed offsets.

        Raises:
            StatefulGroupError: the group is an application with changelogs, and ``force`` is not set.
            GroupNotEmptyError: the group has members.
            BrokerError: the group does not exist.
        """
        what = f"deletion of group {group_id!r}"
        if not force:
            self._refuse_stateful(group_id, what)
        self._requests.ask_group(group_id, DeleteGroup(group_id), what)

    def committed_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets for ``partitions``, or all; partitions without an offset are absent."""
        request = OffsetFetch(group_id, partitions)
        return dict(self._requests.ask_group(group_id, request, f"committed offsets of group {group_id!r}").offsets)

    def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Set the committed offsets of a group without members; a group that does not exist is created.

        Raises:
            GroupNotEmptyError: the group has members, which would not be notified.
        """
        what = f"offset of group {group_id!r}"
        response = self._requests.ask_group(group_id, OffsetCommit(group_id, with_metadata(offsets)), what)
        for partition, code in response.errors.items():
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                code = ErrorCode.NON_EMPTY_GROUP
            if code is not ErrorCode.NONE:
                raise error_for(code, f"{what} for {partition}")

    def rewind(
        self,
        group_id: str,
        *,
        to: int | None = None,
        shift: int | None = None,
        offsets: Mapping[TopicPartition, int] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        force: bool = False,
    ) -> dict[TopicPartition, int]:
        """Set a group's committed offsets, and return them.

        Exactly one of ``to``, ``shift`` and ``offsets`` is given.  ``to`` is EARLIEST, LATEST or a time in epoch
        milliseconds, which selects the first record at or after that time, or else the log end.  ``shift`` is added
        to each committed offset, within the bounds of the log.  ``offsets`` maps partitions to offsets.
        ``partitions`` limits what ``to`` and ``shift`` change; the default is all partitions of the topics for which
        the group has committed offsets or assigned partitions.

        Members that own any of the partitions are removed from the group in the same step.  Their next heartbeat or
        commit is rejected, ``on_partitions_lost`` is called, and they rejoin and continue from the new offsets.
        Records that ``poll`` returns to these members before they rejoin are returned again.

        On this package's broker the group may have members.  A Kafka cluster cannot change the offsets of a group with
        members: stop the members first.

        The state of an application is not rewound, so records that are read again count twice.  Therefore a group
        with changelogs is rewound only if ``force`` is set.

        Raises:
            ConfigError: not exactly one of ``to``, ``shift`` and ``offsets`` is given.
            StatefulGroupError: the group is an application with changelogs, and ``force`` is not set.
            GroupNotEmptyError: the group has members, on a Kafka cluster.
            OffsetOutOfRangeError: one of ``offsets`` is outside the log; nothing has been changed.
            UnknownTopicError: a partition does not exist.
            BrokerError: the group does not exist.
        """
        if sum(choice is not None for choice in (to, shift, offsets)) != 1:
            raise ConfigError(f"rewind of group {group_id!r}: give exactly one of to=, shift= and offsets=")
        if to is not None and to < EARLIEST:
            raise ConfigError(f"rewind of group {group_id!r} to {to}: use EARLIEST, LATEST or epoch milliseconds")
        if not force:
            self._refuse_stateful(group_id, f"rewind of group {group_id!r}")
        if offsets is not None:
            chosen = list(offsets)
        else:
            chosen = self._partitions_of(group_id) if partitions is None else list(partitions)
        lows = self.list_offsets(dict.fromkeys(chosen, EARLIEST))
        highs = self.list_offsets(dict.fromkeys(chosen, LATEST))
        targets: dict[TopicPartition, int | Shift] = {}
        if offsets is not None:
            for partition, offset in offsets.items():
                if not lows[partition] <= offset <= highs[partition]:
                    raise OffsetOutOfRangeError(
                        f"rewind of group {group_id!r}: {partition} has offsets {lows[partition]} to "
                        f"{highs[partition]}, not {offset}; choose one of these",
                        code=ErrorCode.OFFSET_OUT_OF_RANGE,
                    )
                targets[partition] = offset
        elif to is not None:
            starts = self.list_offsets(dict.fromkeys(chosen, to))
            targets.update({p: highs[p] if offset < 0 else offset for p, offset in starts.items()})
        elif shift is not None:
            targets.update({p: Shift(shift, lows[p], highs[p]) for p in chosen})
        if isinstance(self._cluster, TcpCluster):
            return self._rewind_stopped(group_id, targets)
        request = ResetOffsets(group_id, targets, self._rng.getrandbits(62) + 1)
        return dict(self._requests.ask_group(group_id, request, f"rewind of group {group_id!r}").offsets)

    def _refuse_stateful(self, group_id: str, what: str) -> None:
        """Raise an error if the group is an application with state, because its state would not be rewound.

        Raises:
            StatefulGroupError: the application has changelogs.
        """
        topics = self.list_topics()
        if not any(topic.store is not None for topic in internal_topics(group_id, topics, ())):
            return
        internal = internal_topics(group_id, topics, [group.group_id for group in self.list_groups()])
        changelogs = tuple(topic.name for topic in internal if topic.store is not None)
        if changelogs:
            raise StatefulGroupError(
                f"{what}: it is an application with state ({', '.join(changelogs)}), which stays as it is when only "
                "offsets move: what is read again would count twice, what is skipped would be missing.  "
                f"To recompute everything, stop the application and use `streams reset {group_id}`; to move the "
                "offsets alone, give force (`--force`)",
                group_id,
                changelogs,
            )

    def _rewind_stopped(
        self, group_id: str, targets: Mapping[TopicPartition, int | Shift]
    ) -> dict[TopicPartition, int]:
        """Rewind a group without members, using only requests of the Kafka protocol."""
        described = self.describe_group(group_id)
        if described.members:
            raise error_for(
                ErrorCode.NON_EMPTY_GROUP,
                f"rewind of group {group_id!r}",
                f"it has {len(described.members)} members, and only the embedded broker in this process can move "
                "offsets under them",
            )
        committed = self.committed_offsets(group_id)
        if described.state == "Dead" and not committed:
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"rewind of group {group_id!r}")
        offsets: dict[TopicPartition, int] = {}
        for partition, target in targets.items():
            if isinstance(target, Shift):
                position = committed.get(partition)
                moved = target.lowest if position is None else position.offset + target.by
                offsets[partition] = min(max(moved, target.lowest), target.highest)
            else:
                offsets[partition] = target
        if offsets:
            self.alter_offsets(group_id, offsets)
        return offsets

    def _partitions_of(self, group_id: str) -> list[TopicPartition]:
        """Return all partitions of the topics that a group has committed or been assigned."""
        topics = {partition.topic for partition in self.committed_offsets(group_id)}
        described = self.describe_group(group_id)
        if described.protocol_type == CONSUMER_PROTOCOL_TYPE:
            for member in described.members:
                topics.update(partition.topic for partition in decode_assignment(member.assignment).partitions)
                if member.metadata:
                    topics.update(decode_subscription(member.metadata).topics)
        if not topics:
            return []
        existing = self._requests.repeated(lambda: self._metadata(tuple(sorted(topics)))).topics
        return [TopicPartition(topic.name, number) for topic in existing for number in range(len(topic.leaders))]

    def alter_group_configs(self, group_id: str, configs: Mapping[str, str | None]) -> None:
        """Set the broker's settings of a group, such as ``streams.num.standby.replicas``; None restores the default."""
        kinds = ConfigOperation.SET, ConfigOperation.DELETE
        changes = [ConfigChange(name, kinds[value is None], value) for name, value in configs.items()]
        request = IncrementalAlterConfigs([ChangedConfigs(ResourceType.GROUP, group_id, changes)])
        responses = self._requests.repeated(lambda: self._requests.ask(request)).responses
        raise_first({one.resource_name: (one.error, one.message) for one in responses}, "settings of group")

    # --- closing ----------------------------------------------------------------------

    def close(self) -> None:
        """Close the client; closing again has no effect."""
        self._requests.close()

    # --- inside -----------------------------------------------------------------------

    def _metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        return self._requests.ask(Metadata(topics, allow_auto_topic_creation=False))


__all__ = ["EARLIEST", "LATEST", "Admin", "GroupListing"]
