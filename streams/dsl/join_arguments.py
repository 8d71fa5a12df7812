"""The optional arguments of joins of a stream, which depend on what is on the other side."""

from typing import Any

from attrs import define

from streams.core.errors import TopologyError


@define
class JoinArguments:
    """The arguments of a join after the other side and the joiner."""

    verb: str
    given: dict[str, Any]

    def take(self, name: str, default: Any = None) -> Any:
        """Return one argument."""
        return self.given.pop(name, default)

    def finish(self) -> None:
        """Refuse the arguments that are left."""
        if self.given:
            raise TopologyError(f"{self.verb} does not take {min(self.given)!r} with this kind of other side")
