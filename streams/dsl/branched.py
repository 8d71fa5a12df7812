"""``Branched``: a split stream, whose branches are streams."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from streams.core.errors import TopologyError
from streams.dsl.functions import check_function
from streams.dsl.names import check_name
from streams.dsl.nodes import LogicalOperator
from streams.dsl.ref import StreamRef
from streams.topology import Branch, PassThrough

if TYPE_CHECKING:
    from streams.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")


class Branched(Generic[K, V]):
    """A split stream, which sends each record to the first branch whose predicate is true.

    Without a default branch, records that match no predicate are dropped.
    """

    __slots__ = ("_has_default", "_predicates", "_split", "_stream_class")

    def __init__(self, stream: StreamRef, name: str | None, stream_class: "type[KStream[Any, Any]]") -> None:
        self._stream_class = stream_class
        self._has_default = False
        predicates: list[Callable[[Any, Any], object] | None] = []
        self._predicates = predicates
        full_name = stream.graph.names.node(name, "KSTREAM-BRANCH-")
        self._split = stream.at(stream.add(full_name, LogicalOperator(lambda: Branch(tuple(predicates)))))

    def branch(self, predicate: Callable[[K, V], object], name: str | None = None) -> "KStream[K, V]":
        """Return a stream of the records for which ``predicate(key, value)`` is true and earlier predicates are false.

        ``name`` is appended to the name of the split; by default the branches are numbered from 1.

        >>> split = orders.split("by-size-")
        >>> large = split.branch(lambda customer, amount: amount > 9, name="large")
        >>> play(large, ("ann", 1), ("bob", 10))
        [('bob', 10)]
        """
        check_function(predicate, "branch", "(key, value)")
        if self._has_default:
            raise TopologyError(f"branch of {self._split.name!r}: the default branch must come last")
        self._predicates.append(predicate)
        return self._child(str(len(self._predicates)) if name is None else name)

    def default_branch(self, name: str | None = None) -> "KStream[K, V]":
        """Return a stream of the records that match no branch.

        >>> split = orders.split()
        >>> large = split.branch(lambda customer, amount: amount > 9)
        >>> play(split.default_branch(), ("ann", 1), ("bob", 10))
        [('ann', 1)]
        """
        if self._has_default:
            raise TopologyError(f"split {self._split.name!r} has a default branch already")
        self._has_default = True
        self._predicates.append(None)
        return self._child("0" if name is None else name)

    def _child(self, suffix: str) -> "KStream[K, V]":
        name = check_name(self._split.name + suffix)
        self._split.graph.names.generated(name)  # As in Kafka Streams, a number is taken from the counter but not used.
        return self._stream_class(self._split.at(self._split.add(name, LogicalOperator(PassThrough))))
