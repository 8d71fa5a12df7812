"""skeleton"""
from collections.abc import Callable
from typing import Any

from attrs import frozen

from streams.core.serdes import Serde
from streams.core.windows import SlidingWindows
from streams.topology.operator import NodeContext, Process


@frozen
class SlidingAggregate:
    store: str
    windows: SlidingWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    key_serde: Serde[Any]
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class SlidingCount:
    store: str
    windows: SlidingWindows
    key_serde: Serde[Any]
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class SlidingReduce:
    store: str
    windows: SlidingWindows
    reducer: Callable[[Any, Any], Any]
    key_serde: Serde[Any]
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError
