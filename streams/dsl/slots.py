"""Which serde the keys and the values have at each position of the graph.

A ``Slot`` stands for one type of one position.  Operators that keep a type pass the slot on,
so that what a sink or a join partner tells later also reaches the stores and repartition topics
before it.  When the topology is written each slot is resolved, in this order: declared
(``key=``, ``value=``, a ``Topic``), told by an annotation, told by a sink or join partner, else
pinned by the first object.  Writer and reader of a topic share the slot, hence the pinned serde.
Pure; imports core only.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

from attrs import define

from streams.core.errors import TopologyError
from streams.core.serde_windows import MAX_TIMESTAMP
from streams.core.serdes import (
    NULL,
    PinnedSerde,
    Serde,
    WindowedSerde,
    serde_for,
    session_windowed,
    shown_windows,
    time_windowed_ms,
)
from streams.dsl.functions import UNKNOWN
from streams.topology.processors import UNSET

#: Kinds of windows: sizes in ms, None for sessions.
Windows: TypeAlias = frozenset[int | None]


@define(eq=False)
class Slot:
    """The serde of the keys, or of the values, at one position.

    ``node`` names the position in messages.  A windowed key has the slot of its key as ``inner``
    and ``windowed`` to make the one serde from the other.  ``made_windows`` are the windows of which
    keys are known to be, where no serde says it: sizes in ms, None for sessions.
    """

    node: str
    declared: Serde[Any] | None = None
    hinted: Serde[Any] | None = None
    inner: "Slot | None" = None
    windowed: Callable[[Serde[Any]], Serde[Any]] | None = None
    made_windows: Windows = frozenset()
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

    @property
    def windows(self) -> Windows:
        """The windows that the keys here are known to be of; several behind a merge."""
        root = self.root()
        serde = root.declared or root.hinted
        return frozenset({serde.size_ms}) if isinstance(serde, WindowedSerde) else root.made_windows

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
        if one.windows and two.windows and one.windows != two.windows:
            raise TopologyError(
                f"{one.node} has keys of {_shown(one.windows)}, {two.node} of {_shown(two.windows)}: "
                "they are not the same keys"
            )
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


def overridden(slot: Slot, form: Any, node: str, what: str = "the type declared here") -> Slot:
    """Return ``slot``, or a new one where the user declared a type from here on; ``what`` says where.

    Raises:
        TopologyError: the declared windows are others than those of the keys, so that their ends would be wrong.
    """
    if form is UNSET:
        return slot
    serde = serde_for(form)
    if isinstance(serde, WindowedSerde) and slot.windows - {serde.size_ms}:
        raise TopologyError(
            f"{node} has keys of {_shown(slot.windows)}, but {what} is of {shown_windows(serde.size_ms)}: its windows "
            f"would get wrong ends; declare {_declaration(slot.windows)}, or change the key before"
        )
    slot.infer(serde)
    return Slot(node, serde)


def _shown(windows: Windows) -> str:
    return " and ".join(sorted(map(shown_windows, windows)))


def _declaration(windows: Windows) -> str:
    if len(windows) > 1:
        return "topics of their own"
    (size_ms,) = windows
    if size_ms is None:
        return "session_windowed(...)"
    if size_ms >= MAX_TIMESTAMP:
        return "time_windowed(..., timedelta.max)"
    return f"time_windowed(..., {timedelta(milliseconds=size_ms)!r})"


def joint(left: Slot, right: Slot, node: str) -> Slot:
    """Return the slot behind a merge: that of both sides where they agree, else a new one."""
    if left.root() is right.root():
        return left
    one, two = left.known, right.known
    windows = left.windows | right.windows
    if one is not None and two is not None:
        return left if one.name == two.name else Slot(node, made_windows=windows)
    if one is None and two is None:
        return Slot(node, made_windows=windows)
    # What one side tells is not declared: the other's keys may still be of other windows.
    return Slot(node, made_windows=windows) if len(windows) > 1 else Slot(node, hinted=one or two)


def time_windowed_slot(key: Slot, size_ms: int) -> Slot:
    """Return the slot of keys of time windows over a slot of keys."""
    return Slot(
        key.node,
        inner=key,
        windowed=lambda inner: time_windowed_ms(inner, size_ms),
        made_windows=frozenset({size_ms}),
    )


def session_windowed_slot(key: Slot) -> Slot:
    """Return the slot of keys of session windows over a slot of keys."""
    return Slot(key.node, inner=key, windowed=session_windowed, made_windows=frozenset({None}))
