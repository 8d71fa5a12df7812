"""Division of history into slices: by time, by number of slices, or by records per slice.

A cut is an offset for each source partition, so that cuts do not move when history grows.  Results do not
depend on the cuts: a task only processes records that no record of a later slice can precede.
"""

from bisect import bisect_left
from collections.abc import Mapping
from datetime import timedelta
from itertools import accumulate
from operator import attrgetter
from typing import Any

from attrs import frozen

from streams.core.blocks.records import TopicPartition
from streams.core.errors import ConfigError, InputError
from streams.core.event_time.time_texts import time_ms
from streams.core.topic import topic_name
from streams.replay.errors import ReplayError
from streams.replay.storage.extents import Extents, SourceHistory

Cut = dict[TopicPartition, int]

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
#: A given number up to this value is the number of slices; a higher one is the maximum number of records per slice.
MOST_SLICES = 1000
_BEFORE_ALL_MS = -(1 << 63)


@frozen
class Slicing:
    """How a history is divided: by spans of event time, or into a number of slices.

    ``span_ms`` is the event time of a slice in milliseconds.  Without it, ``number`` is the number of slices up to
    ``MOST_SLICES``, and above it the maximum number of records per slice.
    """

    span_ms: int | None = None
    number: int = 1

    @classmethod
    def of(cls, slices: "Slicing | str | int | timedelta") -> "Slicing":
        """Return the division that an option ``slices`` means.

        >>> Slicing.of("1d").span_ms, Slicing.of(timedelta(seconds=90)).span_ms, Slicing.of("50").number
        (86400000, 90000, 50)

        Raises:
            ConfigError: it is neither a span of time nor a number above 0.
        """
        if isinstance(slices, Slicing):
            return slices
        if isinstance(slices, timedelta):
            if slices < timedelta(milliseconds=1):
                raise ConfigError(f"slices {slices!r}: give a span of event time of at least a millisecond")
            return cls(slices // timedelta(milliseconds=1))
        if isinstance(slices, str) and not slices.isdecimal():
            number = slices.rstrip("abcdefghijklmnopqrstuvwxyz")
            unit = slices[len(number) :]
            if unit not in _UNITS_MS or not number.isdecimal() or not int(number):
                raise ConfigError(
                    f"slices {slices!r}: give a span of event time such as 1d, 6h or 30m, or a whole number"
                )
            return cls(int(number) * _UNITS_MS[unit])
        if type(slices) is not str and type(slices) is not int:
            raise ConfigError(
                f"slices {slices!r}: give a span of event time such as 1d or a timedelta, or a whole number"
            )
        if int(slices) < 1:
            raise ConfigError(f"slices {slices!r}: give a number above 0")
        return cls(number=int(slices))

    def count(self, records: int) -> int:
        """Return the number of slices of a history with so many records, if they are not spans of time."""
        return self.number if self.number <= MOST_SLICES else max(1, -(-records // self.number))


def cuts(history: SourceHistory, start: Mapping[TopicPartition, int], slicing: Slicing) -> list[Cut]:
    """Return the end of each slice of the history after ``start``, as offsets; the last end is the end of history.

    Raises:
        ReplayError: the slices would be too many.
    """
    ends = {partition: extents[-1].last + 1 for partition, extents in history.extents.items() if extents}
    times = _Times(history, start)
    if slicing.span_ms is not None:
        borders = times.by_span(slicing.span_ms)
    else:
        borders = times.by_count(slicing.count(times.total))
    result: list[Cut] = []
    # Partially read row groups include times of completed slices.
    reached = times.cut(_BEFORE_ALL_MS)
    for border in borders:
        cut = times.cut(border)
        if cut != reached:
            result.append(cut)
            reached = cut
    result.append(dict(ends))
    return result


def cut_at(history: SourceHistory, start: Mapping[TopicPartition, int], time_ms: int) -> Cut:
    """Return the first offset of each partition whose timestamp is at or after ``time_ms``."""
    return _Times(history, start).cut(time_ms, is_exact=True)


def cut_until(history: SourceHistory, until: Any, counts: Mapping[str, int]) -> Cut:
    """Return the offsets at which a replay ends: those of a time, or those that are given by topic and partition.

    ``counts`` has the number of partitions of each input.

    Raises:
        InputError: ``until`` is not a valid time, or has a topic, partition or offset that cannot be.
    """
    if not isinstance(until, Mapping):
        return cut_at(history, {}, time_ms(until, "until"))
    cut: Cut = {}
    for topic, offsets in until.items():
        name = topic_name(topic, "until of a replay")
        if name not in counts:
            raise InputError(f"until: no input has topic {name!r}; the inputs are {', '.join(sorted(counts))}")
        if not isinstance(offsets, Mapping):
            raise InputError(f"until {offsets!r} of topic {name!r}: give offsets by partition, such as {{0: 100}}")
        for number, offset in offsets.items():
            if number not in range(counts[name]):
                raise InputError(f"until: topic {name!r} has partitions 0 to {counts[name] - 1}, and not {number!r}")
            if type(offset) is not int or offset < 0:
                raise InputError(f"until {offset!r} of {name}-{number}: give an offset, a whole number from 0 on")
            cut[TopicPartition(name, number)] = offset
    return cut


class _Times:
    """Timestamps of the source partitions; each is replaced by the highest timestamp up to its record."""

    def __init__(self, history: SourceHistory, start: Mapping[TopicPartition, int]) -> None:
        import numpy as np

        self._history = history
        self._start = start
        self._reader = history.segments.reader()
        #: The extents of each partition in order, and the highest time up to the end of each.
        self._spans: dict[TopicPartition, tuple[Extents, Any]] = {}
        for partition, extents in history.extents.items():
            rest = extents[bisect_left(extents, start.get(partition, 0), key=attrgetter("last")) :]
            self._spans[partition] = rest, np.maximum.accumulate(rest.highest_ms)
        self.total = sum(extents.rows for extents, _ in self._spans.values())

    def by_span(self, size_ms: int) -> list[int]:
        """Return the slice boundaries: multiples of ``size_ms`` from the lowest to the highest source timestamp.

        Raises:
            ReplayError: there would be too many slices.
        """
        lowest = min((int(extents.lowest_ms.min()) for extents, _ in self._spans.values() if extents), default=0)
        highest = max((int(times[-1]) for _, times in self._spans.values() if len(times)), default=0)
        first = (lowest // size_ms + 1) * size_ms
        if (highest - first) // size_ms > 100 * MOST_SLICES:
            raise ReplayError(f"slices of {size_ms} ms would be {(highest - first) // size_ms:,}; give a longer span")
        return list(range(first, highest + 1, size_ms))

    def by_count(self, count: int) -> list[int]:
        """Return times that divide the records into parts of approximately equal size."""
        if count <= 1 or not self.total:
            return []
        times: list[int] = []
        for extents, _ in self._spans.values():
            reached = -1
            for extent in extents:
                # All timestamps, or a sample of each row group above 1,000,000 records.
                _, own = self._reader.timestamps(extent)
                step = max(1, self.total // 1_000_000)
                own = list(accumulate(own, max, initial=reached))[1:]
                reached = own[-1]
                times += own[::step]
        times.sort()
        places = (len(times) * number // count for number in range(1, count))
        return sorted({times[place] for place in places})

    def cut(self, time_ms: int, *, is_exact: bool = False) -> Cut:
        """Return the first offset of each partition whose timestamp is at or after ``time_ms``.

        Unless ``is_exact``, it may be that of a record before it that has no time.
        """
        result: Cut = {}
        for partition, (extents, highest) in self._spans.items():
            all_extents = self._history.extents[partition]
            index = int(highest.searchsorted(time_ms))
            if index == len(extents):
                end = all_extents[-1].last + 1 if all_extents else 0
            elif extents[index].lowest_ms >= time_ms and not is_exact:
                end = extents[index].first  # Nothing has to be read.
            else:
                offsets, times = self._reader.timestamps(extents[index])
                end = next(offset for offset, time in zip(offsets, times, strict=True) if time >= time_ms)
            result[partition] = max(end, self._start.get(partition, 0))
        return result
