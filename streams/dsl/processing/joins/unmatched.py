"""Unmatched records of a left or outer stream-stream join.

One store per join has the unmatched records of both sides until their window has closed.  Keys and values have the
bytes of Kafka Streams.  A store key consists of the record time (8 bytes), the side (0 right, 1 left) and the key bytes
(``TimestampedKeyAndJoinSide``).  A store value is a list (``ListValueStore``): a byte 1, the number of records, and for
each, in the order of arrival, its length and the side and value bytes (``LeftOrRightValue``).  An index of the keys per
side, built when the task opens the store, avoids scans for records that are not due.
"""

from collections.abc import Callable
from struct import Struct, error
from typing import Any

from attrs import define, field
from sortedcontainers import SortedList

from streams.core.blocks.marks import KafkaFormat, unmarked
from streams.core.blocks.records import NO_TIMESTAMP
from streams.core.errors import SerializationError
from streams.core.serdes.serdes import BYTES, Serde
from streams.dsl.processing.portable import portable
from streams.state import KEY_VALUE, StoreSpec
from streams.topology import NodeStores, StreamTime

_RIGHT = 0
_LEFT = 1
_HEAD = Struct(">qB")
#: The kind of the list, with a length in front of each entry, and the number of entries.
_LIST = Struct(">bi")
_SIZED = 1
#: Length of an entry, which includes the side, and the side.
_ENTRY = Struct(">iB")


def _is_list(data: bytes) -> bool:
    """Return whether bytes are a list of values of one side."""
    try:
        kind, count = _LIST.unpack_from(data)
        place = _LIST.size
        sides = set()
        for _ in range(count):
            size, side = _ENTRY.unpack_from(data, place)
            sides.add(side)
            place += size + _ENTRY.size - 1
            if size < 1 or place > len(data):
                return False
    except error:
        return False
    return kind == _SIZED and place == len(data) and sides in ({_RIGHT}, {_LEFT})


UNMATCHED = KafkaFormat("record without a partner", "ListValueStore", _is_list)

#: The time and the key bytes of unmatched records.
Place = tuple[int, bytes]


def unmatched_store(
    name: str,
    key_serde: Serde[Any],
    left_serde: Serde[Any],
    right_serde: Serde[Any],
    *,
    has_changelog: bool = True,
) -> StoreSpec:
    """Return the spec of the store of unmatched records of a left or outer join, with its key and value serdes."""
    return StoreSpec(
        name,
        KEY_VALUE,
        BYTES,
        _waiting_serde(f"{key_serde.name}:{left_serde.name}:{right_serde.name}", left_serde, right_serde),
        has_caching=False,
        has_changelog=has_changelog,
    )


def _waiting_serde(parts: str, left: Serde[Any], right: Serde[Any]) -> Serde[Any]:
    """Return the serde for the store's values ``(side, value, ...)``, given the serdes of both sides."""
    sides = (portable(right), portable(left))

    def write(row: Any) -> bytes:
        serialize = sides[row[0]][0]
        pieces = [_LIST.pack(_SIZED, len(row) - 1)]
        for value in row[1:]:
            data = serialize(value)
            if data is None:
                raise SerializationError(f"serde {(right, left)[row[0]].name!r} made no bytes of a joined value")
            pieces += (_ENTRY.pack(len(data) + 1, row[0]), data)
        return b"".join(pieces)

    def read(data: bytes) -> Any:
        position = _LIST.size
        side = data[_LIST.size + _ENTRY.size - 1]
        deserialize = sides[side][1]
        row: list[Any] = [side]
        while position < len(data):
            start = position + _ENTRY.size
            position = start + _ENTRY.unpack_from(data, position)[0] - 1
            row.append(deserialize(data[start:position]))
        return tuple(row)

    is_immutable = left.is_immutable and right.is_immutable
    return unmarked(UNMATCHED, parts, write, read, is_immutable=is_immutable)


@define(eq=False)
class Unmatched:
    """The unmatched records of one join in one task, shared by its two sides."""

    store: Any
    key_serde: Serde[Any]
    #: Highest timestamp of both sides in epoch milliseconds.
    stream_time_ms: int = NO_TIMESTAMP
    #: Timestamp that must be due before the next scan, or -1 without unmatched records; saved by the task.
    earliest: StreamTime = field(factory=StreamTime)
    #: Places by side: right, left.
    _sides: tuple["SortedList[Place]", "SortedList[Place]"] = field(factory=lambda: (SortedList(), SortedList()))
    #: Number of values by side and place.
    _counts: tuple[dict[Place, int], dict[Place, int]] = field(factory=lambda: ({}, {}))
    _is_loaded: bool = False

    def load(self) -> None:
        """Build the index from the store, unless this has been done already."""
        if self._is_loaded:
            return
        self._is_loaded = True
        for data, row in self.store.all():
            time_ms, side = _HEAD.unpack_from(data)
            place = (time_ms, data[_HEAD.size :])
            self._sides[side].add(place)
            self._counts[side][place] = len(row) - 1
        if self.earliest.ms == NO_TIMESTAMP:
            # Kafka Streams, which may have made the last commit, scans with the first record.
            self.earliest.ms = min((places[0][0] for places in self._sides if places), default=NO_TIMESTAMP)

    def add(self, is_left: bool, key: Any, value: Any, time_ms: int) -> None:
        """Add an unmatched record of one side."""
        place = (time_ms, self._bytes_of(key))
        counts = self._counts[is_left]
        count = counts.get(place, 0)
        counts[place] = count + 1
        data = _HEAD.pack(time_ms, is_left) + place[1]
        if count:
            self.store.put(data, (*self.store.get(data), value))
        else:
            self._sides[is_left].add(place)
            self.store.put(data, (int(is_left), value))
        earliest = self.earliest
        if earliest.ms == NO_TIMESTAMP or time_ms < earliest.ms:
            earliest.ms = time_ms

    def has_any(self, is_left: bool) -> bool:
        """Return whether a side has any unmatched records."""
        return bool(self._counts[is_left])

    def discard(self, is_left: bool, key: Any, time_ms: int) -> None:
        """Remove the records of a side with this key and time, because they now have a match."""
        self._discard(is_left, (time_ms, self._bytes_of(key)))

    def _discard(self, is_left: int, place: Place) -> None:
        if self._counts[is_left].pop(place, None) is not None:
            self._sides[is_left].remove(place)
            self.store.put(_HEAD.pack(place[0], is_left) + place[1], None)

    def _bytes_of(self, key: Any) -> bytes:
        data = self.key_serde.serialize(key)
        assert data is not None
        return data

    def emit_due(
        self, left_open_from_ms: int, right_open_from_ms: int, emit: Callable[[Any, Any, Any, int], None]
    ) -> None:
        """Call ``emit(key, left, right, time_ms)`` for each record before its side's given time, and remove them.

        Records are emitted in the order of time, side (right first) and key bytes.  As in Kafka Streams, a record
        is removed after the next record is emitted, so that it is emitted again after a failure.
        """
        opens = (right_open_from_ms, left_open_from_ms)
        due = sorted(
            (place[0], side, place[1])
            for side in (_RIGHT, _LEFT)
            for place in self._sides[side].irange(None, (opens[side], b""), (True, False))
        )
        last: tuple[int, Place] | None = None
        for time_ms, side, key_bytes in due:
            self.earliest.ms = time_ms
            key = self.key_serde.deserialize(key_bytes)
            row = self.store.get(_HEAD.pack(time_ms, side) + key_bytes)
            for value in row[1:]:
                if side == _LEFT:
                    emit(key, value, None, time_ms)
                else:
                    emit(key, None, value, time_ms)
            if last is not None:
                self._discard(*last)
            last = (side, (time_ms, key_bytes))
        self.earliest.ms = self._next_attempt(opens)
        if last is not None:
            self._discard(*last)

    def _next_attempt(self, opens: tuple[int, int]) -> int:
        """Return the time of the record at which the next scan in Kafka Streams would start.

        The scan is in the order of time, side, key and value, and stops one record after it has seen
        an open window on both sides; otherwise it ends at the last record.
        """
        right, left = self._sides
        if not right and not left:
            return NO_TIMESTAMP
        first_open: list[tuple[int, int, bytes]] = []
        for side in (_RIGHT, _LEFT):
            place = next(iter(self._sides[side].irange((opens[side], b""))), None)
            if place is None:
                last: int = max(places[-1][0] for places in self._sides if places)
                return last
            first_open.append((place[0], side, place[1]))
        seen = max(first_open)
        if self._counts[seen[1]][(seen[0], seen[2])] > 1:
            return seen[0]
        after: list[int] = [
            place[0]
            for side in (_RIGHT, _LEFT)
            if (
                place := next(
                    iter(self._sides[side].irange(_next_place(seen, side), None, (side > seen[1], True))), None
                )
            )
        ]
        return min(after, default=seen[0])


def _next_place(seen: tuple[int, int, bytes], side: int) -> Place:
    """Return where to continue reading the records of ``side``; ``seen`` is (time, side, key) of the last record."""
    if side == seen[1]:
        return seen[0], seen[2]
    # For equal times the left side follows the right side, whatever the keys.
    return (seen[0], b"") if side > seen[1] else (seen[0] + 1, b"")


def shared_unmatched(stores: NodeStores, store_name: str, key_serde: Serde[Any]) -> Unmatched:
    """Return the unmatched records that are shared by both sides of a join in this task."""
    shared: Unmatched = stores.shared(store_name, lambda: Unmatched(stores[store_name], key_serde))
    return shared
