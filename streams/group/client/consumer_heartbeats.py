"""What the member of a consumer group says in its heartbeats, and how it moves to its assignment (KIP-848).

The coordinator assigns partitions by topic ID; the names come from the metadata.
This module performs no I/O; of the other packages, it imports only ``core`` and ``protocol``.
"""

from collections.abc import Mapping
from typing import Protocol

from attrs import define, field

from streams.core.blocks.records import TopicPartition
from streams.group.client.assignment_by_id import AssignmentById, NamesById
from streams.group.client.epoch_member import GroupHeartbeatResponse
from streams.group.client.member import Action, MemberConfig
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse

_ADVICE: Mapping[ErrorCode, str] = {
    ErrorCode.UNSUPPORTED_VERSION: "these groups need Kafka 4.0 or later; or set group_protocol=classic",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group has members of another kind: stop them first, or use another group id",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the broker takes the syntax of RE2; give another SubscriptionPattern",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "have the broker allow this user to read the group (ACL)",
}


class Subscribed(Protocol):
    """The subscription of a consumer."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics."""
        ...

    @property
    def topic_regex(self) -> str:
        """What the coordinator matches with the names of topics, or ""."""
        ...


@define(eq=False)
class ConsumerHeartbeats:
    """The subscription and assignment of one consumer.

    - ``names_by_id``: returns the names of topics by ID; while it lacks one of the assigned topics,
      ``needs_metadata`` is True, and the partitions of that topic wait.
    - ``rack_id``, ``server_assignor``: the rack of the consumer, and the assignor that it asks for, or None.
    """

    _config: MemberConfig
    _subscribed: Subscribed
    _names_by_id: NamesById
    _rack_id: str | None = field(default=None, kw_only=True)
    _server_assignor: str | None = field(default=None, kw_only=True)
    _assignment: AssignmentById = field(init=False)
    #: Whether the coordinator has an expression of this member.
    _has_regex: bool = field(default=False, init=False)
    _reported: frozenset[TopicPartition] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._assignment = AssignmentById(self._names_by_id)

    @property
    def needs_metadata(self) -> bool:
        return self._assignment.needs_metadata

    def heartbeat(self, member_id: str, epoch: int, *, is_full: bool) -> ConsumerGroupHeartbeat:
        config = self._config
        owned = frozenset(self._assignment.owned)
        must_report = is_full or owned != self._reported
        self._reported = owned
        by_id: dict[bytes, list[int]] = {}
        for topic, number in sorted(owned):
            by_id.setdefault(self._assignment.ids[topic], []).append(number)
        topic_regex = self._subscribed.topic_regex
        # An empty one replaces that of an earlier subscription; brokers before Kafka 4.0 know none.
        must_tell = is_full and (topic_regex or self._has_regex)
        self._has_regex = self._has_regex or bool(topic_regex)
        return ConsumerGroupHeartbeat(
            config.group_id,
            member_id,
            epoch,
            config.group_instance_id,
            self._rack_id if is_full else None,
            config.max_poll_interval_ms if is_full else -1,
            self._subscribed.topics if is_full else None,
            topic_regex if must_tell else None,
            self._server_assignor if is_full else None,
            by_id if must_report else None,
            config.client_id,
        )

    def bare(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeat:
        config = self._config
        return ConsumerGroupHeartbeat(
            config.group_id, member_id, epoch, config.group_instance_id, client_id=config.client_id
        )

    def advice(self, error: ErrorCode) -> str:
        return _ADVICE.get(error, "")

    def receive(self, response: GroupHeartbeatResponse) -> None:
        """Store the assignment of a response, if it has one."""
        if isinstance(response, ConsumerGroupHeartbeatResponse):
            self._assignment.receive(response.assignment)

    def renew(self) -> None:
        """Do nothing, because the coordinator knows the partition counts."""

    def move(self, now_ms: int) -> list[Action]:
        """Move to the assignment, as far as the names of its topics are known."""
        return self._assignment.move()

    def lose(self) -> list[Action]:
        """Forget the assignment, because the member was removed from its group."""
        self._reported = None
        return self._assignment.lose()

    def leaving(self) -> list[Action]:
        """Revoke all partitions, because the member is leaving the group."""
        return self._assignment.leaving()
