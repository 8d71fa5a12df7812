"""``emit(early_every=...)``: early results of windows, and the final one."""

from datetime import timedelta

import pytest

from streams import (
    EmitStrategy,
    ResultTiming,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    TopologyError,
    time_windowed,
)
from streams.testing import TopologyTestDriver
from streams.topology.describe import describe

SECOND = timedelta(seconds=1)
orders = Topic("orders", key=str, value=int)
counts = Topic("counts", key=time_windowed(str, SECOND), value=int)
texts = Topic("texts", key=str, value=str)


def counted(every, **options):
    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(orders, idle_close=SECOND / 5).group_by_key().windowed_by(TimeWindows.of(SECOND))
        windowed.emit(early_every=every).count("counted", **options).to_stream().to(counts)

    return topology


def pipe(driver, *records):
    for key, time_ms in records:
        driver.pipe(orders, 1, key=key, timestamp_ms=time_ms)


def timings(driver):
    return [(r.key.key, r.value, ResultTiming.of(r.headers)) for r in driver.read_records(counts)]


def test_headers_say_whether_a_result_is_early_or_final():
    with TopologyTestDriver(counted(2)) as driver:
        pipe(driver, ("a", 0), ("a", 1), ("a", 2), ("b", 1000))

        assert timings(driver) == [("a", 2, ResultTiming.EARLY), ("a", 3, ResultTiming.FINAL)]
    assert ResultTiming.of(()) is None


def test_idle_inputs_bring_early_and_final_results():
    with TopologyTestDriver(counted(SECOND / 4)) as driver:
        pipe(driver, ("a", 200), ("b", 210))
        assert timings(driver) == []
        driver.advance_wall_clock(300)
        assert timings(driver) == [("a", 1, ResultTiming.EARLY), ("b", 1, ResultTiming.EARLY)]
        driver.advance_wall_clock(1_000)
        assert timings(driver) == [("a", 1, ResultTiming.FINAL), ("b", 1, ResultTiming.FINAL)]


def test_store_has_each_update_and_suppress_downstream_leaves_only_final_results():
    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(orders).group_by_key().windowed_by(TimeWindows.of(SECOND))
        early = windowed.emit(early_every=2).count("counted")
        early.suppress(Suppressed.until_window_closes()).to_stream().to(counts)

    with TopologyTestDriver(topology) as driver:
        pipe(driver, ("a", 0), ("a", 1), ("a", 2))
        assert next(value for _, value in driver.store("counted").fetch_range("a", 0, 0)).value == 3
        pipe(driver, ("b", 1000), ("b", 2000))
        assert timings(driver) == [("a", 3, ResultTiming.FINAL)]


def test_names_are_given_to_node_and_store():
    builder = StreamsBuilder()
    counted(2)(builder)

    description = describe(builder.build())

    nodes = {node.name: node for sub in description.sub_topologies for node in sub.nodes}
    assert nodes["counted-early"].stores == ("counted-early-store",)
    assert description.internal_topics == ("counted-changelog", "counted-early-store-changelog")


def test_interval_of_stream_time_is_described():
    builder = StreamsBuilder()
    counted(SECOND / 4)(builder)
    assert "early_every: 250 ms" in describe(builder.build()).to_text()


def test_without_logging_there_is_no_changelog():
    builder = StreamsBuilder()
    counted(2, logging=False)(builder)

    assert describe(builder.build()).internal_topics == ()


def test_late_records_are_those_of_the_aggregation():
    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(orders).group_by_key().windowed_by(SessionWindows.of(SECOND)).emit(early_every=1)
        windowed.count()
        windowed.late().map_values(lambda value: "late").to(texts)

    with TopologyTestDriver(topology) as driver:
        pipe(driver, ("a", 0), ("a", 5000), ("a", 1))
        assert driver.read(texts) == [("a", "late")]
        assert [(drop.reason, drop.count) for drop in driver.drops()] == [("late", 1)]


def test_why_names_the_update_of_an_early_result_and_when_a_window_is_due():
    with TopologyTestDriver(counted(SECOND / 4)) as driver:
        pipe(driver, ("a", 0), ("a", 1), ("b", 300), ("a", 301))
        (output,) = driver.why("a", counts).outputs
        (early,) = output.causes
        assert "the result of its window at that time" in early.text
        assert driver.why("b", counts).reasons == ("window open",)


@pytest.mark.parametrize(
    ("every", "message"),
    [
        (0, "must be at least 1 ms or 1 record, not 0"),
        (-1, "must be at least 1 ms or 1 record, not -1"),
        (timedelta(microseconds=5), "must be in whole milliseconds"),
        (-SECOND, "must not be negative"),
        (True, "must be a timedelta or a number of records, not True"),
        (1.5, "must be a timedelta or a number of records, not 1.5"),
        (None, "must be a timedelta or a number of records, not None"),
    ],
)
@pytest.mark.parametrize("windows", [TimeWindows.of(SECOND), SessionWindows.of(SECOND)])
def test_other_intervals_are_refused(every, message, windows):
    with pytest.raises(TopologyError, match=message):
        StreamsBuilder().stream(orders).group_by_key().windowed_by(windows).emit(early_every=every)


@pytest.mark.parametrize("windows", [TimeWindows.of(SECOND), SessionWindows.of(SECOND)])
def test_second_choice_of_results_is_refused_and_does_not_silently_replace_the_first(windows):
    windowed = StreamsBuilder().stream(orders).group_by_key().windowed_by(windows).emit(early_every=2)
    with pytest.raises(TopologyError, match=r"emit_strategy of <KGrouped.*> follows emit\(early_every=...\)"):
        windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    with pytest.raises(TopologyError, match=r"emit of <KGrouped.*> follows emit\(early_every=...\)"):
        windowed.emit(early_every=3)


def test_records_of_a_deleted_window_are_not_counted_for_another_window_of_the_key():
    def unless_second(key, value, total):
        return None if value == 2 and total else total + value

    def topology(builder: StreamsBuilder) -> None:
        hopping = TimeWindows.of(SECOND, advance=SECOND / 2)
        windowed = builder.stream(orders).group_by_key().windowed_by(hopping).emit(early_every=2)
        windowed.aggregate(lambda: 0, unless_second, value=int).to_stream().to(counts)

    with TopologyTestDriver(topology) as driver:
        driver.pipe_all(orders, [("a", 1, 300), ("a", 2, 700)])
        assert driver.read(counts) == []
        driver.pipe(orders, 3, key="a", timestamp_ms=800)
        assert [(key.window.start_ms, value) for key, value in driver.read(counts)] == [(500, 5)]
