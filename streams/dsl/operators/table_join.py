"""skeleton"""
from collections.abc import Callable
from typing import Any

from attrs import frozen

from streams.core.serdes import Serde
from streams.dsl.operators.getters import TableValues
from streams.dsl.operators.joining import JoinKind
from streams.state.specs import StoreSpec
from streams.topology.operator import NodeContext, Process


@frozen
class StreamTableJoin:
    """Stream record with the table's row; ``grace_ms`` (needs a versioned table) with ``buffer_store`` made by ``grace_store``."""

    table: TableValues
    joiner: Callable[..., Any]
    with_key: bool
    is_left: bool = False
    grace_ms: int | None = None
    buffer_store: str | None = None
    key_serde: Serde[Any] | None = None

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class StreamGlobalTableJoin:
    """The joiner's key is the stream's; ``table_key(key, value)`` gives the key of the table."""

    table: TableValues
    table_key: Callable[[Any, Any], Any]
    joiner: Callable[..., Any]
    with_key: bool
    is_left: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class TableTableJoin:
    """One side of a table-table join: ``other`` are the rows of the other side."""

    other: TableValues
    joiner: Callable[..., Any]
    with_key: bool
    kind: JoinKind
    is_left_side: bool
    send_old: bool = False
    is_versioned: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class TableJoinMerge:
    """Where both sides of a table-table join come together."""

    store: str | None = None
    send_old: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


def grace_store(name: str, key_serde: Serde[Any], value_serde: Serde[Any], *, has_changelog: bool = True) -> StoreSpec:
    raise NotImplementedError
