"""skeleton"""
from collections.abc import Callable
from typing import Any

from attrs import frozen

from streams.core.serdes import Serde
from streams.core.windows import FixedWindows
from streams.topology.operator import NodeContext, Process


@frozen
class WindowAggregate:
    store: str
    windows: FixedWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    key_serde: Serde[Any]
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class WindowCount:
    store: str
    windows: FixedWindows
    key_serde: Serde[Any]
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class WindowReduce:
    store: str
    windows: FixedWindows
    reducer: Callable[[Any, Any], Any]
    key_serde: Serde[Any]
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError
