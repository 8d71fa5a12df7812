"""Joins of a table with the rows of another one by foreign key (KIP-213).

The left table subscribes to rows of the right one through a topic keyed by the foreign key;
answers come back through a topic keyed by the left table's key.  Imports operators and the
logical graph.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from attrs import define, frozen

from streams.core.errors import TopologyError
from streams.dsl.functions import result_type, settled
from streams.dsl.logical import Content, LogicalGraph, LogicalNode
from streams.dsl.materialized import NOT_GIVEN, key_value, once, store_name
from streams.dsl.nodes import InternalSink, InternalSource, Process
from streams.dsl.operators import (
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
    TableSource,
    response_partition,
    response_serde,
    subscription_partition,
    subscription_serde,
    subscription_store,
)
from streams.dsl.slots import Slot, declared, hinted, overridden
from streams.dsl.table_state import SourceState
from streams.state.specs import StoreSpec
from streams.topology.graph import Partitioner

if TYPE_CHECKING:
    from streams.dsl.table import KTable

_PREFIX = "KTABLE-FK-JOIN-"
_PROCESSOR = _PREFIX + "SUBSCRIPTION-PROCESSOR-"


@define
class _Parts:
    """Names of the parts of the join, in the order in which Kafka Streams numbers them."""

    subscription_topic: str
    send: str
    subscription_sink: str
    subscription_source: str
    store: str
    receive: str
    join: str
    foreign_join: str
    response_topic: str
    response_sink: str
    response_source: str
    resolver: str
    result: str


def _parts(graph: LogicalGraph, name: str | None) -> _Parts:
    def part(suffix: str, prefix: str) -> str:
        return graph.names.suffixed(name, suffix, prefix)

    return _Parts(
        part("-subscription-registration", _PREFIX + "SUBSCRIPTION-REGISTRATION-") + "-topic",
        part("-subscription-registration-processor", _PREFIX + "SUBSCRIPTION-REGISTRATION-"),
        part("-subscription-registration-sink", "KTABLE-SINK-"),
        part("-subscription-registration-source", "KTABLE-SOURCE-"),
        part("-subscription-store", _PREFIX + "SUBSCRIPTION-STATE-STORE-"),
        part("-subscription-receive", _PROCESSOR),
        part("-subscription-join-foreign", _PROCESSOR),
        part("-foreign-join-subscription", _PROCESSOR),
        part("-subscription-response", _PREFIX + "SUBSCRIPTION-RESPONSE-") + "-topic",
        part("-subscription-response-sink", "KTABLE-SINK-"),
        part("-subscription-response-source", "KTABLE-SOURCE-"),
        part("-subscription-response-resolver", _PREFIX + "SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"),
        part("-result", _PREFIX + "OUTPUT-"),
    )


@frozen
class _ForeignKeyJoin:
    """A join under construction: both tables, the names of its parts, and the slots."""

    graph: LogicalGraph
    parts: _Parts
    left: "KTable[Any, Any]"
    right: "KTable[Any, Any]"
    key: Slot
    is_left: bool
    subscriptions: Callable[[], StoreSpec]

    def add(self, parents: LogicalNode | Iterable[LogicalNode], name: str, content: Content) -> LogicalNode:
        """Add a node."""
        return self.graph.add(parents, LogicalNode(name, content))

    def subscribe(self, foreign_key: Callable[[Any, Any], Any], partitioner: Partitioner) -> LogicalNode:
        """Add the way of subscriptions from the left table to the partitions of the right one."""
        parts, key, foreign = self.parts, self.key, self.right._key
        versioned: set[str] = set()
        content = Process(
            lambda: SubscriptionSend(
                foreign_key, foreign.resolve(), self.left._value.resolve(), self.is_left, bool(versioned)
            )
        )
        send = self.graph.add(self.left._node, LogicalNode(parts.send, content, versioned_parents=versioned))
        topic = parts.subscription_topic
        wrapped = once(lambda: subscription_serde(key.resolve()))
        sink = self.add(send, parts.subscription_sink, InternalSink(topic, foreign.resolve, wrapped, partitioner))
        source = self.add(sink, parts.subscription_source, InternalSource(topic, foreign.resolve, wrapped))
        self.graph.copartition(self.right._sources | {source.name})
        return source

    def answer(self, subscriptions: LogicalNode, partitioner: Partitioner) -> LogicalNode:
        """Add the way of rows of the right table back to the partitions of the left one."""
        parts, key, foreign = self.parts, self.key, self.right._key
        owned = Process(
            lambda: SubscriptionReceive(parts.store, key.resolve(), foreign.resolve()),
            lambda: (self.subscriptions(),),
        )
        receive = self.add(subscriptions, parts.receive, owned)
        rows = self.right._state.values()
        join = self.add(receive, parts.join, Process(lambda: SubscriptionJoin(rows), connected=lambda: rows.stores))
        versioned: set[str] = set()
        content = Process(
            lambda: ForeignTableJoin(parts.store, key.resolve(), foreign.resolve(), bool(versioned)),
            lambda: (self.subscriptions(),),
        )
        foreign_join = self.graph.add(
            self.right._node, LogicalNode(parts.foreign_join, content, versioned_parents=versioned)
        )
        topic = parts.response_topic
        wrapped = once(lambda: response_serde(self.right._value.resolve()))
        sink = self.add(
            (join, foreign_join), parts.response_sink, InternalSink(topic, key.resolve, wrapped, partitioner)
        )
        return self.add(sink, parts.response_source, InternalSource(topic, key.resolve, wrapped))

    def resolve(self, responses: LogicalNode, joiner: Callable[..., Any], with_key: bool) -> LogicalNode:
        """Add the join itself, of responses and the current left rows."""
        rows, value = self.left._state.values(), self.left._value
        content = Process(
            lambda: ResponseJoin(rows, value.resolve(), joiner, with_key, self.is_left),
            connected=lambda: rows.stores,
        )
        return self.add(responses, self.parts.resolver, content)


def joined(
    table: "KTable[Any, Any]",
    other: "KTable[Any, Any]",
    joiner: Callable[..., Any],
    with_key: bool,
    name: str | None,
    options: dict[str, Any],
    *,
    is_left: bool,
) -> "KTable[Any, Any]":
    """Add both topics, the subscription store and the operators around them."""
    graph = table._graph
    foreign_key = options.pop("foreign_key")
    partitioner, other_partitioner = options.pop("partitioner", None), options.pop("other_partitioner", None)
    key_form, value_form = options.pop("key", NOT_GIVEN), options.pop("value", NOT_GIVEN)
    store = options.pop("store", None)
    if foreign_key is None:
        raise TopologyError(f"join of {table!r} and {other!r}: foreign_key must be a function, got None")
    settled(foreign_key, "foreign_key", "(key, value)")
    for what, chooser in (("partitioner", partitioner), ("other_partitioner", other_partitioner)):
        if chooser is not None:
            settled(chooser, f"{what} of join", "(topic, key, value, partitions)")
    other._state.enable_old(True)
    table._state.enable_old(True)
    parts = _parts(graph, name)
    key = overridden(table._key, key_form, table._name)
    join = _ForeignKeyJoin(
        graph, parts, table, other, key, is_left, once(lambda: subscription_store(parts.store, key.resolve()))
    )
    subscriptions = join.subscribe(foreign_key, other_partitioner or subscription_partition)
    responses = join.answer(subscriptions, partitioner or response_partition)
    sources = graph.copartition(table._sources | {responses.name})
    resolver = join.resolve(responses, joiner, with_key)
    value = declared(value_form, parts.result)
    if value_form is NOT_GIVEN:
        value = hinted(result_type(joiner), parts.result)
    kept = key_value(graph, store_name(None, store), _PREFIX + "OUTPUT-", key, value, options)
    state = SourceState(kept, kept.is_queryable)
    content = Process(lambda: TableSource(state.store, state.send_old), state.specs)
    result = graph.add(resolver, LogicalNode(parts.result, content, is_output_versioned=kept.is_versioned))
    return type(table)(graph, parts.result, key, value, sources, state, result)
