"""Stateless operators that are composed into the program instead of being called.

Each is a small value; ``compile`` writes its lines into the generated function of the
sub-topology, so that it costs no framework frame per record.  User functions are given in
their final shape: ``with_key`` says whether they take (key, value) or (value).
"""

from collections.abc import Callable
from typing import Any

from attrs import frozen


@frozen
class PassThrough:
    """Forwards every record unchanged: merges, and the root of a split without condition."""


@frozen
class Filter:
    """Forwards records for which ``predicate(key, value)`` is true (false if ``negate``)."""

    predicate: Callable[[Any, Any], object]
    negate: bool = False


@frozen
class MapValues:
    """Replaces the value by ``mapper(value)`` or ``mapper(key, value)``."""

    mapper: Callable[..., Any]
    with_key: bool = False


@frozen
class Map:
    """Replaces key and value by the pair that ``mapper(key, value)`` gives."""

    mapper: Callable[[Any, Any], tuple[Any, Any]]


@frozen
class SelectKey:
    """Replaces the key by ``mapper(key, value)``."""

    mapper: Callable[[Any, Any], Any]


@frozen
class FlatMap:
    """Replaces a record by the pairs of ``mapper(key, value)``."""

    mapper: Callable[[Any, Any], Any]


@frozen
class FlatMapValues:
    """Replaces a record by one per value of ``mapper(value)`` or ``mapper(key, value)``."""

    mapper: Callable[..., Any]
    with_key: bool = False


@frozen
class Peek:
    """Calls ``action(key, value)`` and forwards the record unless it is terminal."""

    action: Callable[[Any, Any], object]
    is_terminal: bool = False


@frozen
class Branch:
    """Sends a record to the first child whose predicate holds.

    ``predicates`` run beside the node's children, in order; None stands for the default
    branch, which must be last.  Without one, unmatched records are dropped.
    """

    predicates: tuple[Callable[[Any, Any], object] | None, ...]


@frozen
class TableToStream:
    """Turns a table's change ``(new, old, is_latest)`` into its new value; a deletion is None, or goes no further."""

    keeps_tombstones: bool = True


Inline = PassThrough | Filter | MapValues | Map | SelectKey | FlatMap | FlatMapValues | Peek | Branch | TableToStream
