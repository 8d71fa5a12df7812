"""skeleton"""
from collections.abc import Callable
from typing import Any

from attrs import frozen

from streams.core.serdes import Serde
from streams.core.windows import JoinWindows
from streams.state.specs import StoreSpec
from streams.topology.operator import NodeContext, Process


@frozen
class JoinBuffer:
    """Forwards a record and then keeps it for the other side of the join (KSTREAM-WINDOWED)."""

    store: str

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class StreamStreamJoin:
    """One side of a join.

    ``name``: shared by both sides, names their common stream time.  ``outer_store``: only for left and
    outer joins, made by ``unmatched_store``; ``key_serde`` is that of the join's keys.  ``is_outer``: this side emits unmatched records.
    ``joiner`` is called with (left, right) or (key, left, right) on either side.
    """

    name: str
    other_store: str
    windows: JoinWindows
    joiner: Callable[..., Any]
    with_key: bool
    is_left_side: bool
    is_outer: bool = False
    outer_store: str | None = None
    key_serde: Serde[Any] | None = None

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class StreamSelfJoin:
    store: str
    windows: JoinWindows
    joiner: Callable[..., Any]
    with_key: bool
    retention_ms: int

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


def unmatched_store(name: str, key_serde: Serde[Any], left_serde: Serde[Any], right_serde: Serde[Any], *,
                    has_changelog: bool = True, is_persistent: bool | None = None) -> StoreSpec:
    raise NotImplementedError
