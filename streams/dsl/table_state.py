"""What the DSL settles about a table while the graph grows: its store, its lookups, its old values.

Whether a table has a store, and whether it sends old values, depends on operators that are
declared later: a join makes its source table keep its rows, a re-grouping makes it send what
a row was before.  Each kind of table answers as its counterpart in Kafka Streams does
(``enableSendingOldValues``, ``KTableValueGetterSupplier``).  Imports operators and materialized.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import define

from streams.dsl.materialized import Materialized
from streams.dsl.operators.getters import StoreValues, TableValues
from streams.state.specs import StoreSpec


class TableState(Protocol):
    """The changing side of a table."""

    send_old: bool

    @property
    def store(self) -> str | None:
        """Name of the table's store, if it has one so far."""
        ...

    def specs(self) -> Sequence[StoreSpec]:
        """Return the spec of the store, if there is one."""
        ...

    def enable_old(self, force: bool) -> bool:
        """Send old values from now on; with ``force`` at the price of a store.  Return whether it does."""
        ...

    def values(self) -> TableValues:
        """Return where rows can be looked up; a source table keeps its rows from now on."""
        ...


@define(eq=False)
class SourceState:
    """A table made of a topic or a stream, which has a store only if somebody needs it."""

    materialized: Materialized
    is_materialized: bool
    send_old: bool = False

    @property
    def store(self) -> str | None:
        """The store's name once it is needed."""
        return self.materialized.store if self.is_materialized else None

    def specs(self) -> Sequence[StoreSpec]:
        """Return the store's spec, if there is a store."""
        return (self.materialized.spec(),) if self.is_materialized else ()

    def enable_old(self, force: bool) -> bool:
        """Send old values if there is a store, or make one."""
        if not force and not self.is_materialized:
            return False
        self.is_materialized = self.send_old = True
        return True

    def values(self) -> TableValues:
        """Keep the rows and return their store."""
        self.is_materialized = True
        return StoreValues(self.materialized.store)


@define(eq=False)
class AggregateState:
    """A table that always has a store: the result of an aggregation."""

    materialized: Materialized
    send_old: bool = False

    @property
    def store(self) -> str | None:
        """The store's name."""
        return self.materialized.store

    def specs(self) -> Sequence[StoreSpec]:
        """Return the spec of the store, if there is one."""
        return (self.materialized.spec(),)

    def enable_old(self, force: bool) -> bool:
        """Send old values: the store has them."""
        self.send_old = True
        return True

    def values(self) -> TableValues:
        """Return the store."""
        return StoreValues(self.materialized.store)


@define(eq=False)
class DerivedState:
    """A table computed row by row from another; it has a store only if the user wants one.

    ``derive`` makes the lookup from that of the parent.
    """

    parent: TableState
    materialized: Materialized | None
    derive: Callable[[TableValues], TableValues]
    send_old: bool = False

    @property
    def store(self) -> str | None:
        """The store's name, if the user wanted one."""
        return None if self.materialized is None else self.materialized.store

    def specs(self) -> Sequence[StoreSpec]:
        """Return the spec of the store, if there is one."""
        return () if self.materialized is None else (self.materialized.spec(),)

    def enable_old(self, force: bool) -> bool:
        """Send old values from the own store, or computed from those of the parent."""
        if self.materialized is not None or self.parent.enable_old(force):
            self.send_old = True
        return self.send_old

    def values(self) -> TableValues:
        """Return the own store, or the parent's lookup with this table's function over it."""
        if self.materialized is not None:
            return StoreValues(self.materialized.store)
        return self.derive(self.parent.values())


@define(eq=False)
class JoinedState:
    """The result of a table-table join."""

    left: TableState
    right: TableState
    materialized: Materialized | None
    join: Callable[[TableValues, TableValues], TableValues]
    send_old: bool = False

    @property
    def store(self) -> str | None:
        """The store's name, if the user wanted one."""
        return None if self.materialized is None else self.materialized.store

    def specs(self) -> Sequence[StoreSpec]:
        """Return the spec of the store, if there is one."""
        return () if self.materialized is None else (self.materialized.spec(),)

    def enable_old(self, force: bool) -> bool:
        """Send old values, which both sides must send too."""
        self.left.enable_old(True)
        self.right.enable_old(True)
        self.send_old = True
        return True

    def values(self) -> TableValues:
        """Return the own store, or the join of both sides' lookups."""
        if self.materialized is not None:
            return StoreValues(self.materialized.store)
        return self.join(self.left.values(), self.right.values())


@define(eq=False)
class SuppressedState:
    """A table whose changes wait in a buffer."""

    parent: TableState
    lookup: Callable[[TableValues], TableValues]
    send_old: bool = False

    @property
    def store(self) -> str | None:
        """None: the buffer is no store that could be queried."""
        return None

    def specs(self) -> Sequence[StoreSpec]:
        """Return nothing: the buffer belongs to the operator."""
        return ()

    def enable_old(self, force: bool) -> bool:
        """Send old values, which the parent always sends to the buffer."""
        self.send_old = self.parent.enable_old(force)
        return self.send_old

    def values(self) -> TableValues:
        """Return the buffered rows over those of the parent."""
        return self.lookup(self.parent.values())
