"""Generated names, and the numbers that they use up, as in Kafka Streams."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams.core.errors import TopologyError
from streams.core.event_time.windows import JoinWindows
from streams.core.topic import Topic
from streams.dsl import KStream, StreamsBuilder
from streams.topology import joined_sources
from streams.topology.topology import Topology

orders = Topic("orders", key=str, value=int)
WINDOWS = JoinWindows.of(timedelta(seconds=1))


def built(declare: Callable[[StreamsBuilder], Any], **settings: str) -> Topology:
    builder = StreamsBuilder()
    declare(builder)
    return builder.build(**settings)


@pytest.mark.parametrize("store", [None, "kept"])
def test_store_separates_the_store_from_the_name(store: str | None) -> None:
    topology = built(lambda builder: builder.stream(orders).group_by_key().count("words", store=store))

    assert list(topology.stores) == [store or "KSTREAM-AGGREGATE-STATE-STORE-0000000001"]
    assert "words" in topology.nodes


def test_a_table_without_use_has_no_store_and_gets_one_when_something_looks_it_up() -> None:
    alone = built(lambda builder: builder.table(orders).to_stream().to("out"))
    joined = built(
        lambda builder: builder.stream(Topic("s", key=str, value=int)).join(
            builder.table(orders), lambda left, right: left + right
        )
    )

    assert list(alone.stores) == []
    assert list(joined.stores) == ["orders-STATE-STORE-0000000001"]


def test_joins_of_rekeyed_streams_share_the_repartition_topic_of_a_stream() -> None:
    def declare(builder: StreamsBuilder) -> None:
        stream = builder.stream(orders).select_key(lambda key, _: key[0])
        other = builder.stream(Topic("other", key=str, value=int))
        stream.join(other, lambda left, right: left + right, WINDOWS)
        stream.join(other, lambda left, right: left - right, WINDOWS)

    topology = built(declare)

    assert list(topology.internal_topics) == ["KSTREAM-KEY-SELECT-0000000001-repartition"]


def test_joined_sources_must_be_copartitioned() -> None:
    topology = built(
        lambda builder: builder.stream(orders).join(
            builder.stream(Topic("other", key=str, value=int)), lambda left, right: left + right, WINDOWS
        )
    )

    assert joined_sources(topology) == [frozenset({"KSTREAM-SOURCE-0000000000", "KSTREAM-SOURCE-0000000001"})]


def test_a_repartition_topic_replaces_the_source_in_the_copartitioned_group() -> None:
    def declare(builder: StreamsBuilder) -> None:
        stream = builder.stream(orders).select_key(lambda key, _: key[0])
        stream.join(builder.stream(Topic("other", key=str, value=int)), lambda left, right: left + right, WINDOWS)

    for optimization in ("none", "all"):
        topology = built(declare, topology_optimization=optimization)
        (group,) = joined_sources(topology)
        topics = {topic for source in group for topic in topology.nodes[source].topics}  # type: ignore[union-attr]
        assert topics == {"other", "KSTREAM-KEY-SELECT-0000000001-repartition"}


# Sources.


def test_one_topic_read_twice_is_one_source() -> None:
    def declare(builder: StreamsBuilder) -> None:
        builder.stream(orders).to("one")
        builder.stream(orders).to("two")

    topology = built(declare)

    assert topology.children["KSTREAM-SOURCE-0000000000"] == ["KSTREAM-SINK-0000000001", "KSTREAM-SINK-0000000003"]


def test_overlapping_but_different_sources_are_refused() -> None:
    def declare(builder: StreamsBuilder) -> None:
        builder.stream(orders).to("one")
        builder.stream("orders", "others", key=str, value=int).to("two")

    with pytest.raises(TopologyError, match="overlap; read the same topics in both"):
        built(declare)


# Optimization.


def test_a_change_of_the_value_in_between_keeps_the_topics_apart() -> None:
    def declare(builder: StreamsBuilder) -> None:
        stream = builder.stream(orders).select_key(lambda key, _: key[0])
        stream.group_by_key().count("one")
        stream.map_values(str).group_by_key().count("two")

    assert list(built(declare, topology_optimization="all").internal_topics) == ["one-repartition", "two-repartition"]


def _grouped_twice(operators: Callable[[KStream[str, int]], KStream[str, int]]) -> Callable[[StreamsBuilder], None]:
    def declare(builder: StreamsBuilder) -> None:
        stream = operators(builder.stream(orders).select_key(lambda key, value: key, name="by"))
        stream.group_by_key(name="one").count(name="a")
        stream.group_by_key(name="two").count(name="b")

    return declare


def test_what_the_refusal_of_shared_repartition_topics_proposes_can_be_built() -> None:
    declare = _grouped_twice(lambda stream: stream.repartition(name="once").filter(lambda key, value: value > 0))
    assert list(built(declare, topology_optimization="all").internal_topics) == ["once-repartition"]


def test_an_optimized_self_join_has_one_store() -> None:
    def declare(builder: StreamsBuilder) -> None:
        stream = builder.stream(orders)
        stream.join(stream, lambda left, right: left + right, WINDOWS, name="j", store="s")

    assert sorted(built(declare).stores) == ["s-other-join-store", "s-this-join-store"]
    optimized = built(declare, topology_optimization="all")
    assert list(optimized.stores) == ["s-this-join-store"]
    assert list(optimized.nodes) == ["KSTREAM-SOURCE-0000000000", "j-this-windowed", "j-merge"]
