"""What the member of a share group says in its heartbeats, and how it moves to its assignment (KIP-932).

Several members may have the same partition, so nothing is confirmed: a member uses its assignment at once.
This module performs no I/O; of the other packages, it imports only ``core`` and ``protocol``.
"""

from collections.abc import Mapping

from attrs import define, field

from streams.group.assignment_by_id import AssignmentById, NamesById
from streams.group.epoch_member import GroupHeartbeatResponse
from streams.group.member import Action, MemberConfig
from streams.protocol.error_codes import ErrorCode
from streams.protocol.share_group_messages import ShareGroupHeartbeat, ShareGroupHeartbeatResponse

_ADVICE: Mapping[ErrorCode, str] = {
    ErrorCode.UNSUPPORTED_VERSION: "share groups need Kafka 4.2 or later, with the feature share.version=1",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group has members of another kind; use another group id",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "have the broker allow this user to read the group (ACL)",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "have the broker allow this user to describe the topics (ACL)",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "stop another member, or raise group.share.max.size of the broker",
}


@define(eq=False)
class ShareHeartbeats:
    """The subscription and assignment of one share consumer; ``topics`` are the names of the subscribed topics."""

    _config: MemberConfig
    _names_by_id: NamesById
    _rack_id: str | None = None
    topics: tuple[str, ...] = field(default=(), init=False)
    _assignment: AssignmentById = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._assignment = AssignmentById(self._names_by_id)

    @property
    def needs_metadata(self) -> bool:
        """Whether an assignment waits for metadata of its topics."""
        return self._assignment.needs_metadata

    def heartbeat(self, member_id: str, epoch: int, *, is_full: bool) -> ShareGroupHeartbeat:
        """Return a heartbeat with what has changed, or with everything if an earlier one may have been lost."""
        config = self._config
        rack_id, topics = (self._rack_id, self.topics) if is_full else (None, None)
        return ShareGroupHeartbeat(config.group_id, member_id, epoch, rack_id, topics, config.client_id)

    def bare(self, member_id: str, epoch: int) -> ShareGroupHeartbeat:
        """Return a heartbeat that says nothing but that the member lives, or leaves."""
        return ShareGroupHeartbeat(self._config.group_id, member_id, epoch, client_id=self._config.client_id)

    def advice(self, error: ErrorCode) -> str:
        """Return what to do about a rejected heartbeat, or "" if only the broker knows."""
        return _ADVICE.get(error, "")

    def receive(self, response: GroupHeartbeatResponse) -> None:
        """Store the assignment of a response, if it has one."""
        if isinstance(response, ShareGroupHeartbeatResponse):
            self._assignment.receive(response.assignment)

    def renew(self) -> None:
        """Do nothing, because the coordinator knows the partition counts."""

    def move(self, now_ms: int) -> list[Action]:
        """Move to the assignment, as far as the names of its topics are known."""
        return self._assignment.move()

    def lose(self) -> list[Action]:
        """Forget the assignment, because the member was removed from its group."""
        return self._assignment.lose()

    def leaving(self) -> list[Action]:
        """Give up all partitions, because the member is leaving the group."""
        return self._assignment.leaving()
