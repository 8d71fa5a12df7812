"""Which serde the keys and the values have at each position of the graph.

A ``Slot`` stands for one type of one position.  Operators that keep a type pass the slot on,
so that what a sink or a join partner tells later also reaches the stores and repartition topics
before it.  When the topology is written each slot is resolved, in this order: declared
(``key=``, ``value=``, a ``Topic``), told by an annotation, told by a sink or join partner, else
pinned by the first object.  Writer and reader of a topic share the slot, hence the pinned serde.
Pure; imports core only.
"""

from collections.abc import Callable
from typing import Any

from attrs import define

from streams.core.errors import TopologyError
from streams.core.serdes import (
    NULL,
    PinnedSerde,
    Serde,
    WindowedSerde,
    serde_for,
    session_windowed,
    time_windowed_ms,
)
from streams.dsl.functions import UNKNOWN
from streams.topology.processors import UNSET


@define(eq=False)
class Slot:
    """The serde of the keys, or of the values, at one position.

    ``node`` names the position in messages.  A windowed key has the slot of its key as ``inner``
    and ``windowed`` to make the one serde from the other.
    """

    node: str
    declared: Serde[Any] | None = None
    hinted: Serde[Any] | None = None
    inner: "Slot | None" = None
    windowed: Callable[[Serde[Any]], Serde[Any]] | None = None
    _inferred: Serde[Any] | None = None
    _is_ambiguous: bool = False
    _same_as: "Slot | None" = None
    _resolved: Serde[Any] | None = None

    def root(self) -> "Slot":
        """Return the slot that speaks for all that were found to have the same type."""
        slot = self
        while slot._same_as is not None:
            slot = slot._same_as
        return slot

    @property
    def known(self) -> Serde[Any] | None:
        """What is declared or told by an annotation so far."""
        root = self.root()
        if root.inner is not None and root.windowed is not None:
            inner = root.inner.known
            return None if inner is None else root.windowed(inner)
        return root.declared or root.hinted

    def infer(self, serde: Serde[Any]) -> None:
        """Take what a neighbour tells, if nothing better is known; contradictions tell nothing."""
        root = self.root()
        if root.inner is not None:
            if isinstance(serde, WindowedSerde):
                root.inner.infer(serde.inner)
            return
        if root.declared is not None or serde is NULL:
            return
        if root._inferred is None:
            root._inferred = serde
        elif root._inferred.name != serde.name:
            root._is_ambiguous = True

    def same_as(self, other: "Slot") -> None:
        """State that two positions have one type, as both sides of a join have for keys."""
        one, two = self.root(), other.root()
        if one is two:
            return
        if one.inner is not None and two.inner is not None:
            one.inner.same_as(two.inner)
        elif two.inner is not None or two.declared is not None:
            one._join(two)
        else:
            two._join(one)

    def _join(self, other: "Slot") -> None:
        """Follow ``other`` unless this slot has a serde of its own."""
        if self.declared is not None or self.inner is not None:
            if other.declared is None and other.inner is None:
                other._join(self)
            return
        if self.hinted is not None and other.hinted is None and other.inner is None and other.declared is None:
            other.hinted = self.hinted
        if self._inferred is not None:
            other.infer(self._inferred)
        self._same_as = other

    def resolve(self) -> Serde[Any]:
        """Return the serde; asked first when the topology is written."""
        root = self.root()
        if root._resolved is None:
            root._resolved = root._settle()
        return root._resolved

    def _settle(self) -> Serde[Any]:
        if self.inner is not None and self.windowed is not None:
            return self.windowed(self.inner.resolve())
        told = self.declared or self.hinted or (None if self._is_ambiguous else self._inferred)
        return told or PinnedSerde(self.node)


def declared(form: Any, node: str) -> Slot:
    """Return a slot with the serde of a type expression or serde; open if it was not given."""
    return Slot(node) if form is UNSET else Slot(node, serde_for(form))


def hinted(form: Any, node: str) -> Slot:
    """Return a slot with the serde of an annotation, as far as there is one."""
    if form is UNKNOWN:
        return Slot(node)
    try:
        return Slot(node, hinted=serde_for(form))
    except TopologyError:
        return Slot(node)  # Nobody asked for a serde of this type; it may never be needed.


def overridden(slot: Slot, form: Any, node: str) -> Slot:
    """Return ``slot``, or a new one where the user declared a type from here on."""
    if form is UNSET:
        return slot
    serde = serde_for(form)
    slot.infer(serde)
    if slot.root().inner is not None and not isinstance(serde, WindowedSerde):
        return Slot(node, serde)
    return Slot(node, serde)


def joint(left: Slot, right: Slot, node: str) -> Slot:
    """Return the slot behind a merge: that of both sides where they agree, else a new one."""
    if left.root() is right.root():
        return left
    one, two = left.known, right.known
    if one is not None and two is not None:
        return left if one.name == two.name else Slot(node)
    if one is None and two is None:
        return Slot(node)
    return Slot(node, hinted=one or two)


def time_windowed_slot(key: Slot, size_ms: int) -> Slot:
    """Return the slot of keys of time windows over a slot of keys."""
    return Slot(key.node, inner=key, windowed=lambda inner: time_windowed_ms(inner, size_ms))


def session_windowed_slot(key: Slot) -> Slot:
    """Return the slot of keys of session windows over a slot of keys."""
    return Slot(key.node, inner=key, windowed=session_windowed)
