"""Placeholders of Debezium for large values that an update did not change: an error, or the value of the table."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from attrs import frozen

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic, TopicPartition
from streams.core.errors import ProcessingError, SerializationError, TopologyError
from streams.core.serdes.serdes import PartialRow
from streams.formats import debezium
from streams.replay import Archive, replay
from streams.replay.history.archive import archive_topic
from streams.testing import TopologyTestDriver
from tests.waiting import until

PLACEHOLDER = "__debezium_unavailable_value"
#: As ``UnchangedToastedPlaceholder`` of Debezium's connector has them; bytes are base64 in JSON.
PLACEHOLDERS = [
    PLACEHOLDER,
    "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    [PLACEHOLDER],
    ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="],
    [*PLACEHOLDER.encode()],
    ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    {PLACEHOLDER: PLACEHOLDER},
    f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}',
]


@frozen
class Key:
    id: int


@frozen
class Row:
    id: int
    at: datetime
    price: Decimal
    large: Any = None


def event(op: str, after: dict[str, Any] | None, before: dict[str, Any] | None = None) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op}).encode()


def row(large: Any, second: int = 0, price: str = "0.10") -> dict[str, Any]:
    return {"id": 1, "at": f"2026-01-01T00:00:0{second}Z", "price": price, "large": large, "other": PLACEHOLDER}


LARGE = {"a": [1.5, "text"]}
#: Each event after the first lacks the large value; the fourth has it in the row before.
CHANGES = [
    event("c", row(LARGE)),
    event("u", row(PLACEHOLDER, 1, "0.20")),
    event("u", row([PLACEHOLDER], 2)),
    event("u", row(PLACEHOLDER, 3), before=row("before")),
    event("u", row(PLACEHOLDER, 4)),
]
AT = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = [
    Row(1, AT + timedelta(seconds=second), Decimal(price), large)
    for second, price, large in ((0, "0.10", LARGE), (1, "0.20", LARGE), (2, "0.10", LARGE), (3, "0.10", "before"))
] + [Row(1, AT + timedelta(seconds=4), Decimal("0.10"), "before")]
KEY = b'{"id":1}'
customer_events = Topic(
    "rows", key=debezium(Key), value=debezium(Row, unavailable_values="keep"), timestamp=lambda it: it.at, partitions=1
)
outs = Topic("outs", key=Key, value=Row, partitions=1)


def copied(builder: StreamsBuilder) -> None:
    builder.table(customer_events).to_stream().to(outs)


def sent(broker: EmbeddedBroker, changes: list[bytes]) -> None:
    raw = Topic("rows", key=bytes, value=bytes)
    with Producer(broker) as producer:
        for change in changes:
            producer.send(raw, change, key=KEY)


def written(broker: EmbeddedBroker) -> list[Row | None]:
    blocks = broker.read(TopicPartition("outs", 0), 0)
    return [outs.value_serde.deserialize(value) for block in blocks for value in block.values]


# --- the ways of a table --------------------------------------------------------------------


def driven(folder: Path, topology: Callable[[StreamsBuilder], None] = copied, **settings: Any) -> list[Row | None]:
    with TopologyTestDriver(topology, **settings) as driver:
        for change in CHANGES:
            driver.pipe_bytes(customer_events, KEY, change)
        return [value for _, value in driver.read(outs)]


def optimized(folder: Path) -> list[Row | None]:
    return driven(folder, topology_optimization="all")


def versioned(folder: Path) -> list[Row | None]:
    return driven(folder, lambda builder: builder.table(customer_events, history=timedelta(1)).to_stream().to(outs))


def live(folder: Path) -> list[Row | None]:
    """The second instance restores its rows from the changelog."""
    builder = StreamsBuilder()
    copied(builder)
    with EmbeddedBroker() as broker:
        for topic in ("rows", "outs"):
            broker.create_topic(topic, 1)
        for number, changes in enumerate((CHANGES[:2], CHANGES[2:])):
            with Streams(
                builder.build(),
                application_id="a",
                broker=broker,
                state_dir=folder / str(number),
            ):
                sent(broker, changes)
                until(lambda count=(2, 5)[number]: len(written(broker)) == count)
        return written(broker)


def replayed(folder: Path) -> list[Row | None]:
    """From the archive of the topic, and from a file of whole records."""
    records = [{"key": {"id": 1}, "value": json.loads(change), "timestamp": 0} for change in CHANGES]
    (folder / "rows.records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with EmbeddedBroker() as broker:
        broker.create_topic("rows", 1)
        sent(broker, CHANGES)
        archive_topic(broker, "rows", folder / "archive")
    found = []
    for history in (Archive(str(folder / "archive")), str(folder / "rows.records.jsonl")):
        with replay(copied, {customer_events: history}, executor="local", application_id="a") as result:
            found.append(result.outputs[outs].column("value").to_pylist())
    assert found[0] == found[1]
    return [Row(**{**columns, "large": json.loads(columns["large"])}) for columns in found[0]]


WAYS = (driven, optimized, versioned, live, replayed)


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
def test_the_table_keeps_its_value(way: Callable[[Path], list[Row | None]], tmp_path: Path) -> None:
    assert way(tmp_path) == ROWS


def test_a_global_table_and_a_table_without_a_name_keep_their_values() -> None:
    orders: Topic[Key, str] = Topic("orders", key=Key, value=str)

    def topology(builder: StreamsBuilder) -> None:
        customers = builder.global_table(customer_events, name="rows")
        builder.stream(orders).join(customers, lambda _, row: row, key=lambda key, _: key).to(outs)

    with TopologyTestDriver(topology) as driver:
        for change in CHANGES:
            driver.pipe_bytes(customer_events, KEY, change)
            driver.pipe(orders, "order", key=Key(1))
        assert [value for _, value in driver.read(outs)] == ROWS


class Typed(TypedDict):
    id: int
    large: str


class Struct(msgspec.Struct, omit_defaults=True):
    id: int
    large: str = "x"


class Named(msgspec.Struct, rename="camel"):
    id: int
    large_text: str = msgspec.field(name="large")


class Model(pydantic.BaseModel):
    id: int
    large: str


@pytest.mark.parametrize("form", [Typed, Struct, Named, Model, dict[str, Any]])
@pytest.mark.parametrize("large", ["x", "\u00e4 \u2028"])
def test_rows_of_all_classes(form: Any, large: str) -> None:
    serde: Any = debezium(form, unavailable_values="keep")
    former = serde.deserialize(event("c", {"id": 1, "large": large}))
    change = serde.deserialize(event("u", {"id": 2, "large": PLACEHOLDER}))

    assert isinstance(change, PartialRow)
    assert serde.complete(change, former) == debezium(form).deserialize(event("c", {"id": 2, "large": large}))
    assert serde.format.to_json(change) == b'{"id":2,"large":"__debezium_unavailable_value"}'


# --- where there is no value to keep --------------------------------------------------------


def test_a_row_that_the_table_does_not_have_is_an_error_of_the_record() -> None:
    """Such as one of a topic that has been compacted."""
    with TopologyTestDriver(copied, processing_handler="continue") as driver:
        driver.pipe_bytes(customer_events, KEY, CHANGES[1])
        driver.pipe_bytes(customer_events, KEY, CHANGES[0])
        assert driver.read(outs) == [(Key(1), ROWS[0])]
        assert driver.metric("dropped-records") == 1
    with (
        TopologyTestDriver(copied) as driver,
        pytest.raises(ProcessingError, match=r"'large' has .*the table has none"),
    ):
        driver.pipe_bytes(customer_events, KEY, CHANGES[1])


@pytest.mark.parametrize(
    "topology",
    [
        lambda builder: builder.stream(customer_events),
        lambda builder: builder.stream("rows", key=str, value=debezium(Row, unavailable_values="keep")),
    ],
)
def test_what_has_no_rows_is_refused_at_the_build(topology: Callable[[StreamsBuilder], object]) -> None:
    with pytest.raises(TopologyError, match=r"keep what the former row has.*read it with table\(\)"):
        topology(StreamsBuilder())


def test_what_is_not_there_cannot_be_read() -> None:
    """As by a consumer of the topic."""
    change = customer_events.value_serde.deserialize(CHANGES[1])

    assert (change.id, change.price) == (1, Decimal("0.20"))
    with pytest.raises(AttributeError, match="no value of 'large'"):
        _ = change.large
    with pytest.raises(TopologyError, match="'fail' or 'keep'"):
        debezium(Row, unavailable_values="error")  # type: ignore[arg-type]


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_without_the_option_it_is_an_error_of_the_record(placeholder: Any) -> None:
    """Fields that the class does not read do not matter, and a null in the row before is no large value."""
    serde = debezium(Row)

    for before in (None, row(None), row(placeholder)):
        with pytest.raises(SerializationError, match=r"field 'large' has __deb.*=\"keep\", set REPLICA IDENTITY"):
            serde.deserialize(event("u", row(placeholder), before))
    assert serde.deserialize(event("u", row(placeholder), row("before"))) == attrs.evolve(ROWS[0], large="before")
