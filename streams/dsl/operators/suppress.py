"""skeleton"""
from typing import Any

from attrs import frozen

from streams.core.serdes import Serde
from streams.dsl.operators.getters import Getter, TableValues, TimeGetter
from streams.state.specs import StoreSpec
from streams.topology.operator import NodeContext, Process


@frozen
class Suppress:
    """``wait_ms``: time limit, or the grace period if ``until_window_close``; the parent must send old values."""

    store: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    wait_ms: int
    until_window_close: bool = False
    max_records: int | None = None
    max_bytes: int | None = None
    shut_down_when_full: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class SuppressedValues:
    """Rows of a suppressed table: for a buffered key the last one emitted, else the parent's."""

    parent: TableValues
    store: str
    key_serde: Serde[Any]

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store, *self.parent.stores)

    def getter(self, context: NodeContext) -> Getter:
        raise NotImplementedError

    def time_getter(self, context: NodeContext) -> TimeGetter | None:
        return None


def suppress_store(name: str, key_serde: Serde[Any], value_serde: Serde[Any], *, has_changelog: bool = True) -> StoreSpec:
    raise NotImplementedError
