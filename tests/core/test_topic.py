"""Topics: names, serdes, identity."""

import pickle
from typing import Any, cast

import pytest
from attrs import frozen

from streams.core.errors import TopologyError
from streams.core.serdes.serdes import LONG, NULL, STRING, time_windowed_ms
from streams.core.topic import Sink, Topic


@frozen
class Order:
    sku: str
    placed_ms: int


def placed(order: Order) -> int:
    return order.placed_ms


def sku(order: Order) -> str:
    return order.sku


def test_topic_holds_name_serdes_time_and_partitions() -> None:
    topic = Topic("orders", key=str, value=Order, timestamp=placed, key_from=sku, partitions=3)

    assert (topic.name, topic.partitions) == ("orders", 3)
    assert topic.key_serde is STRING
    assert topic.value_serde.name.endswith(":Order")
    assert (topic.timestamp, topic.key_from) == (placed, sku)
    assert isinstance(topic, Sink)
    assert repr(topic).startswith("Topic('orders', key=string, value=class:")


def test_key_is_none_unless_declared() -> None:
    topic = Topic("lines", value=str)

    assert topic.key_serde is NULL
    assert (topic.timestamp, topic.key_from, topic.partitions) == (None, None, None)


def test_serdes_stand_in_for_types() -> None:
    windowed = time_windowed_ms(STRING, 10)

    assert Topic("counts", key=windowed, value=LONG).key_serde is windowed
    assert Topic("counts", value=LONG).value_serde is LONG
    assert Topic("counts", key=str, value=int | None).value_serde is LONG


def test_topics_are_keys_by_identity() -> None:
    first, second = Topic("a", value=str), Topic("a", value=str)

    assert len({first: 1, second: 2}) == 2
    assert first == first
    assert first != second


def test_topic_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(Topic("orders", key=str, value=int, partitions=2)))

    assert (again.name, again.key_serde, again.value_serde, again.partitions) == ("orders", STRING, LONG, 2)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "-"])
def test_name_that_kafka_allows(name: str) -> None:
    assert Topic(name, value=str).name == name


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "é", "a\n", None, 3])
def test_name_that_kafka_refuses(name: Any) -> None:
    with pytest.raises(TopologyError, match="topic name"):
        Topic(name, value=str)


def test_mistakes_name_the_topic() -> None:
    with pytest.raises(TopologyError, match=r"'t', value: no serde for .*object|'t', value"):
        Topic("t", value=complex)
    with pytest.raises(TopologyError, match=r"'t', key: no serde"):
        Topic("t", key=cast(Any, "Order"), value=str)
    for partitions in (0, -1, True, "2"):
        with pytest.raises(TopologyError, match=r"'t': partitions"):
            Topic("t", value=str, partitions=cast(Any, partitions))
    with pytest.raises(TopologyError, match=r"'t': timestamp must be a function"):
        Topic("t", value=str, timestamp=cast(Any, 5))
    with pytest.raises(TopologyError, match=r"add key="):
        Topic("t", key=None, value=str, key_from=lambda value: None)
