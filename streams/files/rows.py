"""Rows of files, as batches and as columns, and what splits a file into rows.

This module imports only ``core``, ``values`` and ``kinds``.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from attrs import define, frozen

from streams.core.blocks.records import Headers
from streams.files.kinds import WHOLE, FileKind, FileSource, Part
from streams.values import Fields


@frozen
class RowBatch:
    """Consecutive raw rows, with the index of the first row in the file and each row's line number, from 1."""

    first_row: int
    lines: Sequence[int]
    rows: Sequence[Any]

    def from_row(self, row: int) -> "RowBatch":
        """Return the rows of this batch from row ``row`` of the file on."""
        skipped = max(0, row - self.first_row)
        return RowBatch(self.first_row + skipped, self.lines[skipped:], self.rows[skipped:])


@define
class RowColumns:
    """The keys, values, timestamps, headers and partitions of some rows, as columns.

    A column or an element is None if the rows do not contain it, in which case the topic determines it.  Keys and
    values are a list of bytes, or an Arrow array.
    """

    values: Any
    keys: Any = None
    timestamps: list[int | None] | None = None
    headers: list[Headers] | None = None
    partitions: list[int | None] | None = None
    #: The columns of the values if they come from Arrow data; the serde can then read all values.
    fields: Fields | None = None


class FileFormat(Protocol):
    """Splits one kind of file into rows, and converts rows to columns."""

    @property
    def unit(self) -> str:
        """The unit in which positions in the file are counted, such as "line"."""
        ...

    @property
    def heading(self) -> bytes:
        """The content above the first row, such as column names; available after the first batch."""
        ...

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield the rows in ``part`` in file order, without the first ``skip_rows`` rows of the file."""
        ...

    def declared(self) -> "FileFormat":
        """Return a format that reads only the columns that the topic declares, or itself if it reads all of them."""
        ...

    def columns(self, rows: Any) -> RowColumns:
        """Convert rows of a batch to columns; raise one of the exceptions in ``BAD_INPUT`` if a row is bad."""
        ...

    def raw(self, row: Any) -> bytes:
        """Return the original bytes of a row, or the nearest equivalent."""
        ...
