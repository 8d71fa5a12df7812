"""Generated names, and the numbers that they use up, as in Kafka Streams."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams.core.errors import TopologyError
from streams.core.event_time.windows import JoinWindows, SlidingWindows, TimeWindows
from streams.core.topic import Topic
from streams.dsl import KStream, StreamsBuilder
from streams.topology import joined_sources
from streams.topology.graph import Topology

orders = Topic("orders", key=str, value=int)
lines = Topic("lines", value=str)
WINDOWS = JoinWindows.of(timedelta(seconds=1))


def built(declare: Callable[[StreamsBuilder], Any], **settings: str) -> Topology:
    builder = StreamsBuilder()
    declare(builder)
    return builder.build(**settings)


def test_word_count_has_the_names_of_kafka_streams() -> None:
    topology = built(
        lambda builder: (
            builder.stream(lines)
            .flat_map_values(str.split)
            .group_by(lambda _, word: word)
            .count()
            .to_stream()
            .to("counts", value=int)
        )
    )

    assert list(topology.nodes) == [
        "KSTREAM-SOURCE-0000000000",
        "KSTREAM-FLATMAPVALUES-0000000001",
        "KSTREAM-KEY-SELECT-0000000002",
        "KSTREAM-FILTER-0000000006",
        "KSTREAM-SINK-0000000005",
        "KSTREAM-SOURCE-0000000007",
        "KSTREAM-AGGREGATE-0000000004",
        "KTABLE-TOSTREAM-0000000008",
        "KSTREAM-SINK-0000000009",
    ]
    assert list(topology.stores) == ["KSTREAM-AGGREGATE-STATE-STORE-0000000003"]


def test_a_given_name_uses_up_its_number_and_renames_nothing_else() -> None:
    topology = built(
        lambda builder: builder.stream(orders).filter(lambda _, amount: amount > 1, "large").to("out", name="end")
    )
    other = built(lambda builder: builder.stream(orders).filter(lambda _, amount: amount > 1, "large").to("out"))

    assert list(topology.nodes) == ["KSTREAM-SOURCE-0000000000", "large", "end"]
    assert list(other.nodes) == ["KSTREAM-SOURCE-0000000000", "large", "KSTREAM-SINK-0000000002"]


def test_the_name_of_an_aggregation_also_names_its_store_and_topics() -> None:
    topology = built(lambda builder: builder.stream(lines).group_by(lambda _, word: word).count("words"))

    assert list(topology.stores) == ["words"]
    assert list(topology.internal_topics) == ["words-repartition"]
    assert "words" in topology.nodes


@pytest.mark.parametrize("store", [None, "kept"])
def test_store_separates_the_store_from_the_name(store: str | None) -> None:
    topology = built(lambda builder: builder.stream(orders).group_by_key().count("words", store=store))

    assert list(topology.stores) == [store or "KSTREAM-AGGREGATE-STATE-STORE-0000000001"]
    assert "words" in topology.nodes


def test_count_with_serdes_but_no_store_uses_up_one_number_more() -> None:
    """Kafka Streams burns a number in count(Materialized), except over sliding windows."""

    def store_of(count: Callable[[Any], Any]) -> str:
        (store,) = built(lambda builder: count(builder.stream(orders).group_by_key())).stores
        return store

    tumbling, sliding = TimeWindows.of(timedelta(seconds=1)), SlidingWindows.of(timedelta(seconds=1))

    assert store_of(lambda group: group.count()).endswith("1")
    assert store_of(lambda group: group.count(key=str)).endswith("2")
    assert store_of(lambda group: group.windowed_by(tumbling).count(key=str)).endswith("2")
    assert store_of(lambda group: group.windowed_by(sliding).count(key=str)).endswith("1")


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


def test_an_optimized_table_uses_its_topic_as_changelog() -> None:
    def declare(builder: StreamsBuilder) -> None:
        builder.table(orders, store="rows")

    assert built(declare).source_changelogs == {}
    assert built(declare, topology_optimization="all").source_changelogs == {"rows": "orders"}


def test_optimization_makes_one_repartition_topic_behind_a_change_of_key() -> None:
    def declare(builder: StreamsBuilder) -> None:
        stream = builder.stream(orders).select_key(lambda key, _: key[0])
        stream.group_by_key().count("one")
        stream.group_by_key().reduce(lambda old, new: old + new, "two")

    assert list(built(declare).internal_topics) == ["one-repartition", "two-repartition"]
    optimized = built(declare, topology_optimization="all")
    assert list(optimized.internal_topics) == ["one-repartition"]
    assert optimized.nodes["one"].parents == optimized.nodes["two"].parents == ("one-repartition-source",)  # type: ignore[union-attr]


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


def test_repartition_topics_downstream_of_one_operator_are_not_optimized_but_refused_as_by_the_reference() -> None:
    declare = _grouped_twice(lambda stream: stream.filter(lambda key, value: value > 0))
    assert list(built(declare).internal_topics) == ["one-repartition", "two-repartition"]
    with pytest.raises(TopologyError, match=r"'two-repartition' downstream of 'by': .* repartition\(\)"):
        built(declare, topology_optimization="all")


def test_optimized_merges_in_a_row_upstream_of_one_repartition_topic_are_refused_as_by_the_reference() -> None:
    def declare(builder: StreamsBuilder, then: Callable[[KStream[str, int]], KStream[str, int]]) -> None:
        stream = builder.stream(orders)
        merged = stream.merge(stream.merge(stream.select_key(lambda key, value: key), "first"), "second")
        then(merged).group_by_key(name="sums").count(name="a")

    with pytest.raises(TopologyError, match=r"move 'sums-repartition' downstream of the merge 'second': the topic"):
        built(lambda builder: declare(builder, lambda merged: merged), topology_optimization="all")
    mended = built(
        lambda builder: declare(builder, lambda merged: merged.repartition(name="once")), topology_optimization="all"
    )
    assert list(mended.internal_topics) == ["once-repartition"]


def test_what_the_refusal_of_shared_repartition_topics_proposes_can_be_built() -> None:
    declare = _grouped_twice(lambda stream: stream.repartition(name="once").filter(lambda key, value: value > 0))
    assert list(built(declare, topology_optimization="all").internal_topics) == ["once-repartition"]


def test_an_optimized_self_join_has_one_store() -> None:
    def declare(builder: StreamsBuilder) -> None:
        stream = builder.stream(orders)
        stream.join(stream, lambda left, right: left + right, WINDOWS, "j", store="s")

    assert sorted(built(declare).stores) == ["s-other-join-store", "s-this-join-store"]
    optimized = built(declare, topology_optimization="all")
    assert list(optimized.stores) == ["s-this-join-store"]
    assert list(optimized.nodes) == ["KSTREAM-SOURCE-0000000000", "j-this-windowed", "j-merge"]
