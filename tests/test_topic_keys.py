"""The key of a record where none is given, and its time in a simulation: those of the topic, wherever it is written."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from streams import (
    ConfigError,
    Consumer,
    EmbeddedBroker,
    Producer,
    SerializationError,
    StreamsBuilder,
    StreamsError,
    Topic,
)
from streams.connect.http.json_records import JsonRecords
from streams.core.errors import InputError
from streams.files import open_input
from streams.testing import TopologyTestDriver, simulate


@frozen
class Order:
    customer: str
    at: int = 0


def customer_of(order: Order) -> str:
    if not order.customer:
        raise LookupError("nobody")
    return order.customer


orders = Topic("orders", key=str, value=Order, key_from=customer_of, timestamp=lambda order: order.at)
copies = Topic("copies", key=str, value=Order)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(orders).to(copies)


def piped(value: Order | None, **key: str | None) -> str | None:
    driver = TopologyTestDriver(topology)
    driver.pipe(orders, value, **key, timestamp_ms=0)
    return driver.read(copies)[0][0]


def piped_in_rows(value: Order | None, **key: str | None) -> str | None:
    driver = TopologyTestDriver(topology)
    driver.pipe_all(orders, [(key["key"], value)] if key else [(value,)])
    return driver.read(copies)[0][0]


def first_key(broker: EmbeddedBroker) -> str | None:
    with Consumer(broker, "reader", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([orders])
        return consumer.poll(10_000)[0].key


def sent(value: Order | None, **key: str | None) -> str | None:
    with EmbeddedBroker() as broker:
        with Producer(broker) as producer:
            producer.send(orders, value, **key)
        return first_key(broker)


def sent_in_a_coroutine(value: Order | None, **key: str | None) -> str | None:
    async def send(broker: EmbeddedBroker) -> None:
        async with Producer(broker) as producer:
            await producer.send(orders, value, **key)

    with EmbeddedBroker() as broker:
        asyncio.run(send(broker))
        return first_key(broker)


#: What writes a value, with ``key=`` or without, and the key of what is written.
WRITERS: dict[str, Callable[..., str | None]] = {
    "pipe": piped,
    "pipe_all": piped_in_rows,
    "send": sent,
    "send in a coroutine": sent_in_a_coroutine,
}
every_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


@every_writer
def test_a_value_has_the_key_that_its_topic_takes_from_it(write: Callable[..., str | None]) -> None:
    assert write(Order("ann")) == "ann"


@every_writer
def test_a_key_that_is_given_stays_also_if_it_is_none(write: Callable[..., str | None]) -> None:
    assert write(Order("ann"), key="office") == "office"
    assert write(Order("ann"), key=None) is None


@every_writer
def test_a_tombstone_has_no_value_to_take_a_key_from(write: Callable[..., str | None]) -> None:
    assert write(None) is None
    assert write(None, key="ann") == "ann"


@every_writer
def test_a_key_that_cannot_be_taken_is_an_error_that_names_the_topic(write: Callable[..., str | None]) -> None:
    with pytest.raises(SerializationError, match="key_from of topic 'orders' failed: LookupError: nobody"):
        write(Order(""))


def test_rows_of_files_and_items_of_documents_have_the_same_key_and_the_same_error(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text('{"customer": "ann"}\nnull\n{"customer": ""}\n')
    items = JsonRecords("source", orders, key="")

    batches = open_input(orders, path)(1)
    ((_, block),) = next(batches)
    assert list(block.keys) == [b"ann", None]
    with pytest.raises(InputError, match="key_from of topic 'orders' failed: LookupError: nobody"):
        next(batches)

    assert items.record(b'{"customer": "ann"}')[0] == b"ann"
    with pytest.raises(StreamsError, match="key_from of topic 'orders' failed: LookupError: nobody"):
        items.record(b'{"customer": ""}')


def test_inputs_of_a_simulation_may_leave_out_what_their_topic_declares() -> None:
    def checked(builder: StreamsBuilder) -> None:
        def check(key: str | None, order: Order) -> bool:
            assert key == order.customer
            return True

        builder.stream(orders).filter(check).to(copies)

    report = simulate(checked, {orders: [(Order("ann", 7),), ("ben", Order("ben", 9))]}, seeds=[0], storm_ms=2_000)
    assert report.records > 0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("ann", Order("ann")), "without a time for topic 'timeless', which declares none"),
        ((), r"needs rows of \(key, value, timestamp_ms\), \(key, value\) or \(value,\)"),
        (Order("ann"), "needs rows of"),
    ],
)
def test_an_input_whose_key_or_time_nothing_says_is_refused(row: Any, reason: str) -> None:
    timeless = Topic("timeless", key=str, value=Order)

    with pytest.raises(ConfigError, match=reason):
        simulate(lambda builder: builder.stream(timeless).to(copies), {timeless: [row]}, seeds=[0])


def test_a_tombstone_of_a_simulation_needs_a_time() -> None:
    with pytest.raises(StreamsError, match="no value from which to take its time"):
        simulate(topology, {orders: [("ann", None)]}, seeds=[0])


def test_records_of_topics_that_are_named_have_no_key_unless_one_is_given() -> None:
    with EmbeddedBroker() as broker:
        with Producer(broker) as producer:
            producer.send("orders", b'{"customer":"ann"}')
        assert first_key(broker) is None
