"""skeleton"""
from collections.abc import Callable
from typing import Any

from attrs import frozen

from streams.core.serdes import Serde
from streams.dsl.operators.getters import TableValues
from streams.state.specs import StoreSpec
from streams.topology.operator import NodeContext, Process


@frozen
class SubscriptionSend:
    """Left table -> subscription topic (key: foreign key, value: subscription_serde)."""

    foreign_key: Callable[[Any, Any], Any]
    foreign_key_serde: Serde[Any]
    value_serde: Serde[Any]
    is_left: bool = False
    is_versioned: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class SubscriptionReceive:
    store: str
    key_serde: Serde[Any]
    foreign_key_serde: Serde[Any]

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class SubscriptionJoin:
    """``table``: rows of the right table."""

    table: TableValues

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class ForeignTableJoin:
    """Right table's change -> responses to all subscribers."""

    store: str
    key_serde: Serde[Any]
    foreign_key_serde: Serde[Any]
    is_versioned: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class ResponseJoin:
    """Response topic -> join result (a stream of upserts, to be followed by a TableSource). ``table``: rows of the left table."""

    table: TableValues
    value_serde: Serde[Any]
    joiner: Callable[..., Any]
    with_key: bool
    is_left: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


def subscription_store(name: str, key_serde: Serde[Any], *, has_changelog: bool = True, is_persistent: bool | None = None) -> StoreSpec:
    raise NotImplementedError


def subscription_serde(key_serde: Serde[Any]) -> Serde[Any]:
    """Value serde of the subscription topic (its key serde is that of the foreign key)."""
    raise NotImplementedError


def response_serde(value_serde: Serde[Any]) -> Serde[Any]:
    """Value serde of the response topic; value_serde is that of the right table."""
    raise NotImplementedError


def subscription_partition(topic: str, key: Any, value: Any, partitions: int) -> int | None:
    """Partitioner of the subscription topic's sink."""
    raise NotImplementedError


def response_partition(topic: str, key: Any, value: Any, partitions: int) -> int | None:
    """Partitioner of the response topic's sink."""
    raise NotImplementedError
