"""A processor wrapper is called for every processing node, in every driver (KIP-1112)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams import (
    ConfigError,
    Processor,
    Record,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topic,
    TopologyError,
    WrappedNode,
    key_value_store,
)
from streams.bounded import run_bounded
from streams.replay import replay
from streams.testing import TopologyTestDriver, simulate
from tests.runtime.bounded_runs import NUMBERS, reader

limits = Topic("limits", key=str, value=int)
totals = Topic("totals", key=str, value=int)


class Marked(Processor[str, int, str, int]):
    """Changes the headers of the record in place."""

    def process(self, record: Record[str, int]) -> None:
        record.headers = (*record.headers, ("marked", b"1"))
        self.context.forward(record.key, record.value)


def application(builder: StreamsBuilder) -> None:
    stream = (
        builder.stream(NUMBERS).filter(lambda _, value: value > 0, name="positive").process_values(Marked, name="mark")
    )
    stream.group_by_key().reduce(lambda total, value: total + value, name="sums").to_stream(name="sent").to(totals)


class Calls:
    """A wrapper that notes each call."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def __call__(self, node: WrappedNode, process: Callable[..., object]) -> Callable[..., object]:
        def run(key: Any, value: Any, timestamp_ms: int, headers: Any) -> None:
            self.seen.append((node.node, value))
            process(key, value, timestamp_ms, headers)

        return run


EXPECTED = [("positive", 3), ("mark", 3), ("sums", 3), ("sent", (3, None, True))]


def test_wrapper_sees_each_record_of_each_node_and_keeps_the_results():
    calls = Calls()
    with TopologyTestDriver(application, processor_wrapper=calls) as driver:
        driver.pipe(NUMBERS, -1, key="ann", timestamp_ms=1)
        driver.pipe(NUMBERS, 3, key="ann", timestamp_ms=2)
        (record,) = driver.read_records(totals)

    assert calls.seen == [("positive", -1), *EXPECTED]
    assert (record.value, record.timestamp_ms, record.headers) == (3, 2, (("marked", b"1"),))


@pytest.mark.slow
def test_wrapper_is_called_in_a_bounded_run_a_replay_and_a_simulation(tmp_path):
    calls = Calls()
    rows = {"numbers": reader([("ann", 3, 2)])}
    with run_bounded(application, rows, application_id="app", settings={"processor_wrapper": calls}):
        assert calls.seen == EXPECTED

    history = tmp_path / "numbers.records.jsonl"
    history.write_text('{"key": "ann", "value": 3, "timestamp": 2}\n')
    calls = Calls()
    with replay(application, {NUMBERS: history}, executor="local", processor_wrapper=calls):
        assert calls.seen == EXPECTED

    calls = Calls()
    simulate(application, {NUMBERS: [("ann", 3, 2)]}, seeds=[1], processor_wrapper=calls)
    assert set(calls.seen) == set(EXPECTED)


def test_wrapper_chooses_what_the_node_gets():
    def doubled(node: WrappedNode, process: Callable[..., object]) -> Callable[..., object]:
        if node.node != "positive":
            return process

        def run(key: Any, value: Any, timestamp_ms: int, headers: Any) -> None:
            for _ in range(2):
                process(key, value + 1, timestamp_ms, headers)

        return run

    with TopologyTestDriver(application, processor_wrapper=doubled) as driver:
        driver.pipe(NUMBERS, 3, key="ann", timestamp_ms=2)
        assert driver.read(totals) == [("ann", 4), ("ann", 8)]


def test_wrapper_of_a_counting_window_gets_values_that_no_operator_reads():
    def windowed(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of(timedelta(seconds=1))
        stream = builder.stream(NUMBERS).group_by(lambda key, _: key[0]).windowed_by(windows)
        stream.count("counts").to_stream().for_each(lambda key, count: None)

    calls = Calls()
    with TopologyTestDriver(windowed, processor_wrapper=calls) as driver:
        driver.pipe(NUMBERS, 3, key="ann", timestamp_ms=2)

    assert ("counts", 3) in calls.seen


def test_wrapper_wraps_the_processor_of_a_global_store():
    class Keep(Processor[str, int, None, None]):
        def process(self, record: Record[str, int]) -> None:
            self.context.store("kept").put(record.key, record.value)

    def with_limits(builder: StreamsBuilder) -> None:
        builder.add_global_store(key_value_store(str, int, "kept"), limits, Keep, name="keep")
        builder.stream(NUMBERS).to(totals)

    calls = Calls()
    with TopologyTestDriver(with_limits, processor_wrapper=calls) as driver:
        driver.pipe(limits, 9, key="ann", timestamp_ms=1)
        assert driver.store("kept").get("ann") == 9
    assert calls.seen == [("keep", 9)]


async def later(node: WrappedNode, process: Any) -> Any:
    return process


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (Calls, "'processor_wrapper': Calls is a class"),
        (lambda node: node, r"takes \(node\); give a function of \(node, process\)"),
        (later, "is async"),
        (5, "expected none, or a function"),
    ],
)
def test_wrapper_that_cannot_be_called_is_refused(wrapper, message):
    with pytest.raises(ConfigError, match=message):
        StreamsConfig.of(application_id="app", processor_wrapper=wrapper)


@pytest.mark.parametrize(
    ("returned", "message"),
    [(None, "it returned None for node"), (lambda key, value: None, r"takes \(key, value\); give a function")],
)
def test_wrapper_that_returns_no_process_function_is_refused(returned, message):
    with pytest.raises(ConfigError, match=message):
        TopologyTestDriver(application, processor_wrapper=lambda node, process: returned)


def test_wrapper_that_fails_says_for_which_node():
    with pytest.raises(
        ConfigError, match=r"setting 'processor_wrapper', node '.*': ZeroDivisionError: division by zero"
    ):
        TopologyTestDriver(application, processor_wrapper=lambda node, process: 1 / 0)


def unnamed(builder: StreamsBuilder) -> None:
    builder.stream(NUMBERS).group_by(lambda key, _: key[0]).count().to_stream().to(totals)
    builder.table("rows", key=str, value=int).map_values(lambda row: row, store="mapped")


def test_generated_names_are_refused_if_the_setting_says_so():
    with pytest.raises(TopologyError) as refused:
        TopologyTestDriver(unnamed, ensure_explicit_internal_resource_naming=True)

    for name in (
        "store 'KSTREAM-AGGREGATE-STATE-STORE-0000000002' of node 'KSTREAM-AGGREGATE-0000000003' (store=)",
        "repartition topic 'KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition' (name=)",
    ):
        assert name in str(refused.value)
    assert "mapped" not in str(refused.value)


def test_topology_whose_names_are_all_given_starts():
    with TopologyTestDriver(application, ensure_explicit_internal_resource_naming=True) as driver:
        driver.pipe(NUMBERS, 3, key="ann", timestamp_ms=2)
        assert driver.read(totals) == [("ann", 3)]
