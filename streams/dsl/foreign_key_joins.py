"""Joins of a table with the rows of another one by foreign key (KIP-213).

The left table subscribes to rows of the right one through a topic keyed by the foreign key;
answers come back through a topic keyed by the left table's key.  Imports operators and the
logical graph.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define

from streams.core.errors import TopologyError
from streams.dsl.functions import result_type, settled
from streams.dsl.logical import LogicalGraph, LogicalNode
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
from streams.dsl.slots import declared, hinted, overridden
from streams.dsl.table_state import SourceState

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
    other._state.enable_old(True)
    table._state.enable_old(True)
    parts = _parts(graph, name)
    key = overridden(table._key, key_form, table._name)
    left, right = table._value, other._value
    send_versioned: set[str] = set()
    join_versioned: set[str] = set()

    send = graph.add(
        table._node,
        LogicalNode(
            parts.send,
            Process(
                lambda: SubscriptionSend(
                    foreign_key, other._key.resolve(), left.resolve(), is_left, bool(send_versioned)
                )
            ),
            versioned_parents=send_versioned,
        ),
    )
    sink = graph.add(
        send,
        LogicalNode(
            parts.subscription_sink,
            InternalSink(
                parts.subscription_topic,
                other._key.resolve,
                lambda: subscription_serde(key.resolve()),
                other_partitioner or subscription_partition,
            ),
        ),
    )
    source = graph.add(
        sink,
        LogicalNode(
            parts.subscription_source,
            InternalSource(parts.subscription_topic, other._key.resolve, lambda: subscription_serde(key.resolve())),
        ),
    )
    graph.copartition(other._sources | {source.name})
    subscriptions = once(lambda: subscription_store(parts.store, key.resolve()))
    receive = graph.add(
        source,
        LogicalNode(
            parts.receive,
            Process(
                lambda: SubscriptionReceive(parts.store, key.resolve(), other._key.resolve()),
                lambda: (subscriptions(),),
            ),
        ),
    )
    right_values = other._state.values()
    join = graph.add(
        receive,
        LogicalNode(parts.join, Process(lambda: SubscriptionJoin(right_values), connected=lambda: right_values.stores)),
    )
    foreign_join = graph.add(
        other._node,
        LogicalNode(
            parts.foreign_join,
            Process(
                lambda: ForeignTableJoin(parts.store, key.resolve(), other._key.resolve(), bool(join_versioned)),
                lambda: (subscriptions(),),
            ),
            versioned_parents=join_versioned,
        ),
    )
    response_sink = graph.add(
        (join, foreign_join),
        LogicalNode(
            parts.response_sink,
            InternalSink(
                parts.response_topic,
                key.resolve,
                lambda: response_serde(right.resolve()),
                partitioner or response_partition,
            ),
        ),
    )
    response_source = graph.add(
        response_sink,
        LogicalNode(
            parts.response_source,
            InternalSource(parts.response_topic, key.resolve, lambda: response_serde(right.resolve())),
        ),
    )
    sources = graph.copartition(table._sources | {response_source.name})
    left_values = table._state.values()
    resolver = graph.add(
        response_source,
        LogicalNode(
            parts.resolver,
            Process(
                lambda: ResponseJoin(left_values, left.resolve(), joiner, with_key, is_left),
                connected=lambda: left_values.stores,
            ),
        ),
    )
    value = declared(value_form, parts.result)
    if value_form is NOT_GIVEN:
        value = hinted(result_type(joiner), parts.result)
    kept = key_value(graph, store_name(None, store), _PREFIX + "OUTPUT-", key, value, options)
    state = SourceState(kept, kept.is_queryable)
    result = graph.add(
        resolver,
        LogicalNode(
            parts.result,
            Process(lambda: TableSource(state.store, state.send_old), state.specs),
            is_output_versioned=kept.is_versioned,
        ),
    )
    return type(table)(graph, parts.result, key, value, sources, state, result)
