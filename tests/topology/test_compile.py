"""The generated program: order of calls, and errors that find their node."""

import sys
from datetime import timedelta
from functools import partial

import pytest

from streams import ProcessingError, Processor, Serde, SessionWindows, StreamsBuilder, TimeWindows, Topic
from streams.testing import TopologyTestDriver

numbers = Topic("numbers", key=str, value=int)
out = Topic("out", key=str, value=int)


@pytest.mark.parametrize("node", ["keep", "double", "key", "spread"])
def test_failure_is_that_of_the_node_whose_function_failed(node):
    """The same failure at each place of one chain, which is one generated function."""

    def at(name, result):
        def function(key, value):
            if name == node and value == 3:
                raise RuntimeError("here")
            return result(key, value)

        return function

    def topology(builder: StreamsBuilder) -> None:
        (
            builder.stream(numbers)
            .filter(at("keep", lambda key, value: True), name="keep")
            .map_values(at("double", lambda key, value: value), name="double")
            .select_key(at("key", lambda key, value: key), name="key")
            .flat_map(at("spread", lambda key, value: [(key, value)]), name="spread")
            .to(out)
        )

    driver = TopologyTestDriver(topology)
    driver.pipe(numbers, 1, key="a", timestamp_ms=0)
    with pytest.raises(ProcessingError, match="RuntimeError: here") as failure:
        driver.pipe(numbers, 3, key="a", timestamp_ms=1)

    assert failure.value.node == node
    assert (failure.value.topic, failure.value.partition, failure.value.offset) == ("numbers", 0, 1)
    assert driver.read(out) == [("a", 1)]


def test_chain_deeper_than_python_nests_blocks():
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(numbers)
        for _ in range(60):
            stream = stream.flat_map_values(lambda value: [value + 1])
        stream.to(out)

    with TopologyTestDriver(topology) as driver:
        driver.pipe(numbers, 0, key="a")

        assert driver.read(out) == [("a", 60)]


def test_forward_to_a_child_that_is_none_names_the_children():
    class Routes(Processor[str, int, str, int]):
        def process(self, record):
            self.context.forward(record.key, record.value, to="nowhere")

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(numbers).process(Routes).to(out, name="sink")

    driver = TopologyTestDriver(topology)
    with pytest.raises(ProcessingError, match="has no child 'nowhere'; its children are: 'sink'"):
        driver.pipe(numbers, 1, key="a")


def positive(number: int) -> bytes:
    if number < 0:
        raise ValueError("negative")
    return b"%d" % number


COUNTED = Serde("counted", positive, int, is_immutable=True)


def test_what_fails_in_a_sink_failed_in_the_node_that_forwards_to_it():
    """The rest of that node's record is dropped with it, what had gone on before is not."""

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(numbers)
        same = stream.map_values(lambda value: value, name="same")
        same.to("before", key=str, value=int)
        same.to("counted", key=str, value=COUNTED)
        same.to("behind", key=str, value=int)
        stream.to(out)

    with TopologyTestDriver(topology, processing_handler="continue") as driver:
        for value in (1, -1, 2):
            driver.pipe(numbers, value, key="a")

        found = {name: driver.read(Topic(name, key=str, value=int)) for name in ("before", "behind", "out")}
        assert {name: [value for _, value in rows] for name, rows in found.items()} == {
            "before": [1, -1, 2],
            "behind": [1, 2],
            "out": [1, -1, 2],
        }
        assert driver.metric("dropped-records-total", "same") == 1


def test_what_fails_in_a_sink_behind_a_source_fails_the_task():
    """As in Kafka Streams only processors have a processing handler."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(numbers).to("counted", name="sink", key=str, value=COUNTED)

    with TopologyTestDriver(topology, processing_handler="continue") as driver:
        with pytest.raises(ProcessingError, match="negative") as failure:
            driver.pipe(numbers, -1, key="a")
        assert failure.value.node == "sink"


WINDOWS = TimeWindows.of(timedelta(milliseconds=10), advance=timedelta(milliseconds=5), grace=timedelta(seconds=1))


@pytest.mark.parametrize("stores", ["in_memory", "rocksdb"])
@pytest.mark.parametrize("cache_max_bytes", [0, 1_000, 1_000_000])
@pytest.mark.parametrize(
    ("kind", "zero", "add", "expected"),
    [
        (list[int], list, lambda known, value: [*known, value], {5: [4], 10: [4, 5], 15: [5]}),
        (int, int, lambda known, value: known + value, {5: 4, 10: 9, 15: 5}),
    ],
    ids=["held as bytes", "held as it is"],
)
def test_aggregator_that_is_written_out_is_called_once_for_each_window(
    kind, zero, add, expected, stores, cache_max_bytes, tmp_path
):
    calls = []

    def aggregate(key, value, known):
        calls.append(value)
        return None if value == 3 else add(known, value)

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(numbers).group_by_key().windowed_by(WINDOWS).aggregate(zero, aggregate, name="kept", value=kind)

    settings = {"default_store": stores, "state_dir": tmp_path, "cache_max_bytes": cache_max_bytes}
    with TopologyTestDriver(topology, **settings) as driver:
        for value, time_ms in [(1, 12), (2, 13), (3, 14), (4, 14), (5, 16)]:
            driver.pipe(numbers, value, key="a", timestamp_ms=time_ms)
        found = {start: value.value for start, value in driver.store("kept").fetch_range("a", 0, 100)}

    # The windows of the first four begin at 5 and 10, those of the last at 10 and 15.
    assert calls == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert found == expected


@pytest.mark.parametrize("windows", [WINDOWS, SessionWindows.of(timedelta(milliseconds=5))], ids=["hopping", "session"])
def test_failure_behind_a_windowed_operator_is_that_of_its_node(windows):
    def fail(key, value):
        raise RuntimeError("here")

    def topology(builder: StreamsBuilder) -> None:
        counts = builder.stream(numbers).group_by_key().windowed_by(windows).count("counts")
        counts.to_stream(lambda key, _: key.key).filter(fail, name="behind").to(out)

    driver = TopologyTestDriver(topology)
    with pytest.raises(ProcessingError, match="RuntimeError: here") as failure:
        driver.pipe(numbers, 1, key="a", timestamp_ms=20)

    assert failure.value.node == "behind"


def test_values_of_a_repartition_topic_that_nobody_asks_for_are_left_alone():
    read = []

    def decode(data):
        read.append(data)
        return int(data)

    seen = Serde("seen", lambda value: b"%d" % value, decode, is_immutable=True)

    def counted(builder: StreamsBuilder, reads_values: bool) -> None:
        spread = builder.stream(numbers).select_key(lambda _, value: str(value % 2)).repartition("spread", value=seen)
        if reads_values:
            spread.peek(lambda _, value: None)
        spread.group_by_key().windowed_by(WINDOWS).count("counts").to_stream(lambda key, _: key.key).to(out)

    for reads_values in (False, True):
        with TopologyTestDriver(partial(counted, reads_values=reads_values)) as driver:
            for value in range(4):
                driver.pipe(numbers, value, key="a", timestamp_ms=12)
            assert driver.read(out) == [("0", 1), ("0", 1), ("1", 1), ("1", 1), ("0", 2), ("0", 2), ("1", 2), ("1", 2)]
        assert bool(read) == reads_values


def program_of(build, to=out):
    """Return the code that calls a mapper of the topology: a function of its program."""
    callers = []

    def topology(builder: StreamsBuilder) -> None:
        build(builder.stream(numbers).map_values(lambda value: callers.append(sys._getframe(1).f_code) or value)).to(to)

    with TopologyTestDriver(topology) as driver:
        # The first call goes through the check of functions.
        for number in (1, 2):
            driver.pipe(numbers, number, key="a")
        assert driver.read(to) == [("a", 1), ("a", 2)]
    return callers[1]


def test_topologies_of_equal_shape_share_their_program():
    """Also where their functions differ, which the program calls by name."""
    programs = [
        program_of(lambda stream, least=least: stream.filter(lambda _, value: value > least)) for least in (0, -1)
    ]

    assert programs[0] is programs[1]


DECIMAL = Serde("decimal", lambda value: str(value).encode(), int)  # Without a C function.


@pytest.mark.parametrize(
    ("build", "to"),
    [
        (lambda stream: stream, out),
        (lambda stream: stream.map_values(lambda value: value), out),
        (lambda stream: stream.filter(lambda _, value: value > 0, name="positive"), out),
        (lambda stream: stream.filter(lambda _, value: value > 0), Topic("out", key=str, value=DECIMAL)),
    ],
    ids=["without the filter", "another operator", "another name", "another serde"],
)
def test_topologies_of_another_shape_have_a_program_of_their_own(build, to):
    assert program_of(build, to) is not program_of(lambda stream: stream.filter(lambda _, value: value > 0))
