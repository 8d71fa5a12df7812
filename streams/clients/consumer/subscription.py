"""The assigned partitions of a consumer and its position in each.

This module only holds state, which the fetcher and the group session change.
Of the other packages, this module imports only ``core``.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from attrs import Attribute, define, field

from streams.core.blocks.records import TopicPartition


@define(eq=False)
class Changes:
    """Counts the changes that may make a partition fetchable, so that unchanged state is not checked again."""

    count: int = 0


@define(eq=False)
class Confirmation:
    """The monotonic time at which a broker last confirmed the known ends of all partitions of a fetch session."""

    at_ms: int = 0


def _counted(state: "PartitionState", _: "Attribute[Any]", value: Any) -> Any:
    state.changes.count += 1
    return value


@define(eq=False)
class PartitionState:
    """The position of the consumer in one assigned partition.

    ``position`` is the next offset to return, or None while unknown; ``reset_to`` is the target of
    a pending look-up (-2 earliest, -1 latest).  A reassigned partition gets a new state, so that
    responses to earlier requests are ignored.
    """

    changes: Changes = field(factory=Changes)
    position: int | None = field(default=None, on_setattr=_counted)
    reset_to: int | None = None
    is_paused: bool = field(default=False, on_setattr=_counted)
    is_leaving: bool = field(default=False, on_setattr=_counted)
    is_looked_up: bool = False
    known_end: int | None = None
    #: Monotonic time at which ``known_end`` was received, and the fetch session that confirms it from then on.
    _end_told_ms: int | None = None
    _confirmation: Confirmation | None = None
    log_start_offset: int | None = None
    #: Position when this partition was last reported as changed.
    told_at: int | None = None
    #: The replica that the leader has named, and the monotonic time until which it is fetched from (KIP-392).
    read_replica: int | None = None
    read_replica_until_ms: int = 0

    @property
    def is_fetchable(self) -> bool:
        """Whether the partition has a position, and is neither paused nor being revoked."""
        return self.position is not None and not self.is_paused and not self.is_leaving

    @property
    def end_known_ms(self) -> int | None:
        """The monotonic time at which ``known_end`` was received or confirmed, or None before the first fetch."""
        if self._confirmation is None or self._end_told_ms is None:
            return self._end_told_ms
        return max(self._end_told_ms, self._confirmation.at_ms)

    def know_end(self, end: int, now_ms: int, confirmation: Confirmation) -> None:
        """Set the known end, which ``confirmation`` keeps up to date."""
        self.known_end = end
        self._end_told_ms = now_ms
        self._confirmation = confirmation

    def confirm_by(self, confirmation: Confirmation) -> None:
        """Let another fetch session confirm the known end from now on."""
        if self._confirmation is not confirmation:
            self._end_told_ms = self.end_known_ms
            self._confirmation = confirmation

    def release(self, confirmation: Confirmation) -> None:
        """Keep the known end as it is, if a fetch session that leaves this partition out confirmed it until now."""
        if self._confirmation is confirmation:
            self._end_told_ms = self.end_known_ms
            self._confirmation = None

    def take_over(self, other: "PartitionState") -> None:
        """Take over what another state of the partition knows about the log."""
        self.known_end = other.known_end
        self.log_start_offset = other.log_start_offset
        self._end_told_ms = other._end_told_ms
        self._confirmation = other._confirmation

    def seek(self, position: int) -> None:
        """Set the position, and cancel any pending look-up of the position."""
        self.position = position
        self.reset_to = None

    def request_reset(self, to: int) -> None:
        """Request an offset reset; ``to`` is a timestamp as in ListOffsets: -2 for earliest, -1 for latest."""
        self.position = None
        self.reset_to = to


@define(eq=False)
class SubscriptionState:
    """All assigned partitions, in the order of their assignment."""

    partitions: dict[TopicPartition, PartitionState] = field(factory=dict)
    changes: Changes = field(factory=Changes)
    #: Change counts at which all partitions had positions, and at which the topics were computed.
    _placed_at: int = -1
    _topics: tuple[int, frozenset[str]] = (-1, frozenset())

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the assignment; partitions that stay assigned keep their position."""
        old = self.partitions
        self.partitions = {partition: old.get(partition) or PartitionState(self.changes) for partition in partitions}
        self.changes.count += 1

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        for partition in partitions:
            self.partitions.pop(partition, None)
        self.changes.count += 1

    def positions(self) -> dict[TopicPartition, int]:
        """Return the position of each partition whose position is known."""
        return {p: state.position for p, state in self.partitions.items() if state.position is not None}

    def without_position(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """Yield partitions without a position and without a pending look-up."""
        changes = self.changes.count
        if changes == self._placed_at:
            return
        are_placed = True
        for partition, state in self.partitions.items():
            if state.position is None:
                are_placed = False
                if not state.is_looked_up and not state.is_leaving:
                    yield partition, state
        if are_placed:
            self._placed_at = changes

    def topics(self) -> frozenset[str]:
        """Return the topics of the assigned partitions."""
        if self._topics[0] != self.changes.count:
            self._topics = self.changes.count, frozenset(partition.topic for partition in self.partitions)
        return self._topics[1]
