"""The optional arguments of joins, which depend on the kinds of both sides."""

from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar

from attrs import define
from typing_extensions import TypeForm

from streams.core.errors import TopologyError
from streams.core.serdes import Serde
from streams.dsl.materialized import StoreOptions
from streams.topology import Partitioner

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
R = TypeVar("R")


class StreamJoinOptions(TypedDict, Generic[K, V, V2], total=False):
    """Options for the join of two streams, all optional.

    ``store`` is the prefix of the store names; ``logging`` (changelog topics) is on by default.  ``key``, ``value``
    and ``other_value`` are types that differ from those of the streams.
    """

    store: str | None
    logging: bool
    key: TypeForm[K] | Serde[K]
    value: TypeForm[V] | Serde[V]
    other_value: TypeForm[V2] | Serde[V2]


class TableLookupOptions(TypedDict, Generic[K, V, V2], total=False):
    """Options for the join of a stream with a table, all optional.

    ``grace`` is the stream time for which a record waits for late rows of a versioned table (KIP-923).  ``key``,
    ``value`` and ``other_value`` are types that differ from those of the stream and the table.
    """

    grace: timedelta | None
    key: TypeForm[K] | Serde[K]
    value: TypeForm[V] | Serde[V]
    other_value: TypeForm[V2] | Serde[V2]


class TableJoinOptions(StoreOptions, Generic[K, R], total=False):
    """Options for the join of two tables, all optional: the name, types and options of a store for the result."""

    store: str | None
    key: TypeForm[K] | Serde[K]
    value: TypeForm[R] | Serde[R]


class ForeignKeyJoinOptions(TableJoinOptions[K, R], total=False):
    """Options for the join of two tables by foreign key, all optional.

    ``partitioner`` and ``other_partitioner`` choose the partitions of the rows of each table.
    """

    partitioner: Partitioner | None
    other_partitioner: Partitioner | None


@define
class JoinArguments:
    """The arguments of a join after the other side and the joiner."""

    verb: str
    given: dict[str, Any]

    def take(self, name: str, default: Any = None) -> Any:
        """Remove an argument and return its value."""
        return self.given.pop(name, default)

    def finish(self) -> None:
        """Raise an error if any arguments are left."""
        if self.given:
            raise TopologyError(f"{self.verb} does not take {min(self.given)!r} with this kind of other side")
