"""History has no wall clock: whatever asks for it is refused by name, unless it is said what to do."""

import json
from collections import Counter
from datetime import timedelta

import pytest

from streams import (
    EmitStrategy,
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    TimeWindows,
    Topic,
    punctuate,
)
from streams.replay import ReplayError, replay

ticks = Topic("ticks", key=str, value=int)
out = Topic("out", key=str, value=int)


class Counting(Processor[str, int, str, int]):
    """Gives out how many records it saw, every second of the wall clock."""

    def init(self, context) -> None:
        self.seen = 0

    def process(self, record: Record[str, int]) -> None:
        self.seen += 1

    @punctuate(timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME)
    def tell(self, now_ms: int) -> None:
        self.context.forward("seen", self.seen, timestamp_ms=now_ms)


class Asking(Processor[str, int, str, int]):
    """Asks for the time of day at each record."""

    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.key, self.context.wall_clock_ms - record.timestamp_ms)


def counting(builder: StreamsBuilder) -> None:
    builder.stream(ticks).process(Counting, name="counting").to(out)


def asking(builder: StreamsBuilder) -> None:
    builder.stream(ticks).process(Asking, name="asking").to(out)


@pytest.fixture
def history(tmp_path):
    path = tmp_path / "ticks.records.jsonl"
    times = (10_000, 10_400, 11_100, 10_900, 14_000)
    path.write_text("".join(json.dumps({"key": "a", "value": 1, "timestamp": time}) + "\n" for time in times))
    return {"ticks": path}


@pytest.mark.case
@pytest.mark.parametrize(("topology", "name"), [(counting, "counting"), (asking, "asking")])
def test_who_asks_for_the_wall_clock_is_refused_by_name(history, topology, name):
    with pytest.raises(ReplayError, match=rf"node '{name}' uses wall-clock time.*wall_clock='skip'"):
        replay(topology, history, executor="local", processes=1)


@pytest.mark.slow
def test_wall_clock_source_is_refused_by_name(tmp_path):
    path = tmp_path / "ticks.records.jsonl"
    path.write_text('{"value": 1, "timestamp": 7}\n')

    with pytest.raises(ReplayError, match="takes the wall clock as event time"):
        replay(
            lambda builder: builder.stream(ticks).to(out),
            {"ticks": path},
            executor="local",
            processes=1,
            default_timestamp_extractor="wall_clock",
        )


def test_skipped_punctuations_never_fire(history):
    with replay(counting, history, executor="local", processes=1, wall_clock="skip") as result:
        assert result.rows(out) == []


@pytest.mark.case
@pytest.mark.parametrize("slices", [None, 2, 5])
def test_times_of_appending_drive_the_clock(history, slices):
    """It begins with the first record, never goes back, and a jump over intervals fires once."""
    with replay(counting, history, executor="local", processes=1, wall_clock="append_time", slices=slices) as result:
        given = [(record.value, record.timestamp_ms) for record in result.rows(out)]

    assert [time for _, time in given] == [11_100, 14_000]
    if slices is None:  # An attribute of a processor is no state: slices forget it.
        assert [seen for seen, _ in given] == [3, 5]


@pytest.mark.slow
def test_times_of_appending_are_the_time_of_day(history):
    with replay(asking, history, executor="local", processes=1, wall_clock="append_time") as result:
        assert [record.value for record in result.rows(out)] == [0, 0, 0, 200, 0]


@pytest.mark.slow
def test_times_of_appending_drive_the_clock_of_a_stage_that_feeds_itself(tmp_path):
    """A foreign-key join is a cycle: what one task sends another of the stage has times too."""
    path = tmp_path / "ticks.records.jsonl"
    path.write_text("".join(json.dumps({"key": f"k{at}", "value": at, "timestamp": at}) + "\n" for at in range(6)))

    def topology(builder: StreamsBuilder) -> None:
        left = builder.table(ticks)
        right = builder.table(Topic("rates", key=int, value=int))
        left.join(right, lambda one, two: one + two, foreign_key=lambda key, value: value).to_stream().to(out)

    rates = tmp_path / "rates.records.jsonl"
    rates.write_text("".join(json.dumps({"key": at, "value": 10, "timestamp": at}) + "\n" for at in range(6)))
    history = {"ticks": path, "rates": rates}
    with replay(topology, history, executor="local", wall_clock="append_time", partitions=2) as result:
        found = sorted(record.value for record in result.rows(out))
    assert found == [10, 11, 12, 13, 14, 15]


def idling(builder: StreamsBuilder) -> None:
    """Counts per second, emitted when the window has closed, and is closed by half a second without records."""
    counts = builder.stream(ticks, idle_close=timedelta(milliseconds=500)).group_by_key()
    closed = counts.windowed_by(TimeWindows.of(timedelta(seconds=1))).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    closed.count("counts").to_stream().map(lambda key, count: (str(key.window.start_ms), count)).to(out)


def test_idle_inputs_are_refused_without_a_wall_clock(history):
    with pytest.raises(ReplayError, match=r"idle_close.*wall_clock='append_time'"):
        replay(idling, history, executor="local", processes=1)


@pytest.mark.slow
@pytest.mark.parametrize(("wall_clock", "expected"), [("skip", []), ("append_time", [("12000", 1)])])
def test_gaps_between_times_of_appending_close_windows(tmp_path, wall_clock, expected):
    """12.9 s and 0.6 s later: the window of 12 s has closed before the late record of 12.95 s is taken."""
    path = tmp_path / "ticks.records.jsonl"
    rows = [{"key": "a", "value": 12_900, "timestamp": 1_000}, {"key": "a", "value": 12_950, "timestamp": 1_600}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = Topic("ticks", key=str, value=int, timestamp=lambda value: value)

    def topology(builder: StreamsBuilder) -> None:
        counts = builder.stream(own, idle_close=timedelta(milliseconds=500)).group_by_key()
        closed = counts.windowed_by(TimeWindows.of(timedelta(seconds=1))).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        closed.count("counts").to_stream().map(lambda key, count: (str(key.window.start_ms), count)).to(out)

    for slices in (None, 2):
        with replay(
            topology, {"ticks": path}, executor="local", processes=1, wall_clock=wall_clock, slices=slices
        ) as result:
            assert [(record.key, record.value) for record in result.rows(out)] == expected
            assert sum(drop.count for drop in result.drops()) == len(expected)


def second(value: int, answer: int | None) -> int:
    assert answer is not None
    return answer


def looked_up(builder: StreamsBuilder) -> None:
    """The answer for a key is the number of its calls, and is fresh for a second."""
    asked = Counter[str]()

    def number(key: str) -> int:
        asked[key] += 1
        return asked[key]

    builder.stream(ticks).look_up(number, name="numbers", ttl=timedelta(seconds=1)).map_pairs(second).to(out)


def test_answers_of_look_ups_are_refused_without_a_wall_clock_unless_they_do_not_age(history):
    with pytest.raises(ReplayError, match=r"node 'numbers' uses wall-clock time.*wall_clock='skip'"):
        replay(looked_up, history, executor="local", processes=1)


@pytest.mark.slow
@pytest.mark.parametrize(("wall_clock", "expected"), [("skip", [1, 1, 1, 1]), ("append_time", [1, 1, 2, 3])])
def test_answers_of_look_ups_age_by_the_times_of_appending(tmp_path, wall_clock, expected):
    """A batch of calls ends where it is full, here after each record: a call starts at the time of its record."""
    path = tmp_path / "ticks.records.jsonl"
    rows = [{"key": "a", "value": 0, "timestamp": time} for time in (1_000, 1_999, 2_000, 9_000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def topology(builder: StreamsBuilder) -> None:
        asked = Counter[str]()

        def number(key: str) -> int:
            asked[key] += 1
            return asked[key]

        ttl = timedelta(seconds=1)
        builder.stream(ticks).look_up(number, ttl=ttl, concurrency=1).map_pairs(second).to(out)

    with replay(topology, {"ticks": path}, executor="local", processes=1, wall_clock=wall_clock) as result:
        assert [record.value for record in result.rows(out)] == expected
