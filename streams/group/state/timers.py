"""Deadlines by key, ordered by time.

Moving a deadline later, as each heartbeat does, costs one dict write, because the heap is corrected
only when its top is read.  The caller passes the current time.
"""

import heapq
from collections.abc import Hashable
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from attrs import define, field

Key = TypeVar("Key", bound=Hashable)


@define(eq=False)
class Timers(Generic[Key]):
    """Deadlines per key in milliseconds; equal deadlines are due in the order in which they were set."""

    _deadlines: dict[Key, int] = field(factory=dict)
    _heap: list[tuple[int, int, Key]] = field(factory=list)
    _sequence: int = 0

    def set(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of a key, or move it if the key has one."""
        old = self._deadlines.get(key)
        self._deadlines[key] = deadline_ms
        if old is None or deadline_ms < old:
            self._push(key, deadline_ms)

    def cancel(self, key: Key) -> None:
        """Remove the deadline of a key, if it has one."""
        self._deadlines.pop(key, None)

    def deadline_ms(self, key: Key) -> int | None:
        """Return the deadline of a key in milliseconds, or None if the key has none."""
        return self._deadlines.get(key)

    def next_ms(self) -> int | None:
        """Return the earliest deadline in milliseconds, or None if no deadline is set."""
        heap = self._heap
        while heap:
            noted, _, key = heap[0]
            actual = self._deadlines.get(key)
            if actual == noted:
                return noted
            heapq.heappop(heap)
            # An entry that differs from its key's deadline is outdated: moved if it is earlier, replaced if later.
            if actual is not None and actual > noted:
                self._push(key, actual)
        return None

    def pop_due(self, now_ms: int) -> Key | None:
        """Remove and return the key with the earliest deadline, if it is at or before ``now_ms``, or return None."""
        due = self.next_ms()
        if due is None or due > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._deadlines[key]
        return key

    def _push(self, key: Key, deadline_ms: int) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (deadline_ms, self._sequence, key))


class TimerKind(Enum):
    """The kinds of the coordinator's timers."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"
    #: A member id that was assigned but has not joined.
    PENDING = "pending"
    #: An ephemeral group whose members were removed and have not rejoined.
    VANISH = "vanish"
    #: The session of a member of a consumer or streams group.
    CONSUMER_SESSION = "consumer session"
    #: The time in which a member of such a group must revoke partitions or tasks.
    RECONCILIATION = "reconciliation"
    #: The time for which the first assignment of a streams group waits for more members.
    FIRST_ASSIGNMENT = "first assignment"


class GroupTimer(NamedTuple):
    """A timer of a member, or of the whole group if ``member_id`` is empty."""

    kind: TimerKind
    group_id: str
    member_id: str = ""
