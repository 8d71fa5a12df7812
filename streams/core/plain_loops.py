"""Loops over the records of a block, in plain Python.

The functions of ``compiled_loops`` have the same results and errors.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from streams.core.records import Window, Windowed

__all__ = ["PlacedRows", "bytes_in", "head_places", "rows_by_number", "session_windowed", "windowed"]

_new_tuple = tuple.__new__


def windowed(key: Any, window: Window) -> Windowed[Any]:
    """Return ``Windowed(key, window)`` at half the cost of calling the class."""
    return _new_tuple(Windowed, (key, window))


def session_windowed(key: Any, start_ms: int, end_ms: int) -> Windowed[Any]:
    """Return ``Windowed(key, Window(start_ms, end_ms))``."""
    return _new_tuple(Windowed, (key, _new_tuple(Window, (start_ms, end_ms))))


def bytes_in(column: Iterable[bytes | None]) -> int:
    """Return the total size of a column in bytes; None has size 0."""
    return sum(map(len, filter(None, column)))


class PlacedRows:
    """An iterator over the timestamps of a run that notes the place of each record written in the meantime.

    When the next row is taken, all outputs of the row before it have been appended to the output columns.  ``outputs``
    has a list of each column that grows with the outputs, and the list of their places.
    """

    def __init__(self, place: int, outputs: Sequence[tuple[list[int], list[int]]]) -> None:
        #: Highest place of the rows taken so far.
        self.place = place
        self._outputs = outputs

    def over(self, timestamps: Iterable[int], places: Iterable[int]) -> Iterator[int]:
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


def head_places(timestamps: Iterable[int], width: int, index: int) -> list[int]:
    """Return the sort key of each record of an input, for the order by head timestamp and then by input.

    The records of an input are processed in offset order, so the running maximum of the timestamps determines
    the order. The sort key is that maximum times ``width``, the number of inputs, plus ``index``, the number of
    this input.
    """
    return [time * width + index for time in accumulate(timestamps, max)]


def rows_by_number(numbers: Iterable[int]) -> dict[int, list[int]]:
    """Return the indexes at which each number occurs; the keys are in the order of their first occurrence."""
    rows: dict[int, list[int]] = {}
    for index, number in enumerate(numbers):
        found = rows.get(number)
        if found is None:
            rows[number] = [index]
        else:
            found.append(index)
    return rows
