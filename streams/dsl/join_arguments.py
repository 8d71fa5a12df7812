"""The optional arguments of stream joins, which depend on the kind of the other side."""

from typing import Any

from attrs import define

from streams.core.errors import TopologyError


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
