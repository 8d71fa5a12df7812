"""The generated program: order of calls, and errors that find their node."""

import pytest

from streams import ProcessingError, Processor, StreamsBuilder, Topic
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


def test_children_are_called_in_order_and_depth_first():
    seen = []

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(numbers)
        stream.peek(lambda _, value: seen.append(("one", value))).peek(lambda _, value: seen.append(("one.one", value)))
        stream.peek(lambda _, value: seen.append(("two", value)))

    with TopologyTestDriver(topology) as driver:
        driver.pipe(numbers, 1, key="a")
        driver.pipe(numbers, 2, key="a")

    assert seen == [(name, value) for value in (1, 2) for name in ("one", "one.one", "two")]


def test_chain_deeper_than_python_nests_blocks():
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(numbers)
        for _ in range(60):
            stream = stream.flat_map_values(lambda value: [value + 1])
        stream.to(out)

    with TopologyTestDriver(topology) as driver:
        driver.pipe(numbers, 0, key="a")

        assert driver.read(out) == [("a", 60)]


def test_stream_with_two_parents_keeps_the_order_of_the_records():
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(numbers)
        odd = stream.filter(lambda _, value: value % 2 == 1)
        stream.filter(lambda _, value: value % 2 == 0).merge(odd).to(out)

    with TopologyTestDriver(topology) as driver:
        for value in range(5):
            driver.pipe(numbers, value, key="a", timestamp_ms=value)

        assert [value for _, value in driver.read(out)] == [0, 1, 2, 3, 4]


def test_forward_to_a_child_that_is_none_names_the_children():
    class Routes(Processor[str, int, str, int]):
        def process(self, record):
            self.context.forward(record.key, record.value, to="nowhere")

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(numbers).process(Routes).to(out, name="sink")

    driver = TopologyTestDriver(topology)
    with pytest.raises(ProcessingError, match="has no child 'nowhere'; its children are: 'sink'"):
        driver.pipe(numbers, 1, key="a")


def test_processing_handler_that_goes_on_drops_at_the_failing_node_only():
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(numbers)
        stream.map_values(lambda value: 6 // value, name="divide").to(out)
        stream.to(Topic("all", key=str, value=int))

    with TopologyTestDriver(topology, processing_handler="continue") as driver:
        for value in (1, 0, 2):
            driver.pipe(numbers, value, key="a")

        assert [value for _, value in driver.read(out)] == [6, 3]
        assert len(driver.read(Topic("all", key=str, value=int))) == 3
        assert driver.metric("dropped-records", "divide") == 1
