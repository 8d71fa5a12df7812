"""The old versions of one key in one segment of a versioned store, and their serialization.

The layout is Kafka Streams' (KIP-889): next timestamp, min timestamp, then for each version, newest
first, its timestamp and the size of its value (-1 for a tombstone), then the values, oldest first.
A segment whose two timestamps are equal holds one tombstone only ("degenerate").  Pure: imports no
other module of the package.
"""

from struct import Struct

from attrs import define

_head = Struct(">qq")
_entry = Struct(">qi")


@define(eq=False)
class Versions:
    """Versions, newest first, each valid until the next newer one; the newest until ``next_ms``."""

    next_ms: int
    #: [valid_from_ms, value], newest first; never empty.
    rows: list[tuple[int, bytes | None]]

    @property
    def min_ms(self) -> int:
        """The start of the oldest version's validity."""
        return self.rows[-1][0]

    @property
    def is_degenerate(self) -> bool:
        """Whether the segment has only a tombstone that marks a time."""
        return self.next_ms == self.rows[-1][0]

    @classmethod
    def read(cls, data: bytes) -> "Versions":
        """Read the versions of a segment's value."""
        next_ms, min_ms = _head.unpack_from(data)
        rows: list[tuple[int, bytes | None]] = []
        place, end = _head.size, len(data)
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
        """Return the bytes of the segment's value."""
        parts = [_head.pack(self.next_ms, self.min_ms)]
        parts.extend(_entry.pack(from_ms, -1 if value is None else len(value)) for from_ms, value in self.rows)
        parts.extend(value for _, value in reversed(self.rows) if value is not None)
        return b"".join(parts)

    def find(self, time_ms: int) -> tuple[int, int, int, bytes | None]:
        """Return (index, valid_from, valid_to, value) of the version valid at a time between min and next."""
        valid_to = self.next_ms
        for index, (from_ms, value) in enumerate(self.rows):
            if from_ms <= time_ms:
                return index, from_ms, valid_to, value
            valid_to = from_ms
        raise AssertionError("the time is before the segment's oldest version")

    def insert_as_latest(self, from_ms: int, to_ms: int, value: bytes | None) -> None:
        """Add the newest version; a gap before it becomes a tombstone."""
        if from_ms < self.next_ms:
            # Left by a write that a crash interrupted.
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
        """Add a version before the oldest, valid until that one."""
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
    """Return a segment of one version."""
    return Versions(to_ms, [(from_ms, value)])
