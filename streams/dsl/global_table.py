"""``GlobalKTable``: a table with all rows on every instance, so that any key can be looked up."""

from typing import Generic, TypeVar

from attrs import define

from streams.dsl.ref import GlobalTableRef

K = TypeVar("K")
V = TypeVar("V")


@define(eq=False, repr=False)
class GlobalKTable(Generic[K, V]):
    """A table that has all rows of a topic on every instance.

    A stream joins it by a ``key`` function, which returns the table key for a record.
    """

    _ref: GlobalTableRef

    def __repr__(self) -> str:
        return repr(self._ref)

    @property
    def store(self) -> str:
        """The name of the global store that contains the rows."""
        return self._ref.store
