"""Loops over the records of a block, in plain Python.

The functions of ``compiled_loops`` have the same results and errors.
"""

import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, groupby
from operator import itemgetter
from typing import Any, TypeAlias

from streams.core.blocks.records import Window, Windowed
from streams.core.serdes.varints import read_varint, varint

__all__ = [
    "PlacedRows",
    "bytes_in",
    "decoded_places",
    "encoded_places",
    "int64",
    "interleaved",
    "is_inexact",
    "is_json",
    "last_by_number",
    "longest_in",
    "look_up",
    "merge_order",
    "running_max",
    "runs_of",
    "session_windowed",
    "split_by_number",
    "take_rows",
    "windowed",
]

_new_tuple = tuple.__new__

#: Numbers of 64 bits, signed: a column that is an array is one of them.
_INT64 = "q"

#: A column of records, or None if they have none.
Column: TypeAlias = Sequence[Any] | None


def windowed(key: Any, window: Window) -> Windowed[Any]:
    """Return ``Windowed(key, window)`` at half the cost of calling the class."""
    return _new_tuple(Windowed, (key, window))


def session_windowed(key: Any, start_ms: int, end_ms: int) -> Windowed[Any]:
    """Return the key of a session, built without calls of the constructors."""
    return _new_tuple(Windowed, (key, _new_tuple(Window, (start_ms, end_ms))))


def bytes_in(column: Iterable[bytes | None]) -> int:
    """Return the total size of a column in bytes; None has size 0."""
    return sum(map(len, filter(None, column)))


def longest_in(column: Iterable[bytes | None]) -> int:
    """Return the size of the longest item of a column in bytes; None has size 0."""
    return max(map(len, filter(None, column)), default=0)


def is_json(value: Any) -> bool:
    """Whether a value consists of objects of exactly the types that JSON is read as, and can be written."""
    pending = [value]
    for item in pending:
        kind = type(item)
        if kind is dict:
            if not all(type(key) is str for key in item):
                return False
            pending += item.values()
        elif kind is list:
            pending += item
        elif not (
            kind is str or item is None or kind is int or kind is bool or (kind is float and math.isfinite(item))
        ):
            return False
    return True


_FINE_TIME = re.compile(rb"[0-9]:[0-9]{2}\.[0-9]{7}").search
#: In quotes: parted by _, in digits of other scripts (their first byte of UTF-8, or escaped), infinite or not a number.
_ODD_DECIMAL = re.compile(
    rb'"[-+ .eE0-9_]*(?:(?:[0-9][-+ .eE0-9]*_|_[-+ .eE_]*[0-9])[-+ .eE0-9_]*"'
    rb'|[\xd9\xdb\xdf\xe0\xe1\xea\xef\xf0\\]|inf"|infi|s?nan)',
    re.IGNORECASE,
).search


def is_inexact(data: bytes | Iterable[bytes | None], has_times: bool, has_decimals: bool) -> bool:
    """Whether JSON, or a column of JSON, may have a time or decimal that is not read as it is written.

    These are times with more digits than microseconds, and decimals in other characters than digits, such as "1_0".
    """
    column = [data] if isinstance(data, bytes) else list(filter(None, data))
    return (has_times and any(map(_FINE_TIME, column))) or (has_decimals and any(map(_ODD_DECIMAL, column)))


# --- columns of whole numbers ---------------------------------------------------------------


def int64(numbers: Iterable[int]) -> "array[int]":
    """Return numbers as an array of 64-bit numbers, which may be the same object."""
    return numbers if isinstance(numbers, array) else array(_INT64, numbers)


def running_max(numbers: Iterable[int]) -> "array[int]":
    """Return for each number the highest one up to it, as an array of 64-bit numbers."""
    return array(_INT64, accumulate(numbers, max))


def last_by_number(numbers: Iterable[int], values: Iterable[int]) -> dict[int, int]:
    """Return the last of the values that stand beside each number."""
    return dict(zip(numbers, values, strict=True))


def runs_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return each sequence of equal numbers: the number, and how often it occurs."""
    return [(number, sum(1 for _ in run)) for number, run in groupby(numbers)]


# --- splitting and merging of columns -------------------------------------------------------


def split_by_number(numbers: Sequence[int], columns: Sequence[Column]) -> dict[int, tuple[Any, ...]]:
    """Return the rows of all columns beside each number; the keys are in the order of their first occurrence.

    A column that is None stays None.  Arrays and ranges become arrays of 64-bit numbers, other columns become lists; if
    there is only one number, the columns are returned as they are.
    """
    rows: dict[int, list[int]] = {}
    for index, number in enumerate(numbers):
        rows.setdefault(number, []).append(index)
    if len(rows) == 1:
        return dict.fromkeys(rows, tuple(columns))
    return {number: tuple(_picked(column, indexes) for column in columns) for number, indexes in rows.items()}


def _picked(column: Column, indexes: Sequence[int]) -> Column:
    if column is None:
        return None
    # An additional index, so that the result is a tuple for a single row too.
    items = itemgetter(*indexes, indexes[0])(column)[:-1]
    return _new_column([column])(items)


def _new_column(columns: Sequence[Sequence[Any]]) -> Callable[[Iterable[Any]], Sequence[Any]]:
    """Return what makes a column of the rows of others."""
    if all(isinstance(column, array | range) for column in columns):
        return lambda items: array(_INT64, items)
    return list


def merge_order(inputs: Sequence[Sequence[int]]) -> "array[int]":
    """Return the order in which the input with the lowest next number is taken again and again.

    ``inputs`` are columns of ascending numbers; of equal numbers, the first input has precedence.  The result has the
    index of an input for each of their rows.
    """
    numbers = list(chain.from_iterable(inputs))
    owners = [index for index, column in enumerate(inputs) for _ in column]
    return array(_INT64, map(owners.__getitem__, sorted(range(len(numbers)), key=numbers.__getitem__)))


def look_up(order: Iterable[int], numbers: Sequence[int]) -> "array[int]":
    """Return the number at each index of ``order``, as an array of 64-bit numbers."""
    return array(_INT64, map(numbers.__getitem__, order))


def take_rows(column: list[Any], rows: Iterable[int]) -> list[Any]:
    """Return the items of a column at these rows, and replace them by None."""
    result = []
    for row in rows:
        result.append(column[row])
        column[row] = None
    return result


def interleaved(order: Iterable[int], columns: Sequence[Sequence[Any]], starts: Sequence[int]) -> Any:
    """Return the rows of several columns as one, in the order of ``merge_order``.

    ``starts`` are the indexes of the first rows.  Arrays and ranges become an array of 64-bit numbers, others a list.
    """
    rows = [iter(column[start:]) for column, start in zip(columns, starts, strict=True)]
    return _new_column(columns)(map(next, map(rows.__getitem__, order)))


# --- places -------------------------------------------------------------------------------


class PlacedRows:
    """An iterator over the timestamps of a run that notes the place of each record written in the meantime.

    When the next row is taken, all outputs of the row before it have been appended to the output columns.  ``outputs``
    has a list of each column that grows with the outputs, and the array of their places.
    """

    def __init__(self, place: int, outputs: "Sequence[tuple[list[int], array[int]]]") -> None:
        #: Highest place of the rows taken so far.
        self.place = place
        self._outputs = outputs

    def over(self, timestamps: Sequence[int], places: Sequence[int]) -> Iterator[int]:
        """Yield the timestamps of a run, whose rows have these places."""
        for timestamp, place in zip(timestamps, places, strict=True):
            if place > self.place:
                self.note()
                self.place = place
            yield timestamp

    def note(self) -> None:
        """Note the current place for all outputs that have none yet."""
        for column, places in self._outputs:
            count = len(column) - len(places)
            if count:
                places.extend([self.place] * count)


def encoded_places(places: Sequence[int], timestamps: Sequence[int]) -> bytes:
    """Return the differences of places from the expected ones as zigzag varints; none if all are as expected.

    The expected place is the higher one of the timestamp and the place before.
    """
    differences = []
    before = -1
    for place, timestamp in zip(places, timestamps, strict=True):
        differences.append(place - max(before, timestamp))
        before = place
    return b"".join(map(varint, differences)) if any(differences) else b""


def decoded_places(
    data: bytes, position: int, timestamps: Sequence[int], has_differences: bool
) -> "tuple[array[int], int]":
    """Return the places of rows with these timestamps, and the position after their differences in ``data``.

    Raises:
        IndexError: the bytes end within the differences.
        OverflowError: a place has more than 64 bits.
    """
    places = array(_INT64)
    place = -1
    for timestamp in timestamps:
        place = max(place, timestamp)
        if has_differences:
            difference, position = read_varint(data, position)
            place += difference
        places.append(place)
    return places, position
