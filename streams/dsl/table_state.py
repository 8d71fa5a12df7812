"""Properties of a table that change while the graph is built: its store, lookups and old values.

Whether a table has a store, and whether it forwards old values, depends on operators that are declared later: a join
materializes its source table, and a grouping needs the old values of rows.  Each kind of table behaves like its
counterpart in Kafka Streams (``enableSendingOldValues``, ``KTableValueGetterSupplier``).  The module imports only
``state`` from outside ``dsl``.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import define

from streams.dsl.materialized import Materialized
from streams.dsl.processing.emission import Closing
from streams.dsl.processing.joins.getters import StoreValues, TableValues
from streams.state import StoreSpec


class TableState(Protocol):
    """The mutable state of a table while the topology is being declared."""

    send_old: bool

    @property
    def store(self) -> str | None:
        """The name of the table's store, or None if the table has no store so far."""
        ...

    def specs(self) -> Sequence[StoreSpec]:
        """Return the spec of the table's store as a sequence, which is empty without a store."""
        ...

    def enable_old(self, force: bool) -> bool:
        """Forward old values if possible, and return whether they are forwarded; ``force`` materializes the table."""
        ...

    def values(self) -> TableValues:
        """Return the lookup for the table's rows; the call materializes a source table."""
        ...

    def pass_time_to(self, suppression: str, through: tuple[str, ...] = ()) -> None:
        """Have the operators upstream tell a suppression, by its store, the time of changes that they do not forward.

        ``through`` are the stores between this table and the suppression.
        """
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
        """The name of the store, or None if the table is not materialized."""
        return self.materialized.store if self.is_materialized else None

    def specs(self) -> Sequence[StoreSpec]:
        """Return the specs of the table's stores, none if the table is not materialized."""
        return self.materialized.specs() if self.is_materialized else ()

    def enable_old(self, force: bool) -> bool:
        """Forward old values from the store, which is created if ``force`` is true."""
        if not force and not self.is_materialized:
            return False
        self.is_materialized = self.send_old = True
        return True

    def values(self) -> TableValues:
        """Materialize the table and return its store."""
        self.is_materialized = True
        return StoreValues(self.materialized.store)

    def pass_time_to(self, suppression: str, through: tuple[str, ...] = ()) -> None:
        """Do nothing, because sources and aggregations forward all changes of their rows."""


@define(eq=False)
class DerivedState:
    """A table computed row by row from its parent, or from both sides of a join; it has a store if the user names one.

    ``derive`` returns the lookup of this table, given the lookups of its parents.  With ``is_held``, the table forwards
    its changes later.
    """

    parents: Sequence[TableState]
    materialized: Materialized | None
    derive: Callable[..., TableValues]
    send_old: bool = False
    is_held: bool = False
    #: The suppressions downstream that need the time of changes which this table does not forward.
    closings: tuple[Closing, ...] = ()

    @property
    def store(self) -> str | None:
        """The name of the store, or None if the user did not name one."""
        return None if self.materialized is None else self.materialized.store

    def specs(self) -> Sequence[StoreSpec]:
        return () if self.materialized is None else (self.materialized.spec(),)

    def enable_old(self, force: bool) -> bool:
        """Forward old values, from the store or computed from the parents' old values."""
        if len(self.parents) > 1:
            for parent in self.parents:
                parent.enable_old(True)
            self.send_old = True
        elif self.materialized is not None or self.parents[0].enable_old(force):
            self.send_old = True
        return self.send_old

    def values(self) -> TableValues:
        """Return the lookup for the table's rows: the store, or a lookup derived from the lookups of the parents."""
        if self.materialized is not None:
            return StoreValues(self.materialized.store)
        return self.derive(*(parent.values() for parent in self.parents))

    def pass_time_to(self, suppression: str, through: tuple[str, ...] = ()) -> None:
        """Add the suppression to those of this table and its parents, unless this table holds changes back."""
        if self.is_held:
            return
        if self.store is not None:
            through = (self.store, *through)
        self.closings += (Closing(suppression, through),)
        for parent in self.parents:
            parent.pass_time_to(suppression, through)
