"""Inference of serdes: which serde the keys and the values have at each position of the graph.

A ``SerdeVariable`` is the type variable of one position.  Operators that keep a type pass the
variable on, so that what a sink or a join declares downstream also reaches the stores and the
repartition topics upstream.  When the topology is written each variable is resolved, in this
order: declared (``key=``, ``value=``, a ``Topic``), annotated in a user's function, inferred from
a sink or a join, else pinned by the first object.  Writer and reader of a topic share the
variable, hence the pinned serde.  Pure; imports core only.
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
from streams.topology import UNSET

#: Kinds of windows: sizes in ms, None for sessions.
WindowSizes: TypeAlias = frozenset[int | None]


@define(eq=False)
class SerdeVariable:
    """The serde of the keys, or of the values, at one position of the graph.

    ``node`` names the position in messages.  The variable of windowed keys has that of their keys as
    ``inner``, and ``windowed`` makes its serde from the inner one.  ``window_sizes`` are the windows
    that keys are known to have without a serde that says so: sizes in ms, None for sessions.
    """

    node: str
    declared: Serde[Any] | None = None
    annotated: Serde[Any] | None = None
    inner: "SerdeVariable | None" = None
    windowed: Callable[[Serde[Any]], Serde[Any]] | None = None
    window_sizes: WindowSizes = frozenset()
    #: From a sink or a join downstream.
    inferred: Serde[Any] | None = None
    #: Two sinks or joins disagree.
    is_ambiguous: bool = False
    #: The variable that this one was unified with.
    unified_with: "SerdeVariable | None" = None
    resolved: Serde[Any] | None = None

    def root(self) -> "SerdeVariable":
        """Return the variable that represents all those unified with this one."""
        variable = self
        while variable.unified_with is not None:
            variable = variable.unified_with
        return variable

    @property
    def known(self) -> Serde[Any] | None:
        """The serde as far as it is declared or annotated."""
        root = self.root()
        if root.inner is not None and root.windowed is not None:
            inner = root.inner.known
            return None if inner is None else root.windowed(inner)
        return root.declared or root.annotated

    @property
    def windows(self) -> WindowSizes:
        """The windows that the keys are known to have; several downstream of a merge."""
        root = self.root()
        serde = root.declared or root.annotated
        return frozenset({serde.size_ms}) if isinstance(serde, WindowedSerde) else root.window_sizes

    def infer(self, serde: Serde[Any]) -> None:
        """Take the serde of a sink or join unless this variable is declared; two that differ count as none."""
        root = self.root()
        if root.inner is not None:
            if isinstance(serde, WindowedSerde):
                root.inner.infer(serde.inner)
            return
        if root.declared is not None or serde is NULL:
            return
        if root.inferred is None:
            root.inferred = serde
        elif root.inferred.name != serde.name:
            root.is_ambiguous = True

    def unify(self, other: "SerdeVariable") -> None:
        """State that two positions have one type, as the keys on both sides of a join have.

        Raises:
            TopologyError: the keys on both sides are of different windows.
        """
        one, two = self.root(), other.root()
        if one is two:
            return
        if one.windows and two.windows and one.windows != two.windows:
            raise TopologyError(
                f"{one.node} has keys of {_shown(one.windows)}, {two.node} of {_shown(two.windows)}: "
                "they are not the same keys"
            )
        if one.inner is not None and two.inner is not None:
            one.inner.unify(two.inner)
        elif two.inner is not None or two.declared is not None:
            _unify_roots(one, two)
        else:
            _unify_roots(two, one)

    def resolve(self) -> Serde[Any]:
        """Return the serde, which is final; first called when the topology is written."""
        root = self.root()
        if root.resolved is None:
            if root.inner is not None and root.windowed is not None:
                root.resolved = root.windowed(root.inner.resolve())
            else:
                inferred = None if root.is_ambiguous else root.inferred
                root.resolved = root.declared or root.annotated or inferred or PinnedSerde(root.node)
        return root.resolved


def _unify_roots(one: SerdeVariable, two: SerdeVariable) -> None:
    """Let ``two`` represent ``one``, or the reverse if only ``one`` has a serde of its own."""
    if one.declared is not None or one.inner is not None:
        if two.declared is None and two.inner is None:
            _unify_roots(two, one)
        return
    if one.annotated is not None and two.annotated is None and two.inner is None and two.declared is None:
        two.annotated = one.annotated
    if one.inferred is not None:
        two.infer(one.inferred)
    one.unified_with = two


def declared(form: Any, node: str) -> SerdeVariable:
    """Return a variable with the serde of a type expression or serde, without one if it was not given."""
    return SerdeVariable(node) if form is UNSET else SerdeVariable(node, serde_for(form))


def annotated(form: Any, node: str) -> SerdeVariable:
    """Return a variable with the serde of an annotation, if the type has one."""
    if form is UNKNOWN:
        return SerdeVariable(node)
    try:
        return SerdeVariable(node, annotated=serde_for(form))
    except TopologyError:
        return SerdeVariable(node)  # The type may never be written to a topic or store.


def declared_or_annotated(form: Any, annotation: Any, node: str) -> SerdeVariable:
    """Return a variable with the declared type, or that of the annotation if none was declared."""
    return annotated(annotation, node) if form is UNSET else declared(form, node)


def overridden(variable: SerdeVariable, form: Any, node: str, what: str = "the type declared here") -> SerdeVariable:
    """Return ``variable``, or a new one if the user declares a type here; ``what`` names the declaration.

    Raises:
        TopologyError: the declared windows are not those of the keys, which would give wrong window ends.
    """
    if form is UNSET:
        return variable
    serde = serde_for(form)
    if isinstance(serde, WindowedSerde) and variable.windows - {serde.size_ms}:
        raise TopologyError(
            f"{node} has keys of {_shown(variable.windows)}, but {what} is of {shown_windows(serde.size_ms)}: its "
            f"windows would get wrong ends; declare {_declaration(variable.windows)}, or change the key before"
        )
    variable.infer(serde)
    return SerdeVariable(node, serde)


def _shown(windows: WindowSizes) -> str:
    return " and ".join(sorted(map(shown_windows, windows)))


def _declaration(windows: WindowSizes) -> str:
    if len(windows) > 1:
        return "topics of their own"
    (size_ms,) = windows
    if size_ms is None:
        return "session_windowed(...)"
    if size_ms >= MAX_TIMESTAMP:
        return "time_windowed(..., timedelta.max)"
    return f"time_windowed(..., {timedelta(milliseconds=size_ms)!r})"


def joint(left: SerdeVariable, right: SerdeVariable, node: str) -> SerdeVariable:
    """Return the variable downstream of a merge: that of both sides if they agree, else a new one."""
    if left.root() is right.root():
        return left
    one, two = left.known, right.known
    windows = left.windows | right.windows
    if one is not None and two is not None:
        return left if one.name == two.name else SerdeVariable(node, window_sizes=windows)
    if one is None and two is None:
        return SerdeVariable(node, window_sizes=windows)
    # The type of one side is no declaration for the other, whose keys may be of other windows.
    if len(windows) > 1:
        return SerdeVariable(node, window_sizes=windows)
    return SerdeVariable(node, annotated=one or two)


def time_windowed_variable(key: SerdeVariable, size_ms: int) -> SerdeVariable:
    """Return the variable of keys in time windows over that of their keys."""
    return SerdeVariable(
        key.node,
        inner=key,
        windowed=lambda inner: time_windowed_ms(inner, size_ms),
        window_sizes=frozenset({size_ms}),
    )


def session_windowed_variable(key: SerdeVariable) -> SerdeVariable:
    """Return the variable of keys in session windows over that of their keys."""
    return SerdeVariable(key.node, inner=key, windowed=session_windowed, window_sizes=frozenset({None}))
