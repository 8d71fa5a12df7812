"""Records of target assignments in the ``__consumer_offsets`` log, of groups whose members are assigned partitions.

Those of consumer groups (KIP-848) and of share groups (KIP-932) differ in their numbers only.  This module performs no
I/O.
"""

from typing import Final

from attrs import field, frozen

from streams.group.consumer_group import ConsumerGroup, Places
from streams.group.record_coding import decoded, encoded, key_of, places_of, rows_of
from streams.group.share_group import ShareGroup
from streams.protocol.wire import INT32, UUID, Field, Message, array

#: The fields of a row of partitions, by topic ID.
PARTITIONS: Final = (Field("topic_id", UUID), array("partitions", INT32))


@frozen
class TargetRecords:
    """The records of the target assignments of one kind of group: ``group`` and ``member`` are their numbers."""

    kind: str
    group: int
    member: int
    _epoch: Message = field(init=False)
    _assignment: Message = field(init=False)

    @_epoch.default
    def _epoch_value(self) -> Message:
        return Message(f"{self.kind}TargetAssignmentMetadataValue", 0, (Field("assignment_epoch", INT32),))

    @_assignment.default
    def _assignment_value(self) -> Message:
        return Message(f"{self.kind}TargetAssignmentMemberValue", 0, (array("topic_partitions", *PARTITIONS),))

    def of_group(self, group_id: str, assignment_epoch: int) -> tuple[bytes, bytes]:
        """Return the record of the epoch of a group's target assignment."""
        return key_of(self.group, group_id), encoded(self._epoch, {"assignment_epoch": assignment_epoch})

    def of_member(self, group_id: str, member_id: str, target: Places) -> tuple[bytes, bytes]:
        """Return the record of a member's target assignment."""
        fields = {"topic_partitions": rows_of(target)}
        return key_of(self.member, group_id, member_id), encoded(self._assignment, fields)

    def load(self, group: ConsumerGroup | ShareGroup, version: int, member_id: str, value: bytes | None) -> bool:
        """Apply a record to the state of a group; return whether it is one of these."""
        if version == self.group:
            group.assignment_epoch = 0 if value is None else decoded(self._epoch, value)["assignment_epoch"]
        elif version != self.member:
            return False
        elif value is None:
            group.target.pop(member_id, None)
        else:
            group.target[member_id] = places_of(decoded(self._assignment, value)["topic_partitions"])
        return True
