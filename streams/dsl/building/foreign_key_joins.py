"""Joins of one table with another table by foreign key (KIP-213).

The left table subscribes to rows of the right table through a topic keyed by the foreign key.  Responses come back
through a topic keyed by the key of the left table.  The module imports only ``core``, ``state`` and ``topology`` from
outside ``dsl``.
"""

from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, field, frozen

from streams.core.errors import TopologyError
from streams.dsl.building.side_outputs import SideOutputs
from streams.dsl.functions import check_function, result_type
from streams.dsl.logical import LogicalContent, LogicalGraph, LogicalNode
from streams.dsl.materialized import StoreArguments, key_value, once
from streams.dsl.nodes import LogicalInternalSink, LogicalInternalSource, LogicalOperator
from streams.dsl.processing import (
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
from streams.dsl.ref import StreamRef, TableRef
from streams.dsl.serde_variables import SerdeVariable, declared_or_annotated, overridden
from streams.dsl.table_state import SourceState
from streams.state import StoreSpec
from streams.topology import Partitioner

_PREFIX = "KTABLE-FK-JOIN-"
_PROCESSOR = _PREFIX + "SUBSCRIPTION-PROCESSOR-"


@frozen
class _Parts:
    """The names of a join's nodes, topics and store, in the order in which Kafka Streams numbers them."""

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


@define
class _ForeignKeyJoin:
    """The steps that build a foreign-key join: its tables, its node names, and the serde variable for its keys."""

    graph: LogicalGraph
    parts: _Parts
    left: TableRef
    right: TableRef
    key: SerdeVariable
    is_left: bool
    subscriptions: Callable[[], StoreSpec]
    send: LogicalNode = field(init=False)

    def add(self, parents: LogicalNode | Iterable[LogicalNode], name: str, content: LogicalContent) -> LogicalNode:
        """Add a node with this name and content downstream of ``parents``."""
        return self.graph.add(parents, LogicalNode(name, content))

    def send_subscriptions(self, foreign_key: Callable[[Any, Any], Any], partitioner: Partitioner) -> LogicalNode:
        """Add the topic that carries subscriptions from the left table to the partitions of the right table."""
        parts = self.parts
        key = self.key
        foreign = self.right.key
        # Filled by ``optimize``, before the operator is created.
        versioned: set[str] = set()
        content = LogicalOperator(
            lambda: SubscriptionSend(
                foreign_key, foreign.resolve(), self.left.value.resolve(), self.is_left, bool(versioned)
            )
        )
        send = self.send = self.graph.add(self.left.node, LogicalNode(parts.send, content, versioned_parents=versioned))
        topic = parts.subscription_topic
        wrapped = once(lambda: subscription_serde(key.resolve()))
        sink = self.add(
            send, parts.subscription_sink, LogicalInternalSink(topic, foreign.resolve, wrapped, partitioner)
        )
        return self.add(sink, parts.subscription_source, LogicalInternalSource(topic, foreign.resolve, wrapped))

    def send_responses(self, subscriptions: LogicalNode, partitioner: Partitioner) -> LogicalNode:
        """Add the nodes that compute responses, and the topic that carries them to the partitions of the left table."""
        parts = self.parts
        key = self.key
        foreign = self.right.key
        owned = LogicalOperator(
            lambda: SubscriptionReceive(parts.store, key.resolve(), foreign.resolve()),
            lambda: (self.subscriptions(),),
        )
        receive = self.add(subscriptions, parts.receive, owned)
        rows = self.right.state.values()
        join = self.add(
            receive, parts.join, LogicalOperator(lambda: SubscriptionJoin(rows), connected=lambda: rows.stores)
        )
        # Filled by ``optimize``, before the operator is created.
        versioned: set[str] = set()
        content = LogicalOperator(
            lambda: ForeignTableJoin(parts.store, key.resolve(), foreign.resolve(), bool(versioned)),
            lambda: (self.subscriptions(),),
        )
        foreign_join = self.graph.add(
            self.right.node, LogicalNode(parts.foreign_join, content, versioned_parents=versioned)
        )
        topic = parts.response_topic
        wrapped = once(lambda: response_serde(self.right.value.resolve()))
        sink = self.add(
            (join, foreign_join), parts.response_sink, LogicalInternalSink(topic, key.resolve, wrapped, partitioner)
        )
        return self.add(sink, parts.response_source, LogicalInternalSource(topic, key.resolve, wrapped))

    def join_responses(self, responses: LogicalNode, joiner: Callable[..., Any], with_key: bool) -> LogicalNode:
        """Add the node that joins the responses with the current rows of the left table."""
        rows = self.left.state.values()
        value = self.left.value
        content = LogicalOperator(
            lambda: ResponseJoin(rows, value.resolve(), joiner, with_key, self.is_left),
            connected=lambda: rows.stores,
        )
        return self.add(responses, self.parts.resolver, content)


def join(
    table: TableRef,
    other: TableRef,
    joiner: Callable[..., Any],
    with_key: bool,
    name: str | None,
    options: dict[str, Any],
    *,
    is_left: bool,
) -> TableRef:
    """Add a foreign-key join to the logical graph: both of its topics, its subscription store, and its operators."""
    graph = table.graph
    foreign_key = options.pop("foreign_key")
    partitioner = options.pop("partitioner", None)
    other_partitioner = options.pop("other_partitioner", None)
    arguments = StoreArguments.of(options)
    if foreign_key is None:
        raise TopologyError(f"join of {table!r} and {other!r}: foreign_key must be a function, got None")
    check_function(foreign_key, "foreign_key", "(key, value)")
    for what, chooser in (("partitioner", partitioner), ("other_partitioner", other_partitioner)):
        if chooser is not None:
            check_function(chooser, f"{what} of join", "(topic, key, value, partitions)")
    other.state.enable_old(True)
    table.state.enable_old(True)
    parts = _parts(graph, name)
    key = overridden(table.key, arguments.key, table.name)
    spec = once(lambda: subscription_store(parts.store, key.resolve()))
    steps = _ForeignKeyJoin(graph, parts, table, other, key, is_left, spec)
    subscriptions = steps.send_subscriptions(foreign_key, other_partitioner or subscription_partition)
    responses = steps.send_responses(subscriptions, partitioner or response_partition)
    resolver = steps.join_responses(responses, joiner, with_key)
    value = declared_or_annotated(arguments.value, result_type(joiner), parts.result)
    materialized = key_value(graph, arguments.store_name(None), _PREFIX + "OUTPUT-", key, value, arguments.options)
    state = SourceState(materialized, materialized.is_queryable)
    content = LogicalOperator(lambda: TableSource(state.store, state.send_old), state.specs)
    result = LogicalNode(parts.result, content, is_output_versioned=materialized.is_versioned)
    joined = TableRef(graph, graph.add(resolver, result), key, value, state)
    joined.side = SideOutputs.at(steps.send, StreamRef(graph, table.node, key, table.value))
    return joined
