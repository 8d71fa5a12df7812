"""Properties of a table that change while the graph is built: its store, lookups and old values.

Whether a table has a store, and whether it forwards old values, depends on operators that are
declared later: a join materializes its source table, and a grouping needs the old values of rows.
Each kind of table behaves like its counterpart in Kafka Streams (``enableSendingOldValues``,
``KTableValueGetterSupplier``).  Imports operators and materialized.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import define

from streams.dsl.materialized import Materialized
from streams.dsl.operators.getters import StoreValues, TableValues
from streams.state import StoreSpec


class TableState(Protocol):
    """The mutable state of a table during declaration."""

    send_old: bool

    @property
    def store(self) -> str | None:
        """Name of the table's store, or None if the table has no store so far."""
        ...

    def specs(self) -> Sequence[StoreSpec]:
        """Return the spec of the store, if there is one."""
        ...

    def enable_old(self, force: bool) -> bool:
        """Forward old values if possible, and return whether it is; ``force`` materializes the table for this."""
        ...

    def values(self) -> TableValues:
        """Return the lookup for rows; this materializes a source table."""
        ...


@define(eq=False)
class SourceState:
    """A table with its own store: a source, or the result of an aggregation.

    A source is materialized only if an operator downstream needs it.
    """

    materialized: Materialized
    is_materialized: bool = True
    send_old: bool = False

    @property
    def store(self) -> str | None:
        """Name of the store, if the table is materialized."""
        return self.materialized.store if self.is_materialized else None

    def specs(self) -> Sequence[StoreSpec]:
        """Return the spec of the store, if the table is materialized."""
        return (self.materialized.spec(),) if self.is_materialized else ()

    def enable_old(self, force: bool) -> bool:
        """Forward old values from the store, which ``force`` creates."""
        if not force and not self.is_materialized:
            return False
        self.is_materialized = self.send_old = True
        return True

    def values(self) -> TableValues:
        """Materialize the table and return its store."""
        self.is_materialized = True
        return StoreValues(self.materialized.store)


@define(eq=False)
class DerivedState:
    """A table computed row by row from its parent, or with buffered changes; it has a store only if the user names one.

    ``derive`` returns the lookup of this table, given that of the parent.
    """

    parent: TableState
    materialized: Materialized | None
    derive: Callable[[TableValues], TableValues]
    send_old: bool = False

    @property
    def store(self) -> str | None:
        """Name of the store, if the user gave one."""
        return None if self.materialized is None else self.materialized.store

    def specs(self) -> Sequence[StoreSpec]:
        """Return the spec of the store, if there is one."""
        return () if self.materialized is None else (self.materialized.spec(),)

    def enable_old(self, force: bool) -> bool:
        """Forward old values from the store, or computed from the old values of the parent."""
        if self.materialized is not None or self.parent.enable_old(force):
            self.send_old = True
        return self.send_old

    def values(self) -> TableValues:
        """Return the store, or the lookup of the parent with the function of this table applied."""
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
        """Name of the store, if the user gave one."""
        return None if self.materialized is None else self.materialized.store

    def specs(self) -> Sequence[StoreSpec]:
        """Return the spec of the store, if there is one."""
        return () if self.materialized is None else (self.materialized.spec(),)

    def enable_old(self, force: bool) -> bool:
        """Forward old values, which both sides must forward as well."""
        self.left.enable_old(True)
        self.right.enable_old(True)
        self.send_old = True
        return True

    def values(self) -> TableValues:
        """Return the store, or the join of the lookups of both sides."""
        if self.materialized is not None:
            return StoreValues(self.materialized.store)
        return self.join(self.left.values(), self.right.values())
