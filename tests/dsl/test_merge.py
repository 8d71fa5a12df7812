"""A merge forwards each record as often as the stream that it came through is merged."""

import re
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Processor, Record, StreamsBuilder, TimeWindows, Topic
from streams.testing import TopologyTestDriver

one = Topic("one", key=str, value=int)
other = Topic("other", key=str, value=int)
out = Topic("out", key=str, value=int)


def _merged_with_itself(stream):
    return stream.merge(stream)


#: Topologies that merge equal streams, and how often each record of ``one`` comes out.
SHAPES = {
    "a stream": (lambda builder: _merged_with_itself(builder.stream(one)), 2),
    "a stream, twice": (lambda builder: (s := builder.stream(one)).merge(s).merge(s), 3),
    "a merge": (lambda builder: _merged_with_itself(_merged_with_itself(builder.stream(one))), 4),
    "two equal sources": (lambda builder: builder.stream(one).merge(builder.stream(one)), 2),
    "two equal patterns": (
        lambda builder: builder.stream(re.compile("on."), key=str, value=int).merge(
            builder.stream(re.compile("on."), key=str, value=int)
        ),
        2,
    ),
    "a mapped stream": (lambda builder: _merged_with_itself(builder.stream(one).map_values(lambda value: value)), 2),
    "a stream of another key": (
        lambda builder: _merged_with_itself(builder.stream(one).select_key(lambda key, _: key)),
        2,
    ),
    "a repartitioned stream": (lambda builder: _merged_with_itself(builder.stream(one).repartition("r")), 2),
    "a branch": (
        lambda builder: _merged_with_itself(builder.stream(one).split().branch(lambda *_: True)),
        2,
    ),
}


@pytest.mark.parametrize("optimization", ["none", "all"])
@pytest.mark.parametrize("handler", ["fail", "continue"])
@pytest.mark.parametrize("shape", SHAPES)
def test_each_record_comes_as_often_as_it_is_merged(shape, handler, optimization):
    build, times = SHAPES[shape]
    settings = {"topology_optimization": optimization, "processing_handler": handler}
    with TopologyTestDriver(lambda builder: build(builder).to(out), **settings) as driver:
        driver.pipe(one, 1, key="a", timestamp_ms=1)
        driver.pipe(one, 2, key="b", timestamp_ms=2)

        assert driver.read(out) == [("a", 1)] * times + [("b", 2)] * times


@pytest.mark.parametrize("optimization", ["none", "all"])
def test_a_count_of_a_stream_that_is_merged_with_itself_counts_each_record_twice(optimization):
    """The merge is before the repartition topic that the new key needs; optimized, it is behind it."""

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(one).select_key(lambda key, _: key.upper())
        grouped = stream.merge(stream).group_by_key()
        grouped.count("all").to_stream().to(out)
        windows = TimeWindows.of(timedelta(seconds=1))
        grouped.windowed_by(windows).count("windowed").to_stream(lambda key, _: key.key).to("windowed-out")

    with TopologyTestDriver(topology, topology_optimization=optimization) as driver:
        for value in (1, 2):
            driver.pipe(one, value, key="a", timestamp_ms=value)

        assert driver.read(out) == [("A", 1), ("A", 2), ("A", 3), ("A", 4)]
        assert [pair[1] for pair in driver.read(Topic("windowed-out", key=str, value=int))] == [1, 2, 3, 4]


#: A graph of streams: each step adds one, from the streams before it.
STEPS = st.lists(
    st.tuples(st.sampled_from(["merge", "map", "key", "again"]), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=7,
)


@given(STEPS, st.sampled_from(["none", "all"]))
def test_records_come_as_often_as_there_are_paths_to_the_output(steps, optimization):
    """Counted by brute force: a merge has the paths of both of its streams."""
    paths: list[Counter[str]] = [Counter(one=1), Counter(other=1)]
    for kind, left, right in steps:
        size = len(paths)
        paths.append(
            {
                "merge": lambda a, b: paths[a] + paths[b],
                "map": lambda a, _: paths[a],
                "key": lambda a, _: paths[a],
                "again": lambda a, _: paths[a % 2],
            }[kind](left % size, right % size)
        )

    def topology(builder: StreamsBuilder) -> None:
        streams = [builder.stream(one), builder.stream(other)]
        for kind, left, right in steps:
            stream = streams[left % len(streams)]
            if kind == "merge":
                stream = stream.merge(streams[right % len(streams)])
            elif kind == "map":
                stream = stream.map_values(lambda value: value)
            elif kind == "key":
                stream = stream.select_key(lambda key, _: key)
            else:
                stream = builder.stream((one, other)[left % len(streams) % 2])
            streams.append(stream)
        streams[-1].to(out)

    with TopologyTestDriver(topology, topology_optimization=optimization) as driver:
        driver.pipe(one, 1, key="one", timestamp_ms=1)
        driver.pipe(other, 2, key="other", timestamp_ms=2)

        assert Counter(key for key, _ in driver.read(out)) == paths[-1]


class ToTheMerge(Processor[str, int, str, int]):
    """Names its child; the merge is one, however often it is connected."""

    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.key, record.value, to="m")


@pytest.mark.parametrize("handler", ["fail", "continue"])
def test_a_record_that_is_forwarded_to_the_merge_by_name_comes_as_often_as_it_is_merged(handler):
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(one).process(ToTheMerge, name="p")
        stream.merge(stream, name="m").to(out)

    with TopologyTestDriver(topology, processing_handler=handler) as driver:
        driver.pipe(one, 1, key="a", timestamp_ms=1)

        assert driver.read(out) == [("a", 1), ("a", 1)]


def test_a_repartition_topic_that_aggregations_share_is_written_once():
    """The topic of a grouping with a name is declared by each of its aggregations."""

    def topology(builder: StreamsBuilder) -> None:
        grouped = builder.stream(one).group_by(lambda key, _: key, name="g")
        grouped.count("counts").to_stream().to(out)
        grouped.reduce(lambda total, value: total + value, name="sums")
        grouped.aggregate(lambda: 0, lambda _, value, total: total + value, name="totals")

    with TopologyTestDriver(topology, application_id="app") as driver:
        driver.pipe(one, 1, key="a", timestamp_ms=1)

        assert driver.read(out) == [("a", 1)]
        assert len(driver.read_bytes("app-g-repartition")) == 1
