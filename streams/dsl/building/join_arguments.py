"""The optional arguments of joins, by kind of join: of streams, of a stream and a table, and of tables."""

from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar

from attrs import define
from typing_extensions import TypeForm

from streams.core.arguments import check_flag
from streams.core.errors import TopologyError
from streams.core.serdes.serdes import Serde
from streams.dsl.materialized import StoreOptions
from streams.topology import Partitioner

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
R = TypeVar("R")


class StreamJoinOptions(TypedDict, Generic[K, V, V2], total=False):
    """Options for the join of two streams; all are optional.

    ``store`` is the prefix of the store names; ``logging`` (changelog topics) is on by default.  ``key``, ``value``
    and ``other_value`` are types or serdes that override those of the streams.
    """

    store: str | None
    logging: bool
    key: TypeForm[K] | Serde[K]
    value: TypeForm[V] | Serde[V]
    other_value: TypeForm[V2] | Serde[V2]


class TableLookupOptions(TypedDict, Generic[K, V, V2], total=False):
    """Options for the join of a stream with a table; all are optional.

    ``grace`` is the stream time for which a record is buffered, so that it is joined with late rows of a versioned
    table (KIP-923).  ``key``, ``value`` and ``other_value`` are types or serdes that override those of the stream and
    the table.
    """

    grace: timedelta | None
    key: TypeForm[K] | Serde[K]
    value: TypeForm[V] | Serde[V]
    other_value: TypeForm[V2] | Serde[V2]


class TableJoinOptions(StoreOptions, Generic[K, R], total=False):
    """Options for the join of two tables; all are optional.

    The options are the name, types and store options of the result.
    """

    store: str | None
    key: TypeForm[K] | Serde[K]
    value: TypeForm[R] | Serde[R]


class ForeignKeyJoinOptions(TableJoinOptions[K, R], total=False):
    """Options for the join of two tables by foreign key; all are optional.

    ``partitioner`` and ``other_partitioner`` are the partitioners by which the topics of this table and of the other
    table were written.
    """

    partitioner: Partitioner | None
    other_partitioner: Partitioner | None


@define
class JoinArguments:
    """The arguments of a join after the first two, which are the other stream or table and the joiner."""

    verb: str
    arguments: dict[str, Any]

    def take(self, name: str, default: Any = None) -> Any:
        """Remove an argument and return its value, or ``default`` if it was not given."""
        return self.arguments.pop(name, default)

    def flag(self, name: str) -> bool:
        """Remove an argument and return its value, which is True by default.

        Raises:
            TopologyError: the value is neither True nor False.
        """
        return check_flag(self.take(name, True), f"{name}= of {self.verb}")

    def finish(self) -> None:
        """Raise an error if any arguments have not been taken."""
        if self.arguments:
            raise TopologyError(f"{self.verb} does not take {min(self.arguments)!r} with this kind of other side")
