"""skeleton"""
from collections.abc import Callable
from typing import Any

from attrs import frozen

from streams.core.serdes import Serde
from streams.core.windows import SessionWindows
from streams.topology.operator import NodeContext, Process


@frozen
class SessionAggregate:
    store: str
    windows: SessionWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    merger: Callable[[Any, Any, Any], Any]
    key_serde: Serde[Any]
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class SessionCount:
    store: str
    windows: SessionWindows
    key_serde: Serde[Any]
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError


@frozen
class SessionReduce:
    store: str
    windows: SessionWindows
    reducer: Callable[[Any, Any], Any]
    key_serde: Serde[Any]
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        raise NotImplementedError
