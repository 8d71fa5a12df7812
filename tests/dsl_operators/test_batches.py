"""map_values_batches and flat_map_batches: what a function gets at once, and what becomes of its results."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streams import (
    EmbeddedBroker,
    ProcessingError,
    Processor,
    Producer,
    Record,
    Streams,
    StreamsBuilder,
    Topic,
    TopologyError,
)
from streams.bounded import run_bounded
from streams.core.blocks.records import TopicPartition
from streams.dsl.processing import BatchError
from streams.replay import replay
from streams.testing import TopologyTestDriver, simulate
from tests import waiting
from tests.runtime.bounded_runs import NUMBERS, reader, written

out = Topic("out", key=str, value=int)


class Doubling:
    """A function of batches that notes their sizes, and fails for some values."""

    def __init__(self, *bad: int) -> None:
        self.bad, self.sizes = set(bad), list[int]()

    def __call__(self, values: list[int]) -> list[int]:
        self.sizes.append(len(values))
        if not self.bad.isdisjoint(values):
            raise ValueError("bad")
        return [value * 2 for value in values]


ROWS = [("abc"[number % 3], number, number * 10) for number in range(100)]
DOUBLED = {0: [(key, value * 2, time) for key, value, time in ROWS]}


def doubling(mapper: Callable[[list[int]], Any], **limits: Any) -> Callable[[StreamsBuilder], None]:
    return lambda builder: (
        builder.stream(NUMBERS).map_values_batches(mapper, name="double", value=int, **limits).to(out)
    )


def test_record_that_fails_alone_goes_to_the_handler():
    mapper = Doubling(13, 77)
    settings = {"processing_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}
    with run_bounded(doubling(mapper), {"numbers": reader(ROWS)}, application_id="app", settings=settings) as run:
        assert written(run, "out") == {0: [row for row in DOUBLED[0] if row[1] not in (26, 154)]}
        letters = [
            (letter, time)
            for _, block in run.read_output("dead")
            for letter, time in zip(block.values, block.timestamps, strict=True)
        ]
    assert letters == [(NUMBERS.value_serde.serialize(value), value * 10) for value in (13, 77)]
    # Each bad value costs two calls for each halving: 100, 50, 25, 12 ...
    assert len(mapper.sizes) < 30


@pytest.mark.slow
def test_replay_and_simulation_have_the_same_results(tmp_path):
    history = tmp_path / "numbers.records.jsonl"
    history.write_text(
        "".join(f'{{"key": "{key}", "value": {value}, "timestamp": {time}}}\n' for key, value, time in ROWS)
    )
    with replay(doubling(Doubling()), {NUMBERS: history}, executor="local") as result:
        assert [(row.key, row.value, row.timestamp_ms) for row in result.rows(out)] == DOUBLED[0]

    report = simulate(
        doubling(Doubling(), max_records=7, max_wait=timedelta(milliseconds=20)),
        {NUMBERS: ROWS},
        seeds=range(5),
        processing_guarantee="exactly_once_v2",
    )
    assert report.crashes


def test_batch_waits_for_more_records_but_not_beyond_the_commit():
    mapper = Doubling()
    with EmbeddedBroker() as broker:
        broker.create_topic("numbers", 1)
        broker.create_topic("out", 1)
        application = doubling(mapper, max_wait=timedelta(hours=1))
        with (
            Streams(application, application_id="app", broker=broker, commit_interval_ms=50, poll_ms=5) as streams,
            Producer(broker) as producer,
        ):
            for number in range(3):
                producer.send(NUMBERS, number, key="a")
                producer.flush()
            waiting.until(
                lambda: sum(map(len, broker.read(TopicPartition("out", 0), 0, committed_only=True))) == 3,
                lambda: streams.wait(0.01),
            )
    assert sum(mapper.sizes) == 3


class Item(msgspec.Struct):
    units: int
    price: float


items = Topic("items", key=str, value=Item)


def by_polars(frame: pl.DataFrame) -> list[float]:
    return (frame["units"] * frame["price"]).to_list()


def by_arrow(table: pa.Table) -> pa.Array:
    return pc.multiply(table["units"], table["price"])


def by_list(values: list[Item]) -> list[float]:
    return [item.units * item.price for item in values]


@pytest.mark.parametrize("mapper", [by_polars, by_arrow, by_list])
def test_annotation_decides_the_form_of_a_batch(mapper):
    found: list[Any] = []
    with TopologyTestDriver(
        lambda builder: (
            builder.stream(items).map_values_batches(mapper, value=float).for_each(lambda *row: found.append(row))
        )
    ) as driver:
        driver.pipe(items, Item(3, 0.5), key="a", timestamp_ms=1)
    assert found == [("a", 1.5)]


def test_tables_become_rows_of_the_type():
    def squared(table: pa.Table) -> pa.Table:
        return table.set_column(0, "units", pc.multiply(table["units"], table["units"]))

    found: list[Any] = []
    with TopologyTestDriver(
        lambda builder: (
            builder.stream(items).map_values_batches(squared, value=Item).for_each(lambda *row: found.append(row))
        )
    ) as driver:
        driver.pipe(items, Item(3, 0.5), key="a", timestamp_ms=1)
    assert found == [("a", Item(9, 0.5))]


class Noting(Processor[str, int, str, int]):
    """Forwards, with the origin of the current record."""

    origins: ClassVar[list[Any]] = []

    def process(self, record: Record[str, int]) -> None:
        metadata = self.context.record_metadata
        self.origins.append((metadata.offset, record.timestamp_ms, record.headers))
        self.context.forward(record.key, record.value)


def test_nodes_downstream_see_the_origin_time_and_headers_of_each_record():
    Noting.origins.clear()
    with TopologyTestDriver(
        lambda builder: builder.stream(NUMBERS).map_values_batches(Doubling()).process(Noting).for_each(print)
    ) as driver:
        driver.pipe(NUMBERS, 1, key="a", timestamp_ms=5, headers=(("h", b"1"),))
        driver.pipe(NUMBERS, 2, key="a", timestamp_ms=4)
    assert Noting.origins == [(0, 5, (("h", b"1"),)), (1, 4, ())]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1, 2, 3], "returned 3 values for 1: return one for each value, in the same order"),
        (None, "returned None: return a list, array, series or table"),
        ({1: 2}, r"returned \{1: 2\}: return a list"),
        ({1}, r"returned \{1\}: return a list"),
        ("5", "returned '5': return a list"),
        (np.int64(5), r"returned np.int64\(5\): return a list"),
    ],
)
def test_wrong_results_fail_with_the_remedy(returned, message):
    """A handler is not asked: no record is to blame."""
    with TopologyTestDriver(doubling(lambda values: returned), processing_handler="continue") as driver:
        with pytest.raises(BatchError, match=rf"node 'double': '.*<lambda>' \(.*\) of map_values_batches {message}"):
            driver.pipe(NUMBERS, 1, key="a", timestamp_ms=1)


@pytest.mark.parametrize(
    ("returned", "message"), [(None, "returned None where a list of pairs"), ([("a", 1), 5], "returned 5 where a pair")]
)
def test_results_of_a_flat_batch_are_pairs_or_its_records_fail(returned, message):
    def application(builder: StreamsBuilder) -> None:
        builder.stream(NUMBERS).flat_map_batches(lambda records: returned).to(out)

    with TopologyTestDriver(application) as driver:
        with pytest.raises(ProcessingError, match=rf"'.*<lambda>' \(.*\) of flat_map_batches {message}"):
            driver.pipe(NUMBERS, 1, key="a", timestamp_ms=1)
    with TopologyTestDriver(application, processing_handler="continue") as driver:
        driver.pipe(NUMBERS, 1, key="a", timestamp_ms=1)
        assert (driver.read(out), [drop.count for drop in driver.drops()]) == ([], [1])


def same_table(table: pa.Table) -> pa.Table:
    return table


def same_frame(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


@pytest.mark.parametrize("function", [same_table, same_frame])
def test_table_of_values_without_fields_is_given_and_returned_as_one_column(function):
    with TopologyTestDriver(doubling(function)) as driver:
        driver.pipe(NUMBERS, 1, key="a", timestamp_ms=1)
        assert driver.read(out) == [("a", 1)]


def test_result_that_is_not_of_the_declared_type_says_where_it_comes_from():
    with TopologyTestDriver(doubling(lambda values: ["x" for _ in values])) as driver:
        with pytest.raises(ProcessingError, match="returned a value that is not of the type in value=: Expected `int`"):
            driver.pipe(NUMBERS, 1, key="a", timestamp_ms=1)


@pytest.mark.parametrize(
    ("mapper", "limits", "message"),
    [
        (Doubling(), {"max_records": 0}, "max_records must be an int of at least 1, not 0"),
        (Doubling(), {"max_wait": timedelta(0)}, "max_wait must be at least 1 ms"),
        (lambda key, value: [], {}, "give a function of"),
        (3, {}, "needs a function"),
    ],
)
def test_limits_and_functions_are_checked(mapper, limits, message):
    with pytest.raises(TopologyError, match=message):
        doubling(mapper, **limits)(StreamsBuilder())
