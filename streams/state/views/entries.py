"""The entries of a store: a value, or a value with the time of its last change (KIP-258).

In the engine the time of the last change is stored as 8 bytes before the value; in the changelog it is the record
timestamp.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from attrs import define

from streams.core.blocks.records import Block
from streams.state.forms import ValueForm
from streams.state.loops import timed_values

V = TypeVar("V")

_TIME_BYTES = 8
_time = Struct(">q")

#: Columns of changelog records: keys, values, timestamps.
Columns: TypeAlias = tuple[Sequence[bytes], Sequence[bytes | None], Sequence[int]]


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and the event time of its last change."""

    value: V
    timestamp_ms: int


@define(eq=False)
class PlainEntries:
    """Entries that consist only of the in-memory form of a value, without a time."""

    values: ValueForm

    def from_bytes(self, data: bytes) -> Any:
        """Return the in-memory entry for a value read from the engine."""
        return self.values.from_bytes(data)

    def read(self, data: bytes) -> Any:
        """Return the Python object for a value read from the engine."""
        return self.values.read(data)

    def shown(self, entry: Any) -> Any:
        """Return the Python object for an in-memory entry."""
        return self.values.to_value(entry)

    def value_of(self, entry: Any) -> Any:
        """Return the in-memory value of an entry, or None if the entry is deleted."""
        return entry

    def columns(
        self, entries: Sequence[Any], times: Sequence[int]
    ) -> tuple[Sequence[bytes | None], Sequence[bytes | None], Sequence[int]]:
        """Return the engine values, changelog values and changelog timestamps for in-memory entries."""
        values = self.values.all_to_bytes(entries)
        return values, values, times

    def restored(self, block: Block) -> Sequence[bytes | None]:
        """Return the values to write to the engine for the changelog records in a block."""
        return block.values

    def logged(self, data: Sequence[bytes], times: Sequence[int]) -> tuple[Sequence[bytes | None], Sequence[int]]:
        """Return the changelog values and timestamps for values read from the engine."""
        return data, times


@define(eq=False)
class TimedEntries:
    """Entries that are pairs (in-memory form of a value, timestamp_ms); a value of None means a deleted entry."""

    values: ValueForm

    def from_bytes(self, data: bytes) -> Any:
        """Return the in-memory entry for a value read from the engine."""
        return self.values.from_bytes(data[_TIME_BYTES:]), _time.unpack_from(data)[0]

    def read(self, data: bytes) -> Any:
        """Return the Python object for a value read from the engine."""
        return ValueAndTimestamp(self.values.read(data[_TIME_BYTES:]), _time.unpack_from(data)[0])

    def shown(self, entry: Any) -> Any:
        """Return the Python object for an in-memory entry."""
        return ValueAndTimestamp(self.values.to_value(entry[0]), entry[1])

    def value_of(self, entry: Any) -> Any:
        """Return the in-memory value of an entry, or None if the entry is deleted."""
        return None if entry is None else entry[0]

    def columns(
        self, entries: Sequence[Any], _: Sequence[int]
    ) -> tuple[Sequence[bytes | None], Sequence[bytes | None], Sequence[int]]:
        """Return the engine values, changelog values and changelog timestamps for in-memory entries."""
        values = self.values.all_to_bytes([entry[0] for entry in entries])
        times = [entry[1] for entry in entries]
        return timed_values(values, times), values, times

    def restored(self, block: Block) -> Sequence[bytes | None]:
        """Return the values to write to the engine for the changelog records in a block."""
        return timed_values(block.values, block.timestamps)

    def logged(self, data: Sequence[bytes], _: Sequence[int]) -> tuple[Sequence[bytes | None], Sequence[int]]:
        """Return the changelog values and timestamps for values read from the engine."""
        unpack = _time.unpack_from
        return [value[_TIME_BYTES:] for value in data], [unpack(value)[0] for value in data]


#: The two forms of entries.
EntryForm: TypeAlias = PlainEntries | TimedEntries


def keyed(
    keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> tuple[Sequence[bytes], Sequence[bytes | None]]:
    """Return keys and values without the records that have no key, which should not occur in a changelog."""
    if None not in keys:
        return keys, values  # type: ignore[return-value]
    rows = [(key, value) for key, value in zip(keys, values, strict=True) if key is not None]
    return [key for key, _ in rows], [value for _, value in rows]
