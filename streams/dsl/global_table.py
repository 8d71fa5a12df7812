"""GlobalKTable: a table that every instance has whole, to be looked up by any key."""

from typing import Generic, TypeVar

from attrs import define

from streams.dsl.logical import LogicalGraph
from streams.dsl.operators import StoreValues, TableValues
from streams.dsl.slots import Slot

K = TypeVar("K")
V = TypeVar("V")


@define(eq=False, repr=False)
class GlobalKTable(Generic[K, V]):
    """All rows of a topic on every instance; streams join it with a ``key`` of their own."""

    _graph: LogicalGraph
    _key: Slot
    _value: Slot
    _store: str

    def __repr__(self) -> str:
        return f"<GlobalKTable {self._store}>"

    @property
    def store(self) -> str:
        """Name of the store that holds the rows."""
        return self._store

    def _values(self) -> TableValues:
        return StoreValues(self._store)
