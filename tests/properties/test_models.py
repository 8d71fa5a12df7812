"""Aggregations and joins against computations of a few lines, in every way to run a topology over given rows.

The other tests of this folder compare drivers with each other; what all of them do wrong they cannot see.  Here the
result is also computed by hand: of windows with late records, of sessions, of joins of streams and tables, of tables
that are grouped by another key, and of rows as of a time.  Keys are texts of any characters, and empty ones.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
)
from streams.core.blocks.partitioning import partition_for
from streams.testing import TopologyTestDriver
from tests.properties.functions import key_and_window
from tests.properties.plans import TOPICS
from tests.properties.profile import examples
from tests.properties.strategies import Row
from tests.replay import outcomes
from tests.replay.outcomes import (
    APPLICATION,
    Inputs,
    archived,
    drive,
    lived,
    quick_folder,
    replayed_outcome,
    result_of,
    session_of,
)

#: Values of results by their keys, each as often as it was written, or only the last one.
Found = Mapping[tuple[str, str], int] | Mapping[str, str]
_KEYS = ["", "a", "ä", "b\0", "日本"]
#: A time at which all windows have closed, and the time of a second record, which closes those of the first.
_FAR_MS, _FARTHER_MS = 10**9, 2 * 10**9
#: A grace period that no generated record exceeds.
_PATIENT_MS = 10_000
OUT = Topic("out", key=str, value=str)
_of = st.sampled_from


class Given(NamedTuple):
    """Rows, the number of partitions of their topics, and the topics."""

    rows: Sequence[Row]
    partitions: int
    topics: str

    def partition(self, row: Row) -> int:
        """Return the partition of a row, whose stream time is its own."""
        return partition_for((row.key or "").encode(), self.partitions)

    def placed(self, times: dict[int, int]) -> Iterator[tuple[int, Row]]:
        """Yield rows with their partitions, and keep the stream time of each partition in ``times``."""
        for row in self.rows:
            number = self.partition(row)
            times[number] = max(times.get(number, 0), row.timestamp_ms)
            yield number, row

    def inputs(self, rows: Sequence[Row]) -> Inputs:
        """Return rows as records, by topic."""
        found: dict[str, list[outcomes.Row]] = {topic: [] for topic in self.topics}
        for row in rows:
            topic = TOPICS[row.topic]
            raw = topic.key_serde.serialize(row.key), topic.value_serde.serialize(row.value)
            found[row.topic].append(outcomes.Row(self.partition(row), *raw, row.timestamp_ms))
        return found

    def last(self, topic: str) -> dict[str, int]:
        """Return the rows of a table."""
        found = {row.key: row.value for row in self.rows if row.topic == topic}
        return {key: value for key, value in found.items() if key is not None and value is not None}


@frozen
class Model:
    """A topology that writes text to ``out``, and what it must write."""

    build: Callable[[StreamsBuilder], None]
    expected: Callable[[Given], Found]
    view: Callable[[Sequence[tuple[str, str | None]]], Found]
    topics: str = "ab"


def all_of(records: Sequence[tuple[str, str | None]]) -> Found:
    """Return how often each value of a key was written; tombstones aside."""
    return Counter((key, value) for key, value in records if value is not None)


def last_of(records: Sequence[tuple[str, str | None]]) -> Found:
    """Return the last value of each key that was not deleted."""
    return {key: value for key, value in dict(records).items() if value is not None}


def _ways(model: Model, example: Given, until: int) -> Iterator[tuple[str, Found]]:
    """Run a topology in every way; yield its name and the results."""
    with TopologyTestDriver(model.build, application_id=APPLICATION, partitions=example.partitions) as driver:
        for row in example.rows:
            driver.pipe(TOPICS[row.topic], row.value, key=row.key, timestamp_ms=row.timestamp_ms)
        yield (
            "test driver",
            model.view([(_text(row.key), row.value and _text(row.value)) for row in driver.read_bytes("out")]),
        )

    settings: dict[str, Any] = {"partitions": example.partitions}
    inputs, first = example.inputs(example.rows), example.inputs(example.rows[:until])
    yield "bounded run", _seen(model, lived(model.build, inputs, **settings))
    with quick_folder() as folder:
        lived(model.build, first, state_dir=folder, **settings)
        yield "two runs", _seen(model, lived(model.build, inputs, state_dir=folder, **settings))
    for slices in (None, 3):
        with quick_folder() as folder:
            archives = archived(folder, inputs, dict.fromkeys(inputs, example.partitions))
            session = session_of(model.build, archives, folder / "replay", slices=slices, **settings)
            drive(session)
            yield f"replay in {slices} slices", _seen(model, replayed_outcome(result_of(session)))


def _text(data: bytes | None) -> str:
    return (data or b"").decode()


def _seen(model: Model, outcome: outcomes.Outcome) -> Found:
    found = outcome.outputs.get("out", {})
    records = [(row[1], row[2]) for _, rows in sorted(found.items()) for row in rows]
    return model.view([(_text(key), None if value is None else _text(value)) for key, value in records])


@st.composite
def _rows(draw: st.DrawFn, *, tombstones: bool = False, in_order: bool = False) -> list[Row]:
    values = st.integers(-5, 8) | st.none() if tombstones else st.integers(-5, 8)
    steps, late = (
        _of([1, 3, 10, 25] if in_order else [0, 0, 1, 3, 10, 25]),
        st.just(0) if in_order else _of([0, 0, 0, 2, 12, 60]),
    )
    row = st.tuples(_of("ab"), _of(["a", "a", *_KEYS]), values, steps, late)
    now_ms, found = 1000, []
    for topic, key, value, step_ms, late_ms in draw(st.lists(row, max_size=25)):
        now_ms += step_ms
        found.append(Row(topic, key, value, now_ms - late_ms))
    return found


#: Rows that close all windows of each partition but their own last ones.
_CLOSING = [Row(topic, key, 0, time_ms) for time_ms in (_FAR_MS, _FARTHER_MS) for topic in "ab" for key in _KEYS]


# Windows.


def _summed(windows: Any, emits: str) -> Callable[[StreamsBuilder], None]:
    def build(builder: StreamsBuilder) -> None:
        windowed = builder.stream(TOPICS["a"]).group_by_key().windowed_by(windows)
        if emits == "on close":
            windowed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        merger = [lambda key, left, right: left + right] if isinstance(windows, SessionWindows) else []
        table = windowed.aggregate(lambda: 0, lambda key, value, total: total + 100 + value, *merger, "sums", value=int)
        if emits == "suppressed":
            table = table.suppress(Suppressed.until_window_closes(), name="held")
        # The tombstones are those of sessions that are part of a longer one.
        table.to_stream(key_and_window).map_values(lambda total: None if total is None else str(total)).to(OUT)

    return build


def _kept(windows: dict[tuple[int, str, int, int], int], emits: str, closed_ms: Callable[[int], int]) -> Found:
    """Return the windows by partition, key, start and end as results: all of them, or those that have closed."""
    named = [
        (f"{key}@{start}-{end}", str(total), end < closed_ms(number))
        for (number, key, start, end), total in windows.items()
    ]
    if emits == "on update":
        return {name: total for name, total, _ in named}
    return Counter((name, total) for name, total, is_closed in named if is_closed)


def _time_windows(size_ms: int, advance_ms: int, grace_ms: int, emits: str) -> Model:
    def expected(example: Given) -> Found:
        sums: dict[tuple[int, str, int, int], int] = {}
        times: dict[int, int] = {}
        for number, row in example.placed(times):
            for start in range(row.timestamp_ms // advance_ms * advance_ms, row.timestamp_ms - size_ms, -advance_ms):
                place = number, row.key or "", start, start + size_ms
                if start + size_ms + grace_ms > times[number]:
                    sums[place] = sums.get(place, 0) + 100 + (row.value or 0)
        return _kept(sums, emits, lambda number: times[number] - grace_ms + 1)

    return Model(_summed(TimeWindows(size_ms, advance_ms, grace_ms), emits), expected, _view(emits), "a")


def _sliding_windows(difference_ms: int, emits: str) -> Model:
    """One window ends at each record, and one begins behind each record, if others are in it; none is late."""

    def expected(example: Given) -> Found:
        sums: dict[tuple[int, str, int, int], int] = {}
        times: dict[int, int] = {}
        for number, row in example.placed(times):
            for start in (row.timestamp_ms - difference_ms, row.timestamp_ms + 1):
                end = start + difference_ms
                inside = [
                    100 + (other.value or 0)
                    for other in example.rows
                    if other.key == row.key and start <= other.timestamp_ms <= end
                ]
                if inside:
                    sums[number, row.key or "", start, end] = sum(inside)
        return _kept(sums, emits, lambda number: times[number] - _PATIENT_MS)

    return Model(_summed(SlidingWindows(difference_ms, _PATIENT_MS), emits), expected, _view(emits), "a")


def _sessions(gap_ms: int, grace_ms: int, emits: str) -> Model:
    def expected(example: Given) -> Found:
        sums: dict[tuple[int, str, int, int], int] = {}
        times: dict[int, int] = {}
        for number, row in example.placed(times):
            closed_ms = times[number] - grace_ms - gap_ms
            key, start, end, total = row.key or "", row.timestamp_ms, row.timestamp_ms, 100 + (row.value or 0)
            # With emission on close, a session is not read in its last millisecond (docs/non-obvious.md).
            first_end_ms = closed_ms + (emits == "on close")
            merged = [
                place
                for place in sums
                if place[:2] == (number, key)
                and place[3] >= max(row.timestamp_ms - gap_ms, first_end_ms)
                and place[2] <= row.timestamp_ms + gap_ms
            ]
            start, end = min([start, *(place[2] for place in merged)]), max([end, *(place[3] for place in merged)])
            if end >= closed_ms:
                total += sum(sums.pop(place) for place in merged)
                sums[number, key, start, end] = total
        return _kept(sums, emits, lambda number: times[number] - grace_ms - gap_ms)

    return Model(_summed(SessionWindows(gap_ms, grace_ms), emits), expected, _view(emits), "a")


def _view(emits: str) -> Callable[[Sequence[tuple[str, str | None]]], Found]:
    return last_of if emits == "on update" else all_of


_EMITS = _of(["on update", "on close", "suppressed"])
_WINDOWS = st.one_of(
    st.builds(
        lambda size, hops, grace, emits: _time_windows(size, size // hops, grace, emits),
        _of([10, 20]),
        _of([1, 2, 3]),
        _of([0, 5, 30]),
        _EMITS,
    ),
    st.builds(_sliding_windows, _of([1, 5, 10]), _EMITS),
    st.builds(_sessions, _of([1, 5, 15]), _of([0, 5, 30]), _EMITS),
)


# Joins.


def _pair(left: int | None, right: int | None) -> str:
    return f"{left},{right}"


def _stream_join(kind: str, before_ms: int, after_ms: int) -> Model:
    """Each left record meets the right ones within its window; records in the order of time are never late.

    The grace period is that without which a record on the border of a one-sided window may be forgotten.
    """

    def build(builder: StreamsBuilder) -> None:
        left, right = builder.stream(TOPICS["a"]), builder.stream(TOPICS["b"])
        options: dict[str, Any] = {"key": str, "value": int, "other_value": int}
        getattr(left, kind)(right, _pair, JoinWindows(before_ms, after_ms, 1), "join", **options).to(OUT)

    def expected(example: Given) -> Found:
        found: Counter[tuple[str, str]] = Counter()
        sides = {"a": (before_ms, after_ms), "b": (after_ms, before_ms)}
        for row in example.rows:
            before, after = sides[row.topic]
            matches = [
                other.value
                for other in example.rows
                if other.topic != row.topic
                and other.key == row.key
                and row.timestamp_ms - before <= other.timestamp_ms <= row.timestamp_ms + after
            ]
            key, is_left = row.key or "", row.topic == "a"
            if matches and is_left:
                found.update((key, _pair(row.value, match)) for match in matches)
            elif not matches and (kind == "outer_join" or (kind == "left_join" and is_left)):
                found[key, _pair(row.value, None) if is_left else _pair(None, row.value)] += 1
        return found

    return Model(build, expected, all_of)


def _table_join(kind: str) -> Model:
    def build(builder: StreamsBuilder) -> None:
        left, right = builder.table(TOPICS["a"], name="left"), builder.table(TOPICS["b"], name="right")
        getattr(left, kind)(right, _pair, value=str, store="joined").to_stream().to(OUT)

    def expected(example: Given) -> Found:
        left, right = example.last("a"), example.last("b")
        keys = {"join": left.keys() & right.keys(), "left_join": left.keys(), "outer_join": left.keys() | right.keys()}
        return {key: _pair(left.get(key), right.get(key)) for key in keys[kind]}

    return Model(build, expected, last_of)


def _referred(key: str, value: int | None) -> str | None:
    return None if value is None or value % 5 == 0 else _KEYS[value % len(_KEYS)]


def _foreign_key_join(kind: str) -> Model:
    def build(builder: StreamsBuilder) -> None:
        left, right = builder.table(TOPICS["a"], name="left"), builder.table(TOPICS["b"], name="right")
        joined = getattr(left, kind)(right, _pair, foreign_key=_referred, store="joined", value=str)
        joined.to_stream().to(OUT)

    def expected(example: Given) -> Found:
        left, right = example.last("a"), example.last("b")
        found = {key: (value, right.get(_referred(key, value) or "none")) for key, value in left.items()}
        return {key: _pair(*pair) for key, pair in found.items() if kind == "left_join" or pair[1] is not None}

    return Model(build, expected, last_of)


def _regrouped(is_count: bool) -> Model:
    """A table of which each row belongs to a group by its value; empty groups have the sum 0."""

    def build(builder: StreamsBuilder) -> None:
        rows = builder.table(TOPICS["a"], name="rows")
        grouped = rows.group_by(lambda key, value: (_KEYS[value % 4], value), key=str, value=int)
        table = (
            grouped.count("groups")
            if is_count
            else grouped.reduce(
                lambda total, value: total + value, lambda total, value: total - value, name="groups", value=int
            )
        )
        table.filter(lambda key, value: value != 0).map_values(str).to_stream().to(OUT)

    def expected(example: Given) -> Found:
        sums: Counter[str] = Counter()
        for value in example.last("a").values():
            sums[_KEYS[value % 4]] += 1 if is_count else value
        return {key: str(total) for key, total in sums.items() if total}

    return Model(build, expected, last_of, "a")


def _as_of() -> Model:
    """Each record meets the row that was valid at its time, however late the row comes."""

    def build(builder: StreamsBuilder) -> None:
        rows = builder.table(TOPICS["b"], name="rows", history=timedelta(milliseconds=10 * _FAR_MS))
        stream = builder.stream(TOPICS["a"]).filter(lambda key, value: value is not None)
        grace = timedelta(milliseconds=_PATIENT_MS)
        stream.left_join(rows, _pair, key=str, value=int, grace=grace).to(OUT)

    def expected(example: Given) -> Found:
        found: Counter[tuple[str, str]] = Counter()
        for row in example.rows:
            if row.topic == "a" and row.value is not None and row.timestamp_ms < _FARTHER_MS:
                times = [
                    (other.timestamp_ms, number)
                    for number, other in enumerate(example.rows)
                    if other.topic == "b" and other.key == row.key and other.timestamp_ms <= row.timestamp_ms
                ]
                match = example.rows[max(times)[1]].value if times else None
                found[row.key or "", _pair(row.value, match)] += 1
        return found

    return Model(build, expected, all_of)


_JOINS = _of(["join", "left_join", "outer_join"])
_PARTITIONS = _of([1, 3])
_UNTIL = st.integers(0, 25)


def _check(model: Model, rows: Sequence[Row], partitions: int, until: int) -> None:
    example = Given([row for row in rows if row.topic in model.topics], partitions, model.topics)
    expected = model.expected(example)
    for way, found in _ways(model, example, until):
        assert found == expected, way


@examples(30)
@given(_WINDOWS, _rows(), st.booleans(), _PARTITIONS, _UNTIL)
def test_windows_hold_what_was_not_late_for_them(
    model: Model, rows: list[Row], is_closed: bool, partitions: int, until: int
) -> None:
    _check(model, [*rows, *(_CLOSING if is_closed else [])], partitions, until)


@pytest.mark.world
@examples(20)
@given(st.builds(_stream_join, _JOINS, _of([0, 5, 20]), _of([0, 5, 20])), _rows(in_order=True), _PARTITIONS, _UNTIL)
def test_joins_of_streams_have_each_pair_once_and_each_record_without_a_match_once(
    model: Model, rows: list[Row], partitions: int, until: int
) -> None:
    _check(model, [*rows, *_CLOSING], partitions, until)


@pytest.mark.world
@examples(25)
@given(
    st.builds(_table_join, _JOINS) | st.builds(_regrouped, st.booleans()), _rows(tombstones=True), _PARTITIONS, _UNTIL
)
def test_tables_end_with_what_their_last_rows_give(model: Model, rows: list[Row], partitions: int, until: int) -> None:
    """Times of rows are any: the last one to arrive counts."""
    _check(model, rows, partitions, until)


@pytest.mark.world
@examples(20)
@given(
    st.builds(_foreign_key_join, _of(["join", "left_join"])), _rows(tombstones=True, in_order=True), _PARTITIONS, _UNTIL
)
def test_foreign_key_joins_end_with_what_the_last_rows_give(
    model: Model, rows: list[Row], partitions: int, until: int
) -> None:
    """Each row has a later time than the one before, so its result is there before the next one is read."""
    _check(model, rows, partitions, until)


@pytest.mark.world
@examples(10)
@given(_rows(tombstones=True), _PARTITIONS, _UNTIL)
def test_records_that_wait_meet_the_row_of_their_time(rows: list[Row], partitions: int, until: int) -> None:
    _check(_as_of(), [*rows, *_CLOSING], partitions, until)
