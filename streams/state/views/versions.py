"""The old versions of one key in one segment of a versioned store, and their serialization.

The layout is the same as in Kafka Streams (KIP-889): the next timestamp, the min timestamp, the timestamp and
value size (-1 for a tombstone) of each version, newest first, and finally the values, oldest first. A segment
whose next and min timestamps are equal contains only one tombstone and is called degenerate. This module
imports no other module of the package.
"""

from struct import Struct

from attrs import define

_head = Struct(">qq")
_entry = Struct(">qi")


@define(eq=False)
class Versions:
    """Versions of a key, newest first; each is valid until the next newer one starts, the newest until ``next_ms``."""

    next_ms: int
    #: [valid_from_ms, value], newest first; never empty.
    rows: list[tuple[int, bytes | None]]

    @property
    def min_ms(self) -> int:
        """The time from which the oldest version is valid."""
        return self.rows[-1][0]

    @property
    def is_degenerate(self) -> bool:
        """Whether the segment contains only a tombstone that marks a time."""
        return self.next_ms == self.rows[-1][0]

    @classmethod
    def read(cls, data: bytes) -> "Versions":
        """Decode the versions from the stored value of a segment."""
        next_ms, min_ms = _head.unpack_from(data)
        rows: list[tuple[int, bytes | None]] = []
        place = _head.size
        end = len(data)
        while True:
            from_ms, size = _entry.unpack_from(data, place)
            place += _entry.size
            if size < 0:
                rows.append((from_ms, None))
            else:
                rows.append((from_ms, data[end - size : end]))
                end -= size
            if from_ms == min_ms:
                return cls(next_ms, rows)

    def write(self) -> bytes:
        """Encode the versions as the stored value of a segment."""
        parts = [_head.pack(self.next_ms, self.min_ms)]
        parts.extend(_entry.pack(from_ms, -1 if value is None else len(value)) for from_ms, value in self.rows)
        parts.extend(value for _, value in reversed(self.rows) if value is not None)
        return b"".join(parts)

    def find(self, time_ms: int) -> tuple[int, int, int, bytes | None]:
        """Return (index, valid_from, valid_to, value) of the version at a time between ``min_ms`` and ``next_ms``."""
        valid_to = self.next_ms
        for index, (from_ms, value) in enumerate(self.rows):
            if from_ms <= time_ms:
                return index, from_ms, valid_to, value
            valid_to = from_ms
        raise AssertionError("the time is before the segment's oldest version")

    def insert_as_latest(self, from_ms: int, to_ms: int, value: bytes | None) -> None:
        """Add the newest version; a gap before it becomes a tombstone."""
        if from_ms < self.next_ms:
            # A write that was interrupted by a crash left this version.
            self._truncate(from_ms)
        if self.next_ms == from_ms:
            if self.is_degenerate:
                self.rows = [(from_ms, value)]
            else:
                self.rows.insert(0, (from_ms, value))
        elif self.is_degenerate:
            self.rows = [(from_ms, value), (self.next_ms, None)]
        else:
            self.rows[:0] = [(from_ms, value), (self.next_ms, None)]
        self.next_ms = to_ms

    def insert_as_earliest(self, from_ms: int, value: bytes | None) -> None:
        """Add a version before the oldest version, valid until the oldest version starts."""
        if self.is_degenerate:
            self.rows = [(from_ms, value)]
        else:
            self.rows.append((from_ms, value))

    def _truncate(self, time_ms: int) -> None:
        if time_ms <= self.min_ms:
            self.next_ms = time_ms
            self.rows = [(time_ms, None)]
            return
        self.rows = [row for row in self.rows if row[0] < time_ms]
        self.next_ms = time_ms


def one_version(value: bytes | None, from_ms: int, to_ms: int) -> Versions:
    """Return the versions of a segment that has a single version."""
    return Versions(to_ms, [(from_ms, value)])
