"""Reads raw records as columns of the numbers that a register program uses, without deserializing them.

The keys and values are deserialized when somebody reads them.
"""

import json
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import define, field, frozen

from streams.core.blocks.records import Block
from streams.core.errors import StreamsError
from streams.core.event_time.timestamps import (
    Custom,
    EventTime,
    FailOnInvalid,
    FromRecord,
    FromValue,
    LogAndSkipInvalid,
    UsePartitionTime,
)
from streams.core.serdes.serdes import Serde
from streams.topology.columns.paths import ColumnPath
from streams.topology.columns.program import RowProgram
from streams.topology.columns.symbols import TraceError

#: Fewer records are taken faster by rows.
MIN_ROWS = 16
#: Number of keys above which their codes are given anew.
_MAX_CODES = 100_000
#: Times that do not depend on values.
_OF_RECORDS = (FailOnInvalid, LogAndSkipInvalid, UsePartitionTime)


class LazyColumn(Sequence[Any]):
    """A column of raw keys or values that can be deserialized, which is done when somebody reads one."""

    __slots__ = ("_objects", "numbers", "raw", "serde")

    def __init__(
        self, raw: list[Any], serde: Serde[Any], numbers: Sequence["array[int]"], objects: Sequence[Any] | None = None
    ) -> None:
        self.raw = raw
        self.serde = serde
        #: What the column has as numbers: codes of keys, or fields of values.
        self.numbers = numbers
        self._objects = objects

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self._all()[index]
        objects = None if self._objects is None else self._objects[index]
        return LazyColumn(self.raw[index], self.serde, [each[index] for each in self.numbers], objects)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all())

    def _all(self) -> Sequence[Any]:
        if self._objects is None:
            self._objects = self.serde.deserialize_all(self.raw)
        return self._objects


@define(eq=False)
class KeyCodes:
    """Numbers of keys, by their bytes."""

    serde: Serde[Any]
    codes: dict[bytes | None, int] = field(factory=lambda: {None: -1})
    #: The keys by number.
    keys: list[Any] = field(factory=list)

    def add(self, raw: bytes) -> int:
        """Add a key, and return its number.

        Raises:
            StreamsError: it cannot be deserialized.
        """
        code = self.codes[raw] = len(self.keys)
        self.keys.append(self.serde.deserialize(raw))
        return code


@frozen(eq=False)
class ColumnRows:
    """The rows of a block as columns."""

    keys: LazyColumn
    values: LazyColumn
    timestamps: Sequence[int]


class CodedKeys(LazyColumn):
    """A lazy column of keys with their codes; ``by_code`` are the keys by code."""

    __slots__ = ("by_code",)

    def __init__(
        self,
        raw: list[Any],
        serde: Serde[Any],
        numbers: Sequence["array[int]"],
        by_code: list[Any],
        objects: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(raw, serde, numbers, objects)
        self.by_code = by_code

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return super().__getitem__(index)
        objects = None if self._objects is None else self._objects[index]
        return CodedKeys(self.raw[index], self.serde, [each[index] for each in self.numbers], self.by_code, objects)


@define(eq=False)
class ColumnReader:
    """Reads blocks of one input partition as columns."""

    path: ColumnPath
    value_serde: Serde[Any]
    extractor: EventTime
    _keys: KeyCodes = field(init=False)
    _values: Any = field(init=False)
    #: The program of event times, and its columns among those that are sliced; None if they are those of records.
    _times: RowProgram | None = field(init=False, default=None)
    _time_columns: list[int] = field(init=False, factory=list)
    #: Whether values are deserialized for their event times.
    _needs_objects: bool = field(init=False, default=False)
    _outer: Sequence[Any] = field(init=False, default=())

    def __attrs_post_init__(self) -> None:
        from streams.core.blocks.compiled_columns import KINDS, JsonColumns

        path = self.path
        self._keys = KeyCodes(path.source.key_serde)
        columns = list(path.program.columns)
        if isinstance(self.extractor, FromValue):
            try:
                self._times, self._outer = path.times(self.extractor.function)
                columns += [name for name in self._times.columns if name not in columns]
                self._time_columns = [columns.index(name) for name in self._times.columns]
            except TraceError:
                self._needs_objects = True
        elif not isinstance(self.extractor, _OF_RECORDS):
            self._needs_objects = True
        self._values = JsonColumns(
            [part.json_name for part in path.fields],
            [KINDS[part.kind] for part in path.fields],
            [columns.index(part.name) if part.name in columns else -1 for part in path.fields],
        )

    @classmethod
    def of(cls, path: ColumnPath, value_serde: Serde[Any], extractor: EventTime) -> "ColumnReader | None":
        """Return the reader of an input, or None if its records have to be read one by one."""
        return None if isinstance(extractor, FromRecord | Custom) else cls(path, value_serde, extractor)

    def read(self, block: Block) -> ColumnRows | None:
        """Return the rows of a block, or None if one of them is not accepted."""
        from streams.core.blocks.compiled_columns import key_codes

        if len(block) < MIN_ROWS or block.headers is not None:
            return None
        raw_keys = block.keys
        raw_values = block.values
        if type(raw_keys) is not list or type(raw_values) is not list:
            return None
        columns = self._values.slice(raw_values) or self._in_other_order(raw_values)
        if columns is None:
            return None
        if len(self._keys.keys) > _MAX_CODES:
            self._keys = KeyCodes(self._keys.serde)
        try:
            codes = key_codes(raw_keys, self._keys.codes, self._keys.add)
        except StreamsError:
            self._keys = KeyCodes(self._keys.serde)
            return None
        keys = CodedKeys(raw_keys, self._keys.serde, [codes], self._keys.keys)
        count = len(self.path.program.columns)
        values = LazyColumn(raw_values, self.value_serde, columns[:count])
        timestamps = self._timestamps(block, values, columns)
        if timestamps is None or (timestamps and min(timestamps) < 0):
            return None
        return ColumnRows(keys, values, timestamps)

    def _in_other_order(self, rows: list[Any]) -> Any:
        """Slice values whose fields have the order of the first one, which is not that of the values before."""
        try:
            names = json.loads(rows[0], object_pairs_hook=lambda pairs: [name for name, _ in pairs])
            if isinstance(names, list) and self._values.set_names(names):
                return self._values.slice(rows)
        except (ValueError, TypeError, RecursionError):
            pass  # The records are read one by one, which says what is wrong.
        return None

    def _timestamps(self, block: Block, values: LazyColumn, columns: list[Any]) -> Sequence[int] | None:
        from streams.core.blocks.compiled_columns import mapped

        program = self._times
        if program is None or not all(each.is_same for each in self._outer):
            return self.extractor.block(values if self._needs_objects or program else (), block.timestamps)
        _, _, column_at, _, result_at = program.places
        inputs = [columns[at] for at in self._time_columns]
        times = mapped(program.code, program.constants, program.registers["size"], column_at, result_at, inputs)
        return None if times is None else times.tolist()
