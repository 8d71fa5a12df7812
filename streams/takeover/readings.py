"""Readings: every entry of a changelog or internal topic is deserialized as the application here would do it.

A reading counts what could be read, and what could not with the first reason.  It also serializes what it has read: a
key that has other bytes then would not be found again.  The module is pure: records are given as blocks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from attrs import define, field, frozen

from streams.core.blocks.marks import format_of
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import StoreError, StreamsError
from streams.core.event_time.calendar import Calendar
from streams.core.serdes.serdes import Serde
from streams.state import Family, StoreSpec, entries_with_headers, session_parts, window_parts

#: Splits the stored key of a windowed store: into the key and two times.
_PARTS: Mapping[Family, Callable[[bytes], tuple[bytes, int, int]]] = {
    Family.WINDOWS: window_parts,
    Family.SESSIONS: session_parts,
}


@frozen
class Unread:
    """An entry that cannot be read: where it is, and why."""

    partition: TopicPartition
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.partition}, offset {self.offset}: {self.reason}"


@define
class Reading:
    """What was read of one topic: the changelog of a store, or an internal topic (``store`` is None)."""

    topic: str
    store: str | None
    partitions: int = 0
    #: Entries with a value, and deletions, that could be read.
    entries: int = 0
    deletions: int = 0
    unreadable: int = 0
    first: Unread | None = None
    #: Entries whose key, or value, is serialized to other bytes than it was read from; with an example.
    other_keys: int = 0
    other_values: int = 0
    example: Unread | None = None
    #: Entries with headers, which the store here does not keep.
    with_headers: int = 0

    @property
    def read(self) -> int:
        """Entries and deletions that could be read."""
        return self.entries + self.deletions


@define
class EntryReader:
    """Reads the records of one topic into a reading."""

    reading: Reading
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    family: Family = Family.KEYS
    _loses_headers: bool = True
    #: Converts records of earlier layouts; made for each partition.
    _upgrades: Callable[[TopicPartition], Callable[[Block], Block]] | None = None
    _calendar: Calendar | None = None
    _open: dict[TopicPartition, Callable[[Block], Block]] = field(factory=dict)

    @property
    def _is_changelog(self) -> bool:
        """Whether the topic is no source topic, whose records may have headers anyway."""
        return self.reading.store is not None and self.reading.topic.endswith(f"-{self.reading.store}-changelog")

    @classmethod
    def of_store(cls, spec: StoreSpec, topic: str) -> "EntryReader":
        """Return the reader of a store's changelog."""
        reading = Reading(topic, spec.name)
        family = spec.kind.family
        return cls(reading, spec.key_serde, spec.value_serde, family, spec.loses_headers, spec.upgrades, spec.calendar)

    def take(self, partition: TopicPartition, block: Block) -> None:
        """Read the records of a block."""
        if self._upgrades is not None:
            if partition not in self._open:
                self._open[partition] = self._upgrades(partition)
            block = self._open[partition](block)
        if self._is_changelog and self._loses_headers:
            self.reading.with_headers += entries_with_headers(block)
        for offset, key, value, _, _ in block.rows():
            try:
                self._entry(partition, offset, key, value)
            except (StreamsError, ValueError) as error:
                self.reading.unreadable += 1
                if self.reading.first is None:
                    self.reading.first = Unread(partition, offset, str(error))

    def _entry(self, partition: TopicPartition, offset: int, data: bytes | None, value: bytes | None) -> None:
        reading = self.reading
        key = data
        own = self.family.key_format
        if data is not None and own is not None:
            own.check(data)
            key, time_ms, _ = _PARTS[self.family](data)
            if self._calendar is not None and (misfit := self._calendar.misfit([time_ms])):
                raise StoreError(f"it {misfit}")
        other_key = _again(self.key_serde, key)
        own_value = format_of(self.value_serde)
        if value is not None and own_value is not None:
            own_value.check(value)
        other_value = _again(self.value_serde, value)
        reading.entries += value is not None
        reading.deletions += value is None
        reading.other_keys += other_key is not None
        reading.other_values += other_value is not None
        other = other_key or other_value
        if other is not None and reading.example is None:
            reading.example = Unread(partition, offset, other)


def _again(serde: Serde[Any], data: bytes | None) -> str | None:
    """Deserialize and serialize bytes; return how they differ, or None if they do not."""
    if data is None:
        return None
    again = serde.serialize(serde.deserialize(data))
    return None if again == data else f"{data[:40]!r} becomes {(again or b'')[:40]!r}"


def read(
    reader: EntryReader, partitions: Iterable[TopicPartition], blocks: Callable[[TopicPartition], Iterator[Block]]
) -> Reading:
    """Read partitions, whose records ``blocks`` returns."""
    for partition in partitions:
        reader.reading.partitions += 1
        for block in blocks(partition):
            reader.take(partition, block)
    return reader.reading
