"""Stateless operators: ``filter``, ``map``, ``branch`` and similar.

``with_key`` determines whether a user function takes (key, value) or only (value).
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from attrs import frozen

from streams.core.blocks.records import Headers
from streams.core.inlining import inlined
from streams.core.metrics import DropReason
from streams.core.user_code import CheckedFunction, refuse_no_pair, refuse_result
from streams.topology.columns.forms import Condition, NewKey, NewValue
from streams.topology.node_context import NodeContext
from streams.topology.operator import Process


def _checked(function: Callable[..., Any], context: NodeContext, *, may_yield: bool = True) -> Callable[..., Any]:
    return CheckedFunction(function, f"node {context.node!r}", may_yield)


@frozen
class PassThrough:
    """Forwards every record unchanged: merges, and the root of an unconditional split."""

    is_one_to_one: ClassVar = True
    is_plumbing: ClassVar = True

    def bind(self, context: NodeContext) -> Process:
        return context.output.forward


@frozen
class SideOutput:
    """Forwards the records that its parents drop for certain reasons; the parents forward no other records to it."""

    reasons: frozenset[str]

    def bind(self, context: NodeContext) -> Process:
        return context.output.forward


@frozen
class Filter:
    """Forwards the records for which ``predicate(key, value)`` is true or, with ``negate``, false."""

    predicate: Callable[[Any, Any], object]
    negate: bool = False

    @property
    def columns(self) -> Condition:
        """What columns do instead."""
        return Condition(self.predicate, self.negate)

    def bind(self, context: NodeContext) -> Process:
        forward = context.output.forward
        negate = self.negate
        predicate = _checked(self.predicate, context, may_yield=False)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if not predicate(key, value) if negate else predicate(key, value):
                forward(key, value, timestamp_ms, headers)

        return process


@frozen
class KeyFilter:
    """Forwards records that have a key, as required upstream of a repartition topic; other records are counted."""

    is_one_to_one: ClassVar = True
    is_plumbing: ClassVar = True

    def bind(self, context: NodeContext) -> Process:
        forward = context.output.forward
        without_key = context.metrics.tally(DropReason.NULL_KEY)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None:
                without_key.value += 1
            else:
                forward(key, value, timestamp_ms, headers)

        return process


@frozen
class MapValues:
    """Replaces the value with ``mapper(value)`` or ``mapper(key, value)``."""

    is_one_to_one: ClassVar = True
    mapper: Callable[..., Any]
    with_key: bool = False

    @property
    def columns(self) -> NewValue:
        """What columns do instead."""
        return NewValue(self.mapper, self.with_key)

    def bind(self, context: NodeContext) -> Process:
        forward = context.output.forward
        mapper = _checked(self.mapper, context)
        with_key = self.with_key

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            new = mapper(key, value) if with_key else mapper(value)
            forward(key, new, timestamp_ms, headers)

        return process


@frozen
class Map:
    """Replaces the key and value with the pair that ``mapper(key, value)`` returns."""

    is_one_to_one: ClassVar = True
    mapper: Callable[[Any, Any], tuple[Any, Any]]
    result: ClassVar[str] = "a pair (key, value)"

    def bind(self, context: NodeContext) -> Process:
        forward = context.output.forward
        mapper = _checked(self.mapper, context)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            pair = mapper(key, value)
            if type(pair) is not tuple:
                refuse_no_pair(pair)
            new_key, new_value = pair
            forward(new_key, new_value, timestamp_ms, headers)

        return process


@frozen
class SelectKey:
    """Replaces the key with ``mapper(key, value)``."""

    is_one_to_one: ClassVar = True
    mapper: Callable[[Any, Any], Any]

    @property
    def columns(self) -> NewKey:
        """What columns do instead."""
        return NewKey(self.mapper)

    def bind(self, context: NodeContext) -> Process:
        forward = context.output.forward
        mapper = _checked(self.mapper, context)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            new_key = mapper(key, value)
            forward(new_key, value, timestamp_ms, headers)

        return process


@frozen
class FlatMap:
    """Replaces a record with one record per pair that ``mapper(key, value)`` returns."""

    mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]
    result: ClassVar[str] = "an iterable of pairs (key, value)"

    def bind(self, context: NodeContext) -> Process:
        forward = context.output.forward
        mapper = _checked(self.mapper, context)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            for pair in mapper(key, value):
                if type(pair) is not tuple:
                    refuse_no_pair(pair)
                new_key, new_value = pair
                forward(new_key, new_value, timestamp_ms, headers)

        return process


@frozen
class FlatMapValues:
    """Replaces a record with one record per value that ``mapper(value)`` or ``mapper(key, value)`` returns."""

    mapper: Callable[..., Any]
    with_key: bool = False
    result: ClassVar[str] = "an iterable of values"

    def bind(self, context: NodeContext) -> Process:
        forward = context.output.forward
        mapper = _checked(self.mapper, context)
        with_key = self.with_key

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            for new in mapper(key, value) if with_key else mapper(value):
                forward(key, new, timestamp_ms, headers)

        return process


@frozen
class Peek:
    """Calls ``action(key, value)`` and forwards the record unchanged; with ``is_terminal``, it is not forwarded."""

    is_one_to_one: ClassVar = True
    action: Callable[[Any, Any], object]
    is_terminal: bool = False

    def bind(self, context: NodeContext) -> Process:
        forward = context.output.forward
        is_terminal = self.is_terminal
        what = f"node {context.node!r}"
        action = _checked(self.action, context, may_yield=False)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            # The result is ignored, and may be a coroutine only for some records.
            returned = action(key, value)
            if returned is not None:
                refuse_result(returned, what)
            if not is_terminal:
                forward(key, value, timestamp_ms, headers)

        return process


@frozen
class Branch:
    """Forwards a record to the first child whose predicate is true.

    ``predicates`` correspond to the children of the node, in order; None stands for the default branch, which
    must be last. Without a default branch, unmatched records are dropped.
    """

    predicates: tuple[Callable[[Any, Any], object] | None, ...]

    def bind(self, context: NodeContext) -> Process:
        process: Process = _ignore
        for predicate, child in reversed(list(zip(self.predicates, context.output.children, strict=True))):
            forward = context.output.forward_to(child)
            if predicate is None:
                process = forward
            else:
                process = _arm(_checked(predicate, context, may_yield=False), forward, process)
        return process


def _arm(predicate: Callable[[Any, Any], object], forward: Process, otherwise: Process) -> Process:
    """Return a function that forwards a record to one of two functions, depending on a predicate."""

    @inlined
    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> Any:
        # The headers are returned, because a child may change them.
        if predicate(key, value):
            return forward(key, value, timestamp_ms, headers)
        return otherwise(key, value, timestamp_ms, headers)

    return process


@inlined
def _ignore(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
    """Drop a record that matches no branch."""


@frozen
class TableToStream:
    """Forwards the new value of each table change ``(new, old, is_latest)``; deletions only if ``keeps_tombstones``."""

    is_one_to_one: ClassVar = True
    is_plumbing: ClassVar = True
    keeps_tombstones: bool = True

    def bind(self, context: NodeContext) -> Process:
        forward = context.output.forward
        keeps_tombstones = self.keeps_tombstones

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if keeps_tombstones or change[0] is not None:
                forward(key, change[0], timestamp_ms, headers)

        return process


#: Operators whose ``forward`` is only called by their process function.
STATELESS = (
    PassThrough,
    SideOutput,
    Filter,
    KeyFilter,
    MapValues,
    Map,
    SelectKey,
    FlatMap,
    FlatMapValues,
    Peek,
    Branch,
    TableToStream,
)
