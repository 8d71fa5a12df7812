"""Serdes with a registry work wherever serdes do: live, in stores, tests, simulations, files, replays and queries."""

import json
import urllib.request
from datetime import UTC, datetime
from itertools import count

import pytest
from attrs import frozen

from streams import EmbeddedBroker, Streams, StreamsBuilder, Topic
from streams.clients import Producer
from streams.core.blocks.records import TopicPartition
from streams.core.errors import SchemaError
from streams.formats import avro, json_schema, protobuf
from streams.testing import TopologyTestDriver, simulate
from tests.cli.conftest import streams as streams
from tests.formats.messages import Customer
from tests.waiting import until


@frozen
class Order:
    customer: str
    cents: int
    at: datetime


@frozen
class Total:
    cents: int


_numbers = count()


def application(registry):
    """Orders by key, summed in a store and in windows; every format is one of a topic."""
    prefix = f"app{next(_numbers)}"
    orders = Topic(f"{prefix}-orders", key=str, value=avro(Order, registry=registry), timestamp=lambda order: order.at)
    totals = Topic(f"{prefix}-totals", key=str, value=json_schema(Total, registry=registry))
    customers = Topic(f"{prefix}-customers", key=str, value=protobuf(Customer, registry=registry))

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(orders).filter(lambda _, order: order.cents > 0)
        (
            stream.group_by(lambda _, order: order.customer, key=str, value=avro(Order, registry=registry))
            .aggregate(
                lambda: Total(0),
                lambda _, order, total: Total(total.cents + order.cents),
                name="totals",
                value=avro(Total, registry=registry),
            )
            .to_stream()
            .to(totals)
        )
        stream.map_values(lambda order: Customer(name=order.customer)).to(customers)

    return topology, orders, totals, customers


def order(customer: str, cents: int, minute: int = 0) -> Order:
    return Order(customer, cents, datetime(2026, 3, 1, 0, minute, tzinfo=UTC))


def test_in_the_test_driver(registry):
    topology, orders, totals, customers = application(registry)

    with TopologyTestDriver(topology) as driver:
        driver.pipe(orders, order("ann", 5), key="1")
        driver.pipe(orders, order("ann", 6), key="2")

        assert driver.read(totals) == [("ann", Total(5)), ("ann", Total(11))]
        assert driver.read(customers) == [("1", Customer(name="ann")), ("2", Customer(name="ann"))]
        assert driver.store("totals").get("ann").value == Total(11)


def send(broker, topic, rows):
    with Producer(broker) as producer:
        for key, value in rows:
            producer.send(topic, value, key=key)


def running(topology, broker, tmp_path):
    settings = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10}
    return Streams(topology, application_id="app", broker=broker, state_dir=tmp_path, **settings)


def test_live_with_stores_that_survive_and_are_asked(registry, tmp_path):
    topology, orders, totals, _ = application(registry)
    with EmbeddedBroker() as broker:
        broker.create_topic(orders)
        with running(topology, broker, tmp_path):
            send(broker, orders, [("1", order("ann", 5)), ("2", order("bob", 7))])
            until(lambda: broker.topics().get(totals.name) and broker.end_offset(TopicPartition(totals.name, 0)) >= 2)
        # What is lost with the folder is restored from the changelog.
        with running(topology, broker, tmp_path / "new") as streams, streams.serve() as server:
            send(broker, orders, [("3", order("ann", 6))])
            until(lambda: broker.end_offset(TopicPartition(totals.name, 0)) >= 3)

            with urllib.request.urlopen(f"{server.url}/stores/totals/keys/ann") as response:
                assert json.load(response)["value"] == {"cents": 11}
            assert streams.store("totals").get("ann").value == Total(11)


@pytest.mark.slow
def test_in_a_simulation(registry):
    topology, orders, _, _ = application(registry)
    rows = [(str(number), order(f"c{number % 3}", number + 1), number * 100) for number in range(20)]

    report = simulate(topology, {orders: rows}, seeds=range(1), processing_guarantee="exactly_once_v2")

    assert report.seeds == 1


SCRIPT = """\
from datetime import datetime

from attrs import frozen

from streams import StreamsBuilder, Topic
from streams.formats import avro

REGISTRY = {registry!r}


@frozen
class Order:
    customer: str
    cents: int
    at: datetime


orders = Topic(
    "file-orders",
    key=str,
    value=avro(Order, registry=REGISTRY),
    timestamp=lambda order: order.at,
    key_from=lambda order: order.customer,
)
doubled = Topic("file-doubled", key=str, value=avro(Order, registry=REGISTRY))


def topology(builder: StreamsBuilder) -> None:
    table = builder.stream(orders).group_by_key().reduce(
        lambda one, two: Order(one.customer, one.cents + two.cents, two.at), "sums"
    )
    table.to_stream().to(doubled)
"""


def test_files_are_rows_of_json(registry, streams):
    streams.write("app.py", SCRIPT.format(registry=registry))
    streams.write("orders.jsonl", '{"customer":"ann","cents":5,"at":"2026-03-01T00:00:00Z"}\n' * 2)

    result = streams("run", "app.py", "--input", "file-orders=orders.jsonl", "--output", "file-doubled=-")

    assert (result.status, result.err) == (0, "")
    assert [value["cents"] for value in result.values()] == [5, 10]

    streams.write("orders.csv", "customer,cents,at\nann,5,2026-03-01T00:00:00Z\n")
    assert streams("run", "app.py", "--input", "file-orders=orders.csv", "--output", "file-doubled=-").values() == [
        {"customer": "ann", "cents": 5, "at": "2026-03-01T00:00:00Z"}
    ]
    streams.write("orders.jsonl", '{"customer":"ann","cents":"x","at":"2026-03-01T00:00:00Z"}\n')
    result = streams("run", "app.py", "--input", "file-orders=orders.jsonl", "--output", "file-doubled=-")
    assert result.status != 0
    assert "orders.jsonl:1" in result.err
    assert "expected `int`, got `str` - at `$.cents`" in result.err


@pytest.mark.slow
def test_versions_are_compared(registry, streams):
    streams.write("app.py", SCRIPT.format(registry=registry))
    streams.write("app2.py", SCRIPT.format(registry=registry).replace("one.cents + two.cents", "two.cents"))
    streams.write("orders.jsonl", '{"customer":"ann","cents":5,"at":"2026-03-01T00:00:00Z"}\n' * 2)

    result = streams("diff", "app.py", "app2.py", "--input", "file-orders=orders.jsonl", "--partitions", "1")

    assert '"cents": 10, "at": "2026-03-01T00:00:00Z"} -> {"customer": "ann", "cents": 5' in result.out


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "spark"])
def test_in_a_replay(executor, registry, streams):
    """Workers of Spark are processes of their own, which ask the registry themselves."""
    streams.write("app.py", SCRIPT.format(registry=registry))
    streams.write("orders.jsonl", '{"customer":"ann","cents":5,"at":"2026-03-01T00:00:00Z"}\n' * 2)

    result = streams(
        "replay", "app.py", "--input", "file-orders=orders.jsonl", "--output", "file-doubled=-", "--executor", executor,
        "--partitions", "1",
    )  # fmt: skip

    assert result.status == 0, result.err
    assert [value["cents"] for value in result.values()] == [5, 10]


def test_why_shows_values(registry):
    topology, orders, totals, _ = application(registry)
    with TopologyTestDriver(topology) as driver:
        driver.pipe(orders, order("ann", 5), key="1")

        told = str(driver.why("ann", totals))

        assert "cents=5" in told


def test_an_incompatible_class_ends_the_start(registry, tmp_path):
    """The topic has data of another class already: the application does not begin to read."""
    topology, orders, _, _ = application(registry)

    @frozen
    class Earlier:
        customer: str

    Topic(orders.name, value=avro(Earlier, registry=registry, name="Order")).value_serde.serialize(Earlier("ann"))
    with EmbeddedBroker() as broker:
        broker.create_topic(orders)
        with pytest.raises(SchemaError, match=r"Order in subject .*-orders-value.*cannot read what the latest version"):
            Streams(topology, application_id="app", broker=broker).start()
