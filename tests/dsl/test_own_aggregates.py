"""Aggregates that user functions change in place, and initial aggregates that several keys share."""

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, frozen

from streams import (
    CountWindows,
    ProcessingError,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topic,
)
from streams.testing import TopologyTestDriver

SECOND = timedelta(seconds=1)
numbers = Topic("numbers", key=str, value=int)
lists = Topic("lists", key=str, value=list[int])
totals = Topic("totals", key=str, value=int)
#: Keys and times; the value of a record is its position.
ROWS = list(zip("xyxzyxxyxzxx", [0, 300, 500, 900, 700, 1200, 2500, 2600, 600, 3100, 1700, 5000], strict=True))


def appended(key: str, number: int, seen: list[int]) -> list[int]:
    seen.append(number)
    return seen


def longer(key: str, number: int, seen: list[int]) -> list[int]:
    return [*seen, number]


def extended(key: str, left: list[int], right: list[int]) -> list[int]:
    right.extend(left)
    return right


def together(key: str, left: list[int], right: list[int]) -> list[int]:
    return [*right, *left]


def removed(key: str, number: int, seen: list[int]) -> list[int]:
    seen.remove(number)
    return seen


def shorter(key: str, number: int, seen: list[int]) -> list[int]:
    return [one for one in seen if one != number]


AGGREGATES: dict[str, Callable[[Any, bool], Any]] = {
    "plain": lambda stream, is_in_place: stream.group_by_key().aggregate(
        list, appended if is_in_place else longer, name="lists", value=list[int]
    ),
    "undeclared": lambda stream, is_in_place: stream.group_by_key().aggregate(
        list, appended if is_in_place else longer, name="lists"
    ),
    "cogroup": lambda stream, is_in_place: (
        stream.group_by_key()
        .cogroup(appended if is_in_place else longer, value=list[int])
        .aggregate(list, name="lists")
    ),
    "table": lambda stream, is_in_place: (
        stream.to_table()
        .group_by(lambda key, number: ("all", number))
        .aggregate(
            list,
            appended if is_in_place else longer,
            removed if is_in_place else shorter,
            name="lists",
            value=list[int],
        )
    ),
    "tumbling": lambda stream, is_in_place: windowed(stream, TimeWindows.of(SECOND), is_in_place),
    "hopping": lambda stream, is_in_place: windowed(stream, TimeWindows.of(SECOND, advance=SECOND / 2), is_in_place),
    "sliding": lambda stream, is_in_place: windowed(stream, SlidingWindows.of(SECOND), is_in_place),
    "counted": lambda stream, is_in_place: windowed(stream, CountWindows.of(3), is_in_place),
    "sessions": lambda stream, is_in_place: (
        stream.group_by_key()
        .windowed_by(SessionWindows.of(SECOND))
        .aggregate(
            list,
            appended if is_in_place else longer,
            extended if is_in_place else together,
            name="lists",
            value=list[int],
        )
    ),
}


def windowed(stream: Any, windows: Any, is_in_place: bool) -> Any:
    grouped = stream.group_by_key().windowed_by(windows)
    return grouped.aggregate(list, appended if is_in_place else longer, name="lists", value=list[int])


def results(
    topology: Callable[[StreamsBuilder], Any], topic: Topic[Any, Any], rows: Any = ROWS, **settings: Any
) -> list[Any]:
    with TopologyTestDriver(topology, **settings) as driver:
        for number, (key, timestamp_ms) in enumerate(rows):
            driver.pipe(numbers, number, key=key, timestamp_ms=timestamp_ms)
        return driver.read(topic)


@pytest.mark.parametrize("cache_max_bytes", [0, 10_000_000])
@pytest.mark.parametrize("shape", AGGREGATES)
def test_table_of_aggregates_that_are_changed_in_place_is_grouped_like_any_other(shape, cache_max_bytes):
    """The old value of a change was the changed object itself, so that the new value was subtracted again."""

    def grouped(is_in_place: bool) -> Callable[[StreamsBuilder], None]:
        def topology(builder: StreamsBuilder) -> None:
            table = AGGREGATES[shape](builder.stream(numbers), is_in_place)
            counted = table.group_by(lambda key, seen: ("all", len(seen)), key=str, value=int)
            counted.reduce(lambda one, two: one + two, lambda one, two: one - two).to_stream().to(totals)

        return topology

    expected, found = (results(grouped(way), totals, cache_max_bytes=cache_max_bytes) for way in (False, True))

    assert found == expected


def test_sliding_windows_do_not_share_what_an_aggregator_changes():
    """An aggregate was the start of the next window after the aggregator had changed it."""

    def listed(is_in_place: bool) -> Callable[[StreamsBuilder], None]:
        def topology(builder: StreamsBuilder) -> None:
            table = AGGREGATES["sliding"](builder.stream(numbers), is_in_place)
            table.to_stream().select_key(lambda key, _: f"{key.key}@{key.window.start_ms}").to(lists)

        return topology

    rows = [("x", timestamp_ms) for timestamp_ms in (2000, 2600, 2300, 3400, 3000, 2900, 3700)]
    assert results(listed(True), lists, rows) == results(listed(False), lists, rows)


def test_aggregate_of_a_class_within_a_function_is_copied():
    @define
    class Seen:
        numbers: list[int]

    def added(key: str, number: int, seen: Seen) -> Seen:
        seen.numbers.append(number)
        return seen

    def topology(builder: StreamsBuilder) -> None:
        table = builder.stream(numbers).group_by_key().aggregate(lambda: Seen([]), added, value=Seen)
        counted = table.group_by(lambda key, seen: ("all", len(seen.numbers)), key=str, value=int)
        counted.reduce(lambda one, two: one + two, lambda one, two: one - two).to_stream().to(totals)

    assert results(topology, totals)[-1] == ("all", len(ROWS))


@define
class Counts:
    """A mutable aggregate of a class."""

    numbers: list[int]


@frozen
class Held:
    """An immutable one."""

    count: int = 0


SHARED: list[int] = []
COUNTS = Counts([])
DEFAULTS: "defaultdict[str, int]" = defaultdict(int)


def counted_in(key: str, number: int, counts: Counts) -> Counts:
    counts.numbers.append(number)
    return counts


def counted_by_key(key: str, number: int, counts: "defaultdict[str, int]") -> "defaultdict[str, int]":
    counts[key] += 1
    return counts


@pytest.mark.parametrize(
    ("initial", "aggregator", "form", "kind"),
    [
        (SHARED, appended, list[int], "list"),
        (COUNTS, counted_in, Counts, "Counts"),
        (DEFAULTS, counted_by_key, dict[str, int], "defaultdict"),
    ],
)
def test_initial_aggregate_that_one_key_has_changed_is_no_initial_aggregate_of_another(initial, aggregator, form, kind):
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(numbers).group_by_key().aggregate(lambda: initial, aggregator, name="kept", value=form)

    with TopologyTestDriver(topology) as driver:
        driver.pipe(numbers, 1, key="x")
        message = rf"node 'kept' .*initializer '.*<lambda>' \(.*\) returned the {kind} that it had returned before"
        with pytest.raises(ProcessingError, match=message):
            driver.pipe(numbers, 2, key="y")


@pytest.mark.parametrize("shape", ["cogroup", "table", "sessions"])
def test_each_kind_of_aggregation_compares_its_initial_aggregates(shape):
    shared: list[int] = []

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(numbers)
        if shape == "cogroup":
            stream.group_by_key().cogroup(appended, value=list[int]).aggregate(lambda: shared)
        elif shape == "table":
            grouped = stream.to_table().group_by(lambda key, number: (key, number))
            grouped.aggregate(lambda: shared, appended, removed, value=list[int])
        else:
            sessions = stream.group_by_key().windowed_by(SessionWindows.of(SECOND))
            sessions.aggregate(lambda: shared, appended, together, value=list[int])

    with pytest.raises(ProcessingError, match="returned the list that it had returned before"):
        results(topology, totals)


@pytest.mark.parametrize("initial", [Held(), (), 0, "", Counts([]), []])
def test_object_that_no_aggregator_changes_may_be_shared(initial):
    def topology(builder: StreamsBuilder) -> None:
        counts = (
            builder.stream(numbers).group_by_key().aggregate(lambda: initial, lambda key, number, old: 1, value=int)
        )
        counts.to_stream().to(totals)

    assert results(topology, totals) == [(key, 1) for key, _ in ROWS]
