"""What the joins of streams share: their optional arguments, and the repartition before them.

Between the joins and the logical graph.
"""

from typing import TYPE_CHECKING, Any

from attrs import define

from streams.core.errors import TopologyError
from streams.dsl.repartition import repartition_node
from streams.dsl.slots import Slot
from streams.dsl.stateless import following

if TYPE_CHECKING:
    from streams.dsl.stream import KStream


@define
class JoinArguments:
    """What a user gave besides the other side and the joiner."""

    verb: str
    given: dict[str, Any]

    def take(self, name: str, default: Any = None) -> Any:
        """Return one argument."""
        return self.given.pop(name, default)

    def finish(self) -> None:
        """Refuse arguments that nothing took."""
        if self.given:
            raise TopologyError(f"{self.verb} does not take {min(self.given)!r} with this kind of other side")


def repartitioned(stream: "KStream[Any, Any]", base: str, key: Slot, value: Slot) -> "KStream[Any, Any]":
    """Return the stream behind a repartition topic; joins without a name share one."""
    node = repartition_node(stream._graph.names, base, key, value)
    if stream._repartition is None or stream._name != base:
        stream._repartition = stream._graph.add(stream._node, node)
    shared = stream._repartition
    return following(stream, shared, key, value, needs_repartition=False, sources=frozenset((shared.name,)))
