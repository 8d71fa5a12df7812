"""Branches of a split stream.

``split()`` stands for the node that decides; each ``branch`` is a stream of its own.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from streams.core.errors import TopologyError
from streams.dsl.functions import settled
from streams.dsl.logical import LogicalNode
from streams.dsl.names import check_name
from streams.dsl.nodes import Process
from streams.topology.inline import Branch, PassThrough

if TYPE_CHECKING:
    from streams.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")


class Branched(Generic[K, V]):
    """A split stream: each record goes to the first branch whose predicate holds.

    Without a default branch the other records are dropped.
    """

    __slots__ = ("_has_default", "_node", "_predicates", "_stream")

    def __init__(self, stream: "KStream[K, V]", name: str | None) -> None:
        self._stream = stream
        self._predicates: list[Callable[[Any, Any], object] | None] = []
        self._has_default = False
        full_name = stream._graph.names.given(name, "KSTREAM-BRANCH-")
        predicates = self._predicates
        self._node = LogicalNode(full_name, Process(lambda: Branch(tuple(predicates))))
        stream._graph.add(stream._node, self._node)

    def branch(self, predicate: Callable[[K, V], object], name: str | None = None) -> "KStream[K, V]":
        """Return the records for which ``predicate(key, value)`` holds and no earlier one does.

        ``name`` is appended to that of the split; by default the branches are numbered from 1.

        >>> split = orders.split("by-size-")
        >>> large = split.branch(lambda customer, amount: amount > 9, "large")
        >>> play(large, ("ann", 1), ("bob", 10))
        [('bob', 10)]
        """
        settled(predicate, "branch", "(key, value)")
        if self._has_default:
            raise TopologyError(f"branch of {self._node.name!r}: the default branch must come last")
        self._predicates.append(predicate)
        return self._child(str(len(self._predicates)) if name is None else name)

    def default_branch(self, name: str | None = None) -> "KStream[K, V]":
        """Return the records that no branch took.

        >>> split = orders.split()
        >>> large = split.branch(lambda customer, amount: amount > 9)
        >>> play(split.default_branch(), ("ann", 1), ("bob", 10))
        [('ann', 1)]
        """
        if self._has_default:
            raise TopologyError(f"split {self._node.name!r} has a default branch already")
        self._has_default = True
        self._predicates.append(None)
        return self._child("0" if name is None else name)

    def _child(self, suffix: str) -> "KStream[K, V]":
        from streams.dsl.stateless import following

        stream = self._stream
        name = check_name(self._node.name + suffix)
        stream._graph.names.generated(name)  # Only its number is used up.
        node = stream._graph.add(self._node, LogicalNode(name, Process(PassThrough)))
        return following(stream, node)
