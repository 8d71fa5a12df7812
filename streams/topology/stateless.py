"""Stateless operators: ``filter``, ``map``, ``branch`` and similar.

``with_key`` says whether a user function takes (key, value) or (value).
"""

from collections.abc import Callable, Iterable
from typing import Any

from attrs import frozen

from streams.core.inlining import inlined
from streams.core.records import Headers
from streams.core.user_code import CheckedFunction, refuse_result
from streams.topology.operator import NodeContext, Process


def _checked(function: Callable[..., Any], context: NodeContext, *, may_yield: bool = True) -> Callable[..., Any]:
    return CheckedFunction(function, f"node {context.node!r}", may_yield)


@frozen
class PassThrough:
    """Forwards every record unchanged: merges, and the root of an unconditional split."""

    def bind(self, context: NodeContext) -> Process:
        """Return the process function of one task."""
        return context.forward


@frozen
class Filter:
    """Forwards records for which ``predicate(key, value)`` is true (false if ``negate``)."""

    predicate: Callable[[Any, Any], object]
    negate: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Return the process function of one task."""
        forward, negate = context.forward, self.negate
        predicate = _checked(self.predicate, context, may_yield=False)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if not predicate(key, value) if negate else predicate(key, value):
                forward(key, value, timestamp_ms, headers)

        return process


@frozen
class MapValues:
    """Replaces the value by ``mapper(value)`` or ``mapper(key, value)``."""

    mapper: Callable[..., Any]
    with_key: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Return the process function of one task."""
        forward, mapper, with_key = context.forward, _checked(self.mapper, context), self.with_key

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            new = mapper(key, value) if with_key else mapper(value)
            forward(key, new, timestamp_ms, headers)

        return process


@frozen
class Map:
    """Replaces key and value by the pair that ``mapper(key, value)`` returns."""

    mapper: Callable[[Any, Any], tuple[Any, Any]]

    def bind(self, context: NodeContext) -> Process:
        """Return the process function of one task."""
        forward, mapper = context.forward, _checked(self.mapper, context)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            new_key, new_value = mapper(key, value)
            forward(new_key, new_value, timestamp_ms, headers)

        return process


@frozen
class SelectKey:
    """Replaces the key by ``mapper(key, value)``."""

    mapper: Callable[[Any, Any], Any]

    def bind(self, context: NodeContext) -> Process:
        """Return the process function of one task."""
        forward, mapper = context.forward, _checked(self.mapper, context)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            new_key = mapper(key, value)
            forward(new_key, value, timestamp_ms, headers)

        return process


@frozen
class FlatMap:
    """Replaces a record by the pairs of ``mapper(key, value)``."""

    mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]

    def bind(self, context: NodeContext) -> Process:
        """Return the process function of one task."""
        forward, mapper = context.forward, _checked(self.mapper, context)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            for new_key, new_value in mapper(key, value):
                forward(new_key, new_value, timestamp_ms, headers)

        return process


@frozen
class FlatMapValues:
    """Replaces a record by one per value of ``mapper(value)`` or ``mapper(key, value)``."""

    mapper: Callable[..., Any]
    with_key: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Return the process function of one task."""
        forward, mapper, with_key = context.forward, _checked(self.mapper, context), self.with_key

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            for new in mapper(key, value) if with_key else mapper(value):
                forward(key, new, timestamp_ms, headers)

        return process


@frozen
class Peek:
    """Calls ``action(key, value)`` and forwards the record unless it is terminal."""

    action: Callable[[Any, Any], object]
    is_terminal: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Return the process function of one task."""
        forward, is_terminal, what = context.forward, self.is_terminal, f"node {context.node!r}"
        action = _checked(self.action, context, may_yield=False)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            # The result is ignored; it may be a coroutine for some records only.
            returned = action(key, value)
            if returned is not None:
                refuse_result(returned, what)
            if not is_terminal:
                forward(key, value, timestamp_ms, headers)

        return process


@frozen
class Branch:
    """Sends a record to the first child whose predicate holds.

    ``predicates`` belong to the node's children, in order; None is the default branch, which
    must be last.  Without a default branch, unmatched records are dropped.
    """

    predicates: tuple[Callable[[Any, Any], object] | None, ...]

    def bind(self, context: NodeContext) -> Process:
        """Return the process function of one task."""
        process: Process = _ignore
        for predicate, child in reversed(list(zip(self.predicates, context.children, strict=True))):
            forward = context.forward_to(child)
            if predicate is None:
                process = forward
            else:
                process = _arm(_checked(predicate, context, may_yield=False), forward, process)
        return process


def _arm(predicate: Callable[[Any, Any], object], forward: Process, otherwise: Process) -> Process:
    """Return the function that forwards a record to one of two functions by a predicate."""

    @inlined
    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> Any:
        # The headers are returned, since a child may change them.
        if predicate(key, value):
            return forward(key, value, timestamp_ms, headers)
        return otherwise(key, value, timestamp_ms, headers)

    return process


@inlined
def _ignore(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
    """Drop a record that no branch takes."""


@frozen
class TableToStream:
    """Turns a table's change ``(new, old, is_latest)`` into its new value; ``keeps_tombstones``: deletions are None."""

    keeps_tombstones: bool = True

    def bind(self, context: NodeContext) -> Process:
        """Return the process function of one task."""
        forward, keeps_tombstones = context.forward, self.keeps_tombstones

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if keeps_tombstones or change[0] is not None:
                forward(key, change[0], timestamp_ms, headers)

        return process


#: Operators whose ``forward`` is called by their process function only.
STATELESS = (PassThrough, Filter, MapValues, Map, SelectKey, FlatMap, FlatMapValues, Peek, Branch, TableToStream)
