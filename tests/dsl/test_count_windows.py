"""Windows by number of records: their keys, store, queries and arguments."""

from datetime import timedelta

import pytest

from streams import (
    CountWindows,
    EmitStrategy,
    StreamsBuilder,
    Suppressed,
    Topic,
    TopologyError,
    Window,
    Windowed,
    count_windowed,
    time_windowed,
)
from streams.core.serdes.serdes import PinnedSerde
from streams.runtime import RangeQuery
from streams.testing import TopologyTestDriver
from streams.topology.describe import describe

SECOND = timedelta(seconds=1)
orders = Topic("orders", key=str, value=int)
totals = Topic("totals", key=count_windowed(str, 3), value=int)


def summed(builder: StreamsBuilder) -> None:
    windowed = builder.stream(orders).group_by_key().windowed_by(CountWindows.of(3))
    windowed.reduce(lambda one, two: one + two, name="summed").to_stream().to(totals)


def pipe(driver, *values, key="a"):
    for number, value in enumerate(values):
        driver.pipe(orders, value, key=key, timestamp_ms=number)


def test_store_is_queried_by_windowed_key_and_keeps_the_last_closed_window():
    with TopologyTestDriver(summed) as driver:
        pipe(driver, 1, 2, 3, 4, 5, 6, 7)
        store = driver.store("summed")

        assert store.get(Windowed("a", Window(3, 6))).value == 15
        assert store.get(Windowed("a", Window(6, 9))).value == 7
        assert store.get(Windowed("a", Window(0, 3))) is None
        assert driver.store("summed-numbers").get("a") == 7


def test_names_of_node_stores_and_changelogs():
    builder = StreamsBuilder()
    summed(builder)

    description = describe(builder.build())

    nodes = {node.name: node for sub in description.sub_topologies for node in sub.nodes}
    assert set(nodes["summed"].stores) == {"summed", "summed-numbers"}
    assert set(description.internal_topics) == {"summed-changelog", "summed-numbers-changelog"}


def test_several_streams_share_the_numbers_of_a_cogroup():
    others = Topic("others", key=str, value=int)

    def topology(builder: StreamsBuilder) -> None:
        first = builder.stream(orders).group_by_key().cogroup(lambda key, value, total: total + value, value=int)
        both = first.cogroup(builder.stream(others).group_by_key(), lambda key, value, total: total + value)
        both.windowed_by(CountWindows.of(3)).aggregate(lambda: 0, name="summed").to_stream().to(totals)

    with TopologyTestDriver(topology) as driver:
        for topic, value in ((orders, 1), (others, 2), (orders, 4), (others, 8)):
            driver.pipe(topic, value, key="a", timestamp_ms=0)

        assert [(*key.window, value) for key, value in driver.read(totals)] == [
            (0, 3, 1),
            (0, 3, 3),
            (0, 3, 7),
            (3, 6, 8),
        ]


def test_aggregate_of_none_deletes_a_window_and_its_number_goes_on():
    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(orders).group_by_key().windowed_by(CountWindows.of(3))
        last = windowed.aggregate(lambda: 0, lambda key, value, _: value or None, name="last", value=int)
        last.to_stream(tombstones=False).to(totals)

    with TopologyTestDriver(topology) as driver:
        pipe(driver, 1, 0, 3, 4)

        assert [(*key.window, value) for key, value in driver.read(totals)] == [(0, 3, 1), (0, 3, 3), (3, 6, 4)]


def test_why_names_the_records_of_a_window_and_one_that_waits():
    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(orders).group_by_key().windowed_by(CountWindows.of(3))
        windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to_stream().to(totals)

    with TopologyTestDriver(topology) as driver:
        pipe(driver, 1, 2, 3, 4)
        story = driver.why("a", totals)
        (output,) = story.outputs
        (made,) = output.causes
        assert output.text == "'a' in the window from its record 0 up to 3: 3"
        assert "3 records of key 'a' in the window from its record 0 up to 3" in made.text
        assert [cause.offset for cause in made.causes] == [0, 1, 2]
        pipe(driver, 1, key="b")
        assert driver.why("b", totals).reasons == ("window open",)


def test_key_of_an_undeclared_type_is_read_by_the_type_in_the_stored_data():
    serde = PinnedSerde("node")
    serde.pin("count_windowed:3:string")

    assert serde.deserialize(b"a" + (3).to_bytes(8, "big")) == Windowed("a", Window(3, 6))


def test_topics_of_other_windows_are_refused():
    builder = StreamsBuilder()
    table = builder.stream(orders).group_by_key().windowed_by(CountWindows.of(3)).count()

    for serde in (time_windowed(str, timedelta(milliseconds=3)), count_windowed(str, 4)):
        with pytest.raises(TopologyError, match=r"count windows of 3 records.*declare count_windowed\(\.\.\., 3\)"):
            table.to_stream().to(Topic("wrong", key=serde, value=int))


def test_suppress_until_windows_close_names_the_emit_strategy():
    table = StreamsBuilder().stream(orders).group_by_key().windowed_by(CountWindows.of(3)).count()

    with pytest.raises(TopologyError, match="for count windows and a Windower, use emit_strategy"):
        table.suppress(Suppressed.until_window_closes())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "size must be at least 1 record, but is 0"),
        ((-3,), "size must be at least 1 record"),
        ((2.5,), "size must be a number of records, not 2.5"),
        ((True,), "size must be a number of records, not True"),
        ((SECOND,), "size must be a number of records"),
        ((3, 0), "advance must be positive and at most the window size of 3 records, but is 0"),
        ((3, 4), "advance must be positive and at most the window size of 3 records, but is 4"),
        ((3, 1.0), "advance must be a number of records, not 1.0"),
    ],
)
def test_other_sizes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        CountWindows.of(*arguments)


def test_retention_is_refused_because_it_is_fixed():
    windowed = StreamsBuilder().stream(orders).group_by_key().windowed_by(CountWindows.of(3))

    with pytest.raises(TopologyError, match="retention= of count windows"):
        windowed.count(retention=SECOND)


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_serde_needs_a_number_of_records(size):
    with pytest.raises(ValueError, match="must be a positive number of records"):
        count_windowed(str, size)


def test_entries_of_a_range_query_have_whole_keys():
    with TopologyTestDriver(summed) as driver:
        pipe(driver, 1, 2, 3, 4)
        found = RangeQuery().entries(driver.store("summed"))
        assert [entry.key for entry in found] == [Windowed("a", Window(0, 3)), Windowed("a", Window(3, 6))]
