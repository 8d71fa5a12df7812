"""Which serdes stores, sinks and repartition topics get."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams.core.errors import TopologyError
from streams.core.event_time.windows import JoinWindows, TimeWindows
from streams.core.serdes.serdes import DOUBLE, LONG, STRING, PinnedSerde, WindowedSerde, time_windowed
from streams.core.topic import Topic
from streams.dsl import StreamsBuilder
from streams.topology.graph import SinkNode, SourceNode
from streams.topology.topology import Topology

orders = Topic("orders", key=str, value=int)
lines = Topic("lines", value=str)
counts = Topic("counts", key=str, value=int)
SECOND = timedelta(seconds=1)


def built(declare: Callable[[StreamsBuilder], Any]) -> Topology:
    builder = StreamsBuilder()
    declare(builder)
    return builder.build()


def around(topology: Topology, topic: str) -> tuple[SinkNode, SourceNode]:
    """Return the sink that writes an internal topic and the source that reads it."""
    (sink,) = [node for node in topology.sinks() if node.topic == topic]
    (source,) = [node for node in topology.sources() if topic in node.topics]
    return sink, source


def test_serdes_of_a_topic_go_along_unchanged_types() -> None:
    topology = built(
        lambda builder: (
            builder.stream(orders).filter(lambda _, amount: amount > 1).peek(print).group_by_key().reduce(max)
        )
    )

    (store,) = topology.stores.values()
    assert (store.key_serde, store.value_serde) == (STRING, LONG)


def test_types_upstream_are_inferred_from_a_sink() -> None:
    """The key type of group_by is only declared by the topic to which the counts are written."""
    topology = built(
        lambda builder: builder.stream(lines).group_by(lambda _, word: word).count("words").to_stream().to(counts)
    )

    sink, source = around(topology, "words-repartition")
    assert sink.key_serde is source.key_serde is topology.stores["words"].key_serde is STRING
    assert topology.stores["words"].value_serde is LONG


def test_inner_key_type_upstream_is_inferred_from_a_windowed_sink() -> None:
    windowed = Topic("windowed", key=time_windowed(str, SECOND), value=int)
    topology = built(
        lambda builder: (
            builder.stream(lines)
            .group_by(lambda _, word: word)
            .windowed_by(TimeWindows.of(SECOND))
            .count("words")
            .to_stream()
            .to(windowed)
        )
    )

    assert topology.stores["words"].key_serde is STRING


def test_windowed_keys_are_written_as_such_without_being_told() -> None:
    topology = built(
        lambda builder: (
            builder.stream(orders).group_by_key().windowed_by(TimeWindows.of(SECOND)).count().to_stream().to("by-name")
        )
    )

    (sink,) = topology.sinks()
    assert isinstance(sink.key_serde, WindowedSerde)
    assert sink.key_serde.inner is STRING


def test_key_type_is_inferred_from_a_join_partner() -> None:
    topology = built(
        lambda builder: (
            builder.stream(lines)
            .select_key(lambda _, line: line.split()[0])
            .join(builder.stream(orders), lambda line, amount: line * amount, JoinWindows.of(SECOND))
        )
    )

    sink, _ = around(topology, "KSTREAM-KEY-SELECT-0000000001-repartition")
    assert sink.key_serde is STRING


def test_undeclared_serde_is_pinned_and_shared_by_writer_and_reader() -> None:
    topology = built(lambda builder: builder.stream(lines).group_by(lambda _, word: word).count("words"))

    sink, source = around(topology, "words-repartition")
    assert isinstance(sink.key_serde, PinnedSerde)
    assert sink.key_serde is source.key_serde is topology.stores["words"].key_serde
    assert sink.key_serde.node == "KSTREAM-KEY-SELECT-0000000001"


def test_key_and_value_on_the_operator_come_first() -> None:
    topology = built(
        lambda builder: (
            builder.stream(lines)
            .group_by(lambda _, word: len(word), key=float)
            .aggregate(list, lambda _, word, seen: [*seen, word], name="seen", value=list[str])
        )
    )

    spec = topology.stores["seen"]
    assert spec.key_serde is DOUBLE
    assert spec.value_serde.name == "json:list[str]"


def test_result_type_is_inferred_from_an_annotation() -> None:
    def parsed(line: str) -> float:
        return float(line)

    topology = built(lambda builder: builder.stream(lines).map_values(parsed).select_key(lambda _, x: x).to_table("t"))

    assert topology.stores["t"].value_serde is DOUBLE


def test_aggregate_type_is_inferred_from_an_initializer_class() -> None:
    topology = built(
        lambda builder: (
            builder.stream(orders).group_by_key().aggregate(float, lambda _, amount, sum_: sum_ + amount, name="s")
        )
    )

    assert topology.stores["s"].value_serde is DOUBLE


def test_sinks_that_contradict_each_other_tell_nothing() -> None:
    def declare(builder: StreamsBuilder) -> None:
        keyed = builder.stream(orders).map_values(lambda amount: amount)
        keyed.to(Topic("ints", key=str, value=int))
        keyed.to(Topic("floats", key=str, value=float))
        keyed.to_table("t")

    assert isinstance(built(declare).stores["t"].value_serde, PinnedSerde)


async def awaited(*arguments: Any) -> Any:
    return arguments


#: Operators whose functions may change the type, with what they change.
DECLARED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "map": ("kv", lambda it: it.map(lambda key, value: (1, 2.0), key=int, value=float)),
    "map_values": ("v", lambda it: it.map_values(lambda value: 2.0, value=float)),
    "flat_map": ("kv", lambda it: it.flat_map(lambda key, value: [(1, 2.0)], key=int, value=float)),
    "flat_map_values": ("v", lambda it: it.flat_map_values(lambda value: [2.0], value=float)),
    "map_values_async": ("v", lambda it: it.map_values_async(awaited, value=float)),
    "map_async": ("kv", lambda it: it.map_async(awaited, key=int, value=float)),
    "flat_map_async": ("kv", lambda it: it.flat_map_async(awaited, key=int, value=float)),
    "flat_map_batches": ("kv", lambda it: it.flat_map_batches(lambda rows: [], key=int, value=float)),
    "select_key": ("k", lambda it: it.select_key(lambda key, value: 1, key=int)),
    "map_pairs": ("v", lambda it: it.look_up({}.get).map_pairs(lambda value, _: 2.0, value=float)),
    "to_stream": ("k", lambda it: it.to_table().to_stream(lambda key, value: 1, key=int)),
}


@pytest.mark.parametrize("operator", DECLARED)
def test_a_type_is_declared_where_a_function_may_change_it(operator: str) -> None:
    """Without it the type would be that of the first record, and no other program could know it before."""
    changed, apply = DECLARED[operator]
    builder = StreamsBuilder()
    apply(builder.stream("in", key=str, value=str)).to("out")
    (sink,) = (node for node in builder.build().nodes.values() if isinstance(node, SinkNode))
    assert sink.key_serde.name == ("long" if "k" in changed else "string")
    assert sink.value_serde.name == ("double" if "v" in changed else "string")


def test_the_type_of_a_mapper_that_is_not_there_is_refused() -> None:
    with pytest.raises(TopologyError, match="key= is the type of what a mapper returns, and there is none"):
        StreamsBuilder().table("rows", key=str, value=str).to_stream(key=int)  # type: ignore[call-overload]
