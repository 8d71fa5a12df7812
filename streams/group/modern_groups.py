"""Groups whose coordinator assigns the work: consumer (KIP-848) and streams groups (KIP-1071).

This is a part of ``coordinator``, which has the classic groups: a state machine without I/O.
"""

from collections.abc import Callable, Iterator, Set
from random import Random
from typing import Any, Protocol, TypeAlias

from attrs import frozen

from streams.core.blocks.records import TopicPartition
from streams.group.administration import describe_consumers
from streams.group.consumer_group import ConsumerGroup, ConsumerGroupMember
from streams.group.consumer_groups import ConsumerGroups
from streams.group.registry import Groups
from streams.group.states import Group, ModernGroup
from streams.group.streams_group import StreamsGroupMember
from streams.group.streams_groups import StreamsGroups
from streams.group.streams_views import describe_streams
from streams.group.timers import GroupTimer, Timers
from streams.group.topic_directory import NoTopics, TopicDirectory
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import ConsumerGroupDescribe, ConsumerGroupHeartbeat, OffsetCommit, OffsetFetch
from streams.protocol.messages import TxnOffsetCommit
from streams.protocol.request import Response
from streams.protocol.streams_group_messages import (
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
)

#: A member of such a group.
ModernMember: TypeAlias = ConsumerGroupMember | StreamsGroupMember
#: A request that only such groups have.
ModernRequest: TypeAlias = ConsumerGroupHeartbeat | ConsumerGroupDescribe | StreamsGroupHeartbeat | StreamsGroupDescribe


class _Kind(Protocol):
    """What each kind of groups does with their members."""

    def remove(self, shell: Group, member: Any) -> None: ...

    def set_timers(self, group_id: str, before: Any, member: Any, now_ms: int) -> None: ...


@frozen(eq=False)
class ModernGroups:
    """The consumer and streams groups of one broker."""

    groups: Groups
    consumers: ConsumerGroups
    streams: StreamsGroups

    @classmethod
    def of(
        cls, groups: Groups, timers: Timers[GroupTimer], rng: Random, topics: TopicDirectory | None
    ) -> "ModernGroups":
        """Return them over all groups of a broker, and the topics that it assigns."""
        directory = topics or NoTopics()
        consumers = ConsumerGroups(groups.configs, rng, groups, timers, directory)
        streams = StreamsGroups(groups.configs, groups, timers, directory)
        return cls(groups, consumers, streams)

    def handle(self, request: ModernRequest, now_ms: int) -> Response:
        """Return the response to a request."""
        match request:
            case ConsumerGroupHeartbeat():
                return self.consumers.heartbeat(request, now_ms)
            case ConsumerGroupDescribe():
                return describe_consumers(self.groups, request.group_id)
            case StreamsGroupHeartbeat():
                return self.streams.heartbeat(request, now_ms)
            case StreamsGroupDescribe():
                return describe_streams(self.groups.get(request.group_id), request)

    def expire(self, shell: Group, timer: GroupTimer, now_ms: int) -> None:
        """Process a timer of a member, or of a group."""
        if shell.consumer is not None:
            self.consumers.expire(shell, timer)
        elif shell.streams is not None:
            self.streams.expire(shell, timer, now_ms)

    def remove_members(self, is_gone: Callable[[ModernMember], bool]) -> None:
        """Remove the members for which ``is_gone`` is True from all groups."""
        for shell, kind, members in self._all():
            for member in filter(is_gone, members):
                kind.remove(shell, member)

    def start_sessions(self, now_ms: int) -> None:
        """Start the sessions of all members that were loaded from the log."""
        for shell, kind, members in self._all():
            for member in members:
                kind.set_timers(shell.group_id, member, member, now_ms)

    def _all(self) -> Iterator[tuple[Group, _Kind, list[ModernMember]]]:
        """Yield each group, what its kind does with members, and its present members."""
        for shell in self.groups:
            if shell.modern is not None:
                yield shell, self._kind_of(shell), list(shell.modern.members.values())

    def _kind_of(self, shell: Group) -> _Kind:
        return self.streams if shell.consumer is None else self.consumers

    def check_fetch(self, request: OffsetFetch) -> ErrorCode:
        """Return the error code for the member ID and epoch with which offsets are fetched, or NONE."""
        shell = self.groups.get(request.group_id)
        if shell is None or shell.modern is None or request.member_id is None:
            return ErrorCode.NONE
        member = shell.modern.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member.epoch == request.member_epoch else ErrorCode.STALE_MEMBER_EPOCH

    def check_commit(self, group: ModernGroup, request: OffsetCommit | TxnOffsetCommit) -> ErrorCode:
        """Return the error code for the member ID and epoch with which offsets are committed, or NONE."""
        if isinstance(group, ConsumerGroup):
            return self.consumers.check_commit(group, request)
        return self.streams.check_commit(group, request)

    def remove_owners(self, shell: Group, partitions: Set[TopicPartition]) -> None:
        """Remove the members that own any of ``partitions``."""
        self.consumers.remove_owners(shell, partitions)
        self.streams.remove_owners(shell, partitions)
