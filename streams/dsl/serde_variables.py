"""Inference of the serdes for keys and values at each position of the logical graph.

A ``SerdeVariable`` is the type variable of one position, which is a node's keys or its values.  Operators that keep a
type pass the variable on, so that a type declared by a sink or a join downstream also reaches the stores and
repartition topics upstream.  When the topology is written, each variable is resolved to the first of these serdes: a
declared serde (``key=``, ``value=``, a ``Topic``), the serde of a user function's annotation, a serde inferred from a
sink or a join, or a pinned serde, whose type is that of the first object.  The writer and the reader of a topic share
the variable, and therefore the pinned serde.  The module is pure and imports only ``core`` and ``topology`` from
outside ``dsl``.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

from attrs import define

from streams.core.arguments import MAX_TIME_MS, NOT_GIVEN
from streams.core.errors import TopologyError
from streams.core.event_time.calendar import Calendar
from streams.core.serdes.serdes import (
    NULL,
    PRIMITIVES,
    PinnedSerde,
    Serde,
    WindowedSerde,
    count_windowed,
    serde_for,
    session_windowed,
    shown_windows,
    time_windowed_ms,
)
from streams.dsl.functions import UNKNOWN

#: Kinds of windows: window sizes in ms, with None for sessions, negative numbers of records for count windows, and
#: calendars.
WindowSizes: TypeAlias = frozenset[int | Calendar | None]


@define(eq=False)
class SerdeVariable:
    """The serde of the keys or of the values at one node of the logical graph.

    ``node`` names the position in messages.  In the variable of windowed keys, ``inner`` is the variable of
    the inner keys, and ``windowed`` creates the windowed serde from the inner serde.  ``window_sizes`` are the known
    window sizes of the keys in ms (None for sessions), used if there is no windowed serde.
    """

    node: str
    declared: Serde[Any] | None = None
    annotated: Serde[Any] | None = None
    inner: "SerdeVariable | None" = None
    windowed: Callable[[Serde[Any]], Serde[Any]] | None = None
    window_sizes: WindowSizes = frozenset()
    #: The serde of a sink or a join downstream.
    inferred: Serde[Any] | None = None
    #: Whether two sinks or joins have different serdes.
    is_ambiguous: bool = False
    #: The variable with which this variable was unified.
    unified_with: "SerdeVariable | None" = None
    resolved: Serde[Any] | None = None

    def root(self) -> "SerdeVariable":
        """Return the variable that represents all variables unified with this one."""
        variable = self
        while variable.unified_with is not None:
            variable = variable.unified_with
        return variable

    @property
    def serde(self) -> Serde[Any] | None:
        """The declared or annotated serde of this variable, or None."""
        root = self.root()
        if root.inner is not None and root.windowed is not None:
            inner = root.inner.serde
            return None if inner is None else root.windowed(inner)
        return root.declared or root.annotated

    @property
    def windows(self) -> WindowSizes:
        """The known window sizes of the keys; there may be several downstream of a merge."""
        root = self.root()
        serde = root.declared or root.annotated
        return frozenset({serde.size_ms}) if isinstance(serde, WindowedSerde) else root.window_sizes

    def infer(self, serde: Serde[Any]) -> None:
        """Use the serde of a sink or join unless this variable is declared; if two such serdes differ, none is used."""
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
        """Declare that two variables have the same type, such as the keys on both sides of a join.

        Raises:
            TopologyError: the keys on both sides have different windows.
        """
        one = self.root()
        two = other.root()
        if one is two:
            return
        if one.windows and two.windows and one.windows != two.windows and not _is_read_back(one, two):
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
        """Return the final serde; must not be called before the topology is written."""
        root = self.root()
        if root.resolved is None:
            if root.inner is not None and root.windowed is not None:
                root.resolved = root.windowed(root.inner.resolve())
            else:
                inferred = None if root.is_ambiguous else root.inferred
                root.resolved = root.declared or root.annotated or inferred or PinnedSerde(root.node)
        return root.resolved


def _is_read_back(one: SerdeVariable, two: SerdeVariable) -> bool:
    """Return whether one side has windows of a calendar, and the other side is a topic that may have the same ones."""
    topics = [side.windows == {None} and side.declared is not None for side in (one, two)]
    return any(topics) and any(isinstance(size, Calendar) for size in one.windows | two.windows)


def _unify_roots(one: SerdeVariable, two: SerdeVariable) -> None:
    """Let ``two`` represent both variables, or let ``one`` represent them if only ``one`` has its own serde."""
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
    """Return a variable with the serde of ``form``, a type expression or serde; if unset, it has no serde yet."""
    return SerdeVariable(node) if form is NOT_GIVEN else SerdeVariable(node, serde_for(form))


def annotated(form: Any, node: str) -> SerdeVariable:
    """Return a variable with the serde of an annotation, if the type has one."""
    if form is UNKNOWN:
        return SerdeVariable(node)
    try:
        return SerdeVariable(node, annotated=serde_for(form))
    except TopologyError:
        return SerdeVariable(node)  # The type may never be written to a topic or store.


def declared_or_annotated(form: Any, annotation: Any, node: str) -> SerdeVariable:
    """Return a variable with the declared type, or with the annotated type if none was declared."""
    return annotated(annotation, node) if form is NOT_GIVEN else declared(form, node)


def overridden(variable: SerdeVariable, form: Any, node: str, what: str = "the type declared here") -> SerdeVariable:
    """Return ``variable``, or a new variable if the user declares another type in ``form``; ``what`` is for messages.

    Raises:
        TopologyError: the declared windows differ from the windows of the keys, so that window ends would be wrong, or
            the keys are windowed and the declared type is plain.
    """
    if form is NOT_GIVEN:
        return variable
    serde = serde_for(form)
    if isinstance(serde, WindowedSerde) and {_suffix(size) for size in variable.windows} - {serde.size_ms}:
        raise TopologyError(
            f"{node} has keys of {_shown(variable.windows)}, but {what} is of {shown_windows(serde.size_ms)}: its "
            f"windows would get wrong ends; declare {_declaration(variable.windows)}, or change the key before"
        )
    if variable.windows and serde.name in PRIMITIVES:
        raise TopologyError(
            f"{node} has keys of {_shown(variable.windows)}, but {what} is {serde.name!r}, which has no window: "
            f"declare {_declaration(variable.windows)}, or change the key before, as in "
            ".select_key(lambda key, value: key.key)"
        )
    variable.infer(serde)
    return SerdeVariable(node, serde)


def _suffix(size: int | Calendar | None) -> int | None:
    """Return the window size of the serde: keys of calendar windows are written as those of sessions are."""
    return None if isinstance(size, Calendar) else size


def _shown(windows: WindowSizes) -> str:
    shown = [str(size) if isinstance(size, Calendar) else shown_windows(size) for size in windows]
    return " and ".join(sorted(shown))


def _declaration(windows: WindowSizes) -> str:
    if len(windows) > 1:
        return "topics of their own"
    (size_ms,) = map(_suffix, windows)
    if size_ms is None:
        return "session_windowed(...)"
    if size_ms < 0:
        return f"count_windowed(..., {-size_ms})"
    if size_ms >= MAX_TIME_MS:
        return "time_windowed(..., timedelta.max)"
    return f"time_windowed(..., {timedelta(milliseconds=size_ms)!r})"


def joint(left: SerdeVariable, right: SerdeVariable, node: str) -> SerdeVariable:
    """Return the variable downstream of a merge: the common variable if both sides agree, otherwise a new one."""
    if left.root() is right.root():
        return left
    one = left.serde
    two = right.serde
    windows = left.windows | right.windows
    if one is not None and two is not None:
        return left if one.name == two.name else SerdeVariable(node, window_sizes=windows)
    if one is None and two is None:
        return SerdeVariable(node, window_sizes=windows)
    # The type of one side is not a declaration for the other side, whose keys may have other windows.
    if len(windows) > 1:
        return SerdeVariable(node, window_sizes=windows)
    return SerdeVariable(node, annotated=one or two)


def time_windowed_variable(key: SerdeVariable, size_ms: int) -> SerdeVariable:
    """Return the variable for time-windowed keys, given the variable of the inner keys."""
    return SerdeVariable(
        key.node,
        inner=key,
        windowed=lambda inner: time_windowed_ms(inner, size_ms),
        window_sizes=frozenset({size_ms}),
    )


def count_windowed_variable(key: SerdeVariable, size: int) -> SerdeVariable:
    """Return the variable for keys of count windows of ``size`` records, given the variable of the inner keys."""
    return SerdeVariable(
        key.node,
        inner=key,
        windowed=lambda inner: count_windowed(inner, size),
        window_sizes=frozenset({-size}),
    )


def session_windowed_variable(key: SerdeVariable, calendar: Calendar | None = None) -> SerdeVariable:
    """Return the variable for keys of sessions, or of windows of a calendar, given the variable of the inner keys."""
    return SerdeVariable(key.node, inner=key, windowed=session_windowed, window_sizes=frozenset({calendar}))
