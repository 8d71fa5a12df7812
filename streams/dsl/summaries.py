"""Summaries: declared aggregates, from which the functions of an aggregation are written.

A summary such as ``lambda trade: Bar(high=agg.max(trade.price), n=agg.count())`` is run once, with an expression in
place of the value.  Each call of an aggregate there has a state, equal calls the same one.  Three functions are
written from it: one adds a value to the states, one merges those of two sessions, and one shows the result.  Where the
states are the result, the third is not needed, and the store has the result itself.  The module imports only ``core``
and ``topology`` from outside ``dsl``.
"""

import ast
import operator
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import FunctionType
from typing import Any, Final, Generic, TypeVar, cast

from attrs import define, evolve, field, frozen

from streams.core.concurrency.threads import INTERRUPTIONS
from streams.core.errors import TopologyError
from streams.core.serdes.serdes import serde_for
from streams.core.user_code import located
from streams.dsl.expressions import (
    Expression,
    Formula,
    Names,
    SummaryError,
    constant,
    formula_of,
    named,
    optional,
    without_none,
)
from streams.dsl.functions import check_function
from streams.topology.columns.bytecode import CodeWatch
from streams.topology.columns.symbols import TraceError
from streams.topology.columns.trace import RowShape

X = TypeVar("X")
R = TypeVar("R")

_summary: ContextVar["Summary"] = ContextVar("_summary")


def same(value: Any) -> Any:
    """Return the value."""
    return value


def left(state: Any, _: Any) -> Any:
    """Return the state."""
    return state


def right(_: Any, value: Any) -> Any:
    """Return the value."""
    return value


def one(_: Any) -> int:
    """Return 1."""
    return 1


def one_more(number: int, _: Any) -> int:
    """Return the next number."""
    return number + 1


#: What is written in place of calls.
_TEXTS: Final = (
    (same, "{0}"),
    (left, "{0}"),
    (right, "{1}"),
    (one, "1"),
    (one_more, "({0} + 1)"),
    (operator.add, "({0} + {1})"),
    (operator.pos, "(+{0})"),
)
_MODULES: Final = (__name__, "streams.dsl.expressions", "streams.dsl.agg")
_ADVICE: Final = "compute it with map_values before, or from the result"


@frozen(eq=False)
class Aggregate(Generic[X, R]):
    """An aggregate for ``summarize``: three functions of states and values, and one that shows the result.

    ``start(value)`` returns the state after the first value, ``add(state, value)`` that after a further one, and
    ``merge(left, right)`` the state of both; none may change a state in place.  ``result(state)`` returns what is
    shown; by default the state.

    ``state`` is the type of the state, as the type of a topic; by default that of the values.  ``empty`` is the state
    without a value, which ``where=`` or None may leave; None has no result.  ``value`` is the type of the result; by
    default that of the state, or Any.

    >>> longest = agg.Aggregate(start=lambda x: x, add=lambda one, x: max(one, x, key=len), merge=max)
    """

    start: Callable[[X], Any]
    add: Callable[[Any, X], Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], R] | None = None
    state: Any = None
    empty: Any = None
    value: Any = None

    def __call__(self, value: X, *, where: bool = True) -> R:
        """Return the result over the values, of records for which ``where`` is true, that are not None.

        Raises:
            TopologyError: it is not called within a summary.
        """
        return cast(R, current().call(self, value, where))


def current() -> "Summary":
    """Return the summary that is being read.

    Raises:
        TopologyError: there is none.
    """
    summary = _summary.get(None)
    if summary is None:
        raise TopologyError(
            "an aggregate of streams.agg is called outside of a summary; call it in summarize(lambda ...)"
        )
    return summary


@frozen(eq=False)
class AggregateState:
    """The state of one aggregate: what it aggregates, of which records, and the type of the state."""

    aggregate: Aggregate[Any, Any]
    argument: Formula
    where: Formula
    form: Any

    def is_same(self, other: "AggregateState") -> bool:
        """Whether two states are always equal."""
        pairs = [(one.aggregate.start, one.aggregate.add, one.aggregate.merge) for one in (self, other)]
        texts = [(one.argument.whole, one.where.whole) for one in (self, other)]
        return pairs[0] == pairs[1] and texts[0] == texts[1]

    @property
    def is_conditional(self) -> bool:
        """Whether some records may not count."""
        return bool(self.argument.needs) or self.where.text != "True"

    @property
    def is_empty_at_first(self) -> bool:
        """Whether there may be no state: None."""
        return self.is_conditional and self.aggregate.empty is None

    @property
    def stored_form(self) -> Any:
        """The type of what is stored."""
        return optional(self.form) if self.is_empty_at_first else self.form


@define(eq=False)
class Summary:
    """A summary while it is read: the states, and the names in the functions that are written from it."""

    names: Names = field(factory=dict)
    states: list[AggregateState] = field(factory=list)

    def call(self, aggregate: Aggregate[Any, Any], value: Any, where: Any) -> Expression:
        """Return the result of an aggregate.

        Raises:
            SummaryError: the value or the condition has the result of an aggregate in it.
        """
        argument, condition = self.formula(value), self.formula(where)
        if argument.is_result or condition.is_result:
            raise SummaryError("aggregates the result of an aggregate; aggregate the table again instead")
        form = without_none(argument.form) if aggregate.state is None else aggregate.state
        state = AggregateState(aggregate, argument, condition, form)
        place = next((at for at, other in enumerate(self.states) if other.is_same(state)), len(self.states))
        if place == len(self.states):
            self.states.append(state)
        text = f"a{place}"
        if aggregate.result is None:
            return Expression(Formula(text, state.stored_form, is_result=True), self.names)
        guards = (text,) if state.is_empty_at_first else ()
        shown = f"{self.name(aggregate.result)}({text})"
        return Expression(Formula(shown, aggregate.value or Any, is_result=True, guards=guards), self.names)

    def ratio(self, total: Any, count: Any) -> Expression:
        """Return the result ``total / count``; None if there is nothing to count."""
        ratio, number = formula_of(total / count), formula_of(count)
        if self.states[int(number.text[1:])].is_conditional:
            ratio = evolve(ratio, text=f"({ratio.text} if {number.text} else None)", form=optional(ratio.form))
        return Expression(ratio, self.names)

    def type_of(self, value: Any) -> Any:
        """Return the type of an expression or a constant, without None; Any if it is not known."""
        return without_none(self.formula(value).form)

    def formula(self, value: Any) -> Formula:
        """Return an expression or a constant as text."""
        return formula_of(value) if isinstance(value, Expression) else constant(value, self.names)

    def called(self, function: Any, *arguments: str) -> str:
        """Return the text of a call, or of what it gives."""
        text = next((text for called, text in _TEXTS if called is function), None)
        return f"{self.name(function)}({', '.join(arguments)})" if text is None else text.format(*arguments)

    def name(self, function: Any) -> str:
        """Return the name of a function in the text that is written."""
        for name, other in self.names.items():
            if other is function:
                return name
        return named(function, "function", self.names)


@frozen(eq=False)
class Summarized:
    """The functions of a summary, and the types of what is stored and shown; ``result`` is None if they are one."""

    add: Callable[[Any, Any, Any], Any]
    merge: Callable[[Any, Any, Any], Any]
    result: Callable[[Any], Any] | None
    state_form: Any
    form: Any


def summarized(summary: Callable[[Any], Any], value: Any, owner: str) -> Summarized:
    """Read a summary of values of the type ``value``, which is Any if not known; ``owner`` names it in messages.

    Raises:
        TopologyError: the summary is no function of a value, or does what cannot be read.
    """
    check_function(summary, "summarize", "(value)")
    reading = Summary()
    watch = CodeWatch([], ("BINARY_SUBSCR",), (Aggregate, type), _MODULES, has_no_none=False)
    before = _summary.set(reading)
    try:
        if isinstance(summary, FunctionType):
            watch.check_function(summary)
        outcome = watch.run(summary, [Expression(Formula("v", value), reading.names)])
        return _written(summary, reading, outcome)
    except INTERRUPTIONS:
        raise
    except (SummaryError, TraceError) as refusal:
        place = "".join(f", in {note}" for note in getattr(refusal, "__notes__", ())[:1])
        raise TopologyError(f"summarize of {owner}: {located(summary)} {refusal}{place}; {_ADVICE}") from None
    except TopologyError:
        raise
    except Exception as error:
        what = f"raises {type(error).__name__} when it is read: {error}"
        raise TopologyError(f"summarize of {owner}: {located(summary)} {what}; {_ADVICE}") from error
    finally:
        _summary.reset(before)


@frozen
class _Layout:
    """How states are stored: alone, in a tuple, or as the fields of the result."""

    form: Any
    is_tuple: bool = False
    #: Fields of the result by state; None: alone or in a tuple.
    fields: Sequence[str] | None = None
    create: str = ""

    def stored(self, items: Sequence[str]) -> str:
        """Return the text that stores states."""
        if self.fields is not None:
            return _creation(self.create, self.fields, items)
        return f"({', '.join(items)},)" if self.is_tuple else items[0]

    def read(self, letter: str, count: int, source: str) -> str:
        """Return the statement that reads states into ``letter`` and their numbers."""
        targets = ", ".join(f"{letter}{place}" for place in range(count))
        if self.fields is not None:
            return f"{targets} = {', '.join(f'{source}.{name}' for name in self.fields)}"
        return f"{targets}, = {source}" if self.is_tuple else f"{targets} = {source}"


def _written(summary: Any, reading: Summary, outcome: Any) -> Summarized:
    """Return the functions of a summary that has returned ``outcome``."""
    shape = None if isinstance(outcome, Expression) else RowShape.of(type(outcome))
    raw = [outcome] if shape is None else shape.parts(outcome)
    for part in raw:
        if isinstance(part, Expression) and not formula_of(part).is_result:
            raise SummaryError(f"returns {part!r} of a single value; say of which one: agg.first() or agg.last()")
    states = reading.states
    if not states:
        raise SummaryError("calls no aggregate of streams.agg")
    parts = [reading.formula(part) for part in raw]
    if shape is None:
        form, result = (optional(parts[0].form) if parts[0].guards else parts[0].form), parts[0].whole
    else:
        parts = [_as_declared(part, kind) for part, (_, kind) in zip(parts, shape.fields, strict=True)]
        create = reading.name(shape.form)
        form = shape.form
        result = _creation(create, [name for name, _ in shape.fields], [part.whole for part in parts])
    names = [f"a{place}" for place in range(len(states))]
    # A result of exactly the states is stored itself, if it cannot change.
    is_stored = sorted(part.whole for part in parts) == sorted(names)
    if is_stored and shape is not None and serde_for(form).is_immutable:
        fields = {part.whole: name for (name, _), part in zip(shape.fields, parts, strict=True)}
        layout = _Layout(form, fields=[fields[name] for name in names], create=create)
    elif is_stored and shape is None:
        layout = _Layout(states[0].stored_form)
    else:
        is_stored = False
        layout = _Layout(tuple[tuple(state.stored_form for state in states)], is_tuple=True)  # type: ignore[misc]
    add, merge, show = _functions(summary, reading, layout, result)
    return Summarized(add, merge, None if is_stored else show, layout.form, form)


def _creation(name: str, fields: Sequence[str], items: Sequence[str]) -> str:
    return f"{name}({', '.join(f'{field}={item}' for field, item in zip(fields, items, strict=True))})"


def _as_declared(part: Formula, kind: type) -> Formula:
    """Return a whole number as a float where a float is declared, as JSON would read it."""
    return evolve(part, text=f"float({part.text})", form=float) if kind is float and part.form is int else part


def _functions(summary: Any, reading: Summary, layout: _Layout, result: str) -> list[Callable[..., Any]]:
    states = reading.states
    first, later, merged, arguments = [], [], [], []
    for place, state in enumerate(states):
        aggregate = state.aggregate
        empty = "None" if aggregate.empty is None else constant(aggregate.empty, reading.names).text
        x, a, b = f"x{place}", f"a{place}", f"b{place}"
        arguments.append(f"{x} = {state.argument.whole}")
        start = started = reading.called(aggregate.start, x)
        added, both = reading.called(aggregate.add, a, x), reading.called(aggregate.merge, a, b)
        if state.is_conditional:
            tests = [state.where.whole] if state.where.text != "True" else []
            tests += [f"{x} is not None"] if state.argument.needs else []
            counts = " and ".join(tests)
            started = f"({started} if {counts} else {empty})"
            if state.is_empty_at_first:
                added = f"({start} if {a} is None else {added})"
                both = f"({b} if {a} is None else {a} if {b} is None else {both})"
            added = f"({added} if {counts} else {a})"
        first.append(started)
        later.append(added)
        merged.append(both)
    count = len(states)
    body = f"""
def made({", ".join(reading.names)}):
    def add(_, v, state):
        {"; ".join(arguments)}
        if state is None:
            return {layout.stored(first)}
        {layout.read("a", count, "state")}
        return {layout.stored(later)}
    def merge(_, left, right):
        if left is None:
            return right
        {layout.read("a", count, "left")}
        {layout.read("b", count, "right")}
        return {layout.stored(merged)}
    def show(state):
        {layout.read("a", count, "state")}
        return {result}
    return add, merge, show
"""
    return list(_compiled(body, summary)["made"](**reading.names))


def _compiled(text: str, summary: Any) -> dict[str, Any]:
    """Execute the text of functions, whose place in tracebacks is that of the summary."""
    code = getattr(summary, "__code__", None)
    tree = ast.parse(text)
    line = 1 if code is None else code.co_firstlineno
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr | ast.arg):
            node.lineno = node.end_lineno = line
    space: dict[str, Any] = {"__name__": __name__}
    exec(compile(tree, __file__ if code is None else code.co_filename, "exec"), space)
    return space
