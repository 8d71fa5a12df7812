"""GlobalKTable: a table with all rows on every instance, so that any key can be looked up."""

from typing import Generic, TypeVar

from attrs import define

from streams.dsl.ref import GlobalTableRef

K = TypeVar("K")
V = TypeVar("V")


@define(eq=False, repr=False)
class GlobalKTable(Generic[K, V]):
    """A table with all rows of a topic on every instance; streams join it with a ``key`` function."""

    _ref: GlobalTableRef

    def __repr__(self) -> str:
        return repr(self._ref)

    @property
    def store(self) -> str:
        """Name of the store with the rows."""
        return self._ref.store
