"""Traces functions: each is run with symbols, once for each way through its conditions, which gives a decision tree.

So ``if``, ``and``, ``or``, ``not``, ``a < b < c`` and ``x if c else y`` mean what they mean in Python, and what a
condition leaves out is not computed.  ``max`` and ``min`` of the function itself become selections.
"""

import builtins
import operator
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, NoneType
from typing import Any, Final, TypeAlias, get_origin

import msgspec
from attrs import define, field, frozen
from msgspec import inspect

from streams.core.concurrency.threads import INTERRUPTIONS
from streams.topology.columns.bytecode import CodeWatch, OuterName, OuterVariable, is_c_function, symbols_in
from streams.topology.columns.symbols import Symbol, TraceError, checked_constant, constant_key, kind_of

MAX_PATHS: Final = 64
#: The kinds of types whose values columns may have.
KINDS: Final[Mapping[Any, type]] = {
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.BoolType: bool,
    inspect.StrType: str,
}
_NUMBERS: Final = (int, float, bool)
_DIVISIONS: Final = ("truediv", "floordiv", "mod")
#: What is called when an object is created, also by a decoder.
HOOKS: Final = ("__post_init__", "__attrs_pre_init__", "__attrs_post_init__")


@frozen
class RowShape:
    """A declared type, as far as columns go: the kind of a value, or a class and the kinds of its fields.

    A kind is int, float, bool, str, or ``object`` for all others.
    """

    form: Any
    kind: type | None = None
    fields: tuple[tuple[str, type], ...] = ()
    #: Fields that may be None: a function sees that where the value is not.
    optional: frozenset[str] = frozenset()

    @classmethod
    def of(cls, form: Any) -> "RowShape":
        """Return the shape of a type.

        Raises:
            TraceError: it has no fields whose types are declared, or its objects do something when they are created.
        """
        try:
            info = inspect.type_info(form)
        except (TypeError, NameError, ValueError, AttributeError) as error:
            raise TraceError(f"has values of {_name(form)}, whose fields are not declared") from error
        if type(info) in KINDS:
            return cls(form, KINDS[type(info)])
        if not isinstance(info, inspect.StructType | inspect.DataclassType | inspect.NamedTupleType):
            raise TraceError(f"has values of {_name(form)}, which is no class with fields")
        if any(hasattr(info.cls, hook) for hook in HOOKS):
            raise TraceError(f"has values of {_name(form)}, which does something when it is created")
        fields = tuple((part.name, _kind_of_type(part.type)) for part in info.fields)
        for part, (name, kind) in zip(info.fields, fields, strict=True):
            # A factory written in C is not seen while it runs.
            if kind is not object and getattr(part, "default_factory", msgspec.NODEFAULT) is not msgspec.NODEFAULT:
                raise TraceError(f"has values of {_name(form)}, whose .{name} has a default_factory")
        return cls(
            info.cls, None, fields, frozenset(p.name for p in info.fields if isinstance(p.type, inspect.UnionType))
        )

    def symbols(self, trace: "SymbolicRuns", op: str) -> Any:
        """Return a symbol, or an object of the class whose fields are symbols."""
        if self.kind is not None:
            return trace.symbol(op, "", kind=self.kind)
        symbols = {name: trace.symbol(op, name, kind=kind) for name, kind in self.fields}
        if issubclass(self.form, tuple):
            return self.form(**symbols)
        # Constructors of users check and convert; a value that is read is not created by them.
        empty = self.form(**symbols) if issubclass(self.form, msgspec.Struct) else object.__new__(self.form)
        if not isinstance(empty, msgspec.Struct):
            for name, symbol in symbols.items():
                object.__setattr__(empty, name, symbol)
        return empty

    def parts(self, value: Any) -> list[Any]:
        """Return the value, or its fields.

        Raises:
            TraceError: it is of another class.
        """
        if self.kind is not None:
            return [value]
        if type(value) is not self.form:
            raise TraceError(f"returns {_article(kind_of(value))}, not {_article(self.form)}")
        return [getattr(value, name) for name, _ in self.fields]


def _kind_of_type(info: inspect.Type) -> type:
    if isinstance(info, inspect.UnionType):
        # Blocks with a null in a column that is used are left to rows.
        others = [part for part in info.types if not isinstance(part, inspect.NoneType)]
        return _kind_of_type(others[0]) if len(others) == 1 else object
    return KINDS.get(type(info), object)


def _name(form: Any) -> str:
    return repr(form) if get_origin(form) is not None else getattr(form, "__qualname__", repr(form))


def _article(kind: type) -> str:
    return "None" if kind is NoneType else f"{'an' if kind.__name__[0] in 'aeiouAEIOU' else 'a'} {kind.__name__}"


@frozen(eq=False)
class Leaf:
    """The end of one way through a function: what it returns, with symbols.

    ``divisions`` are those on the way whose divisors may be zero, which is an error even if nobody uses the quotient.
    """

    result: Any
    divisions: tuple[Symbol, ...] = ()


@frozen(eq=False)
class Fork:
    """A condition, and what follows if it is true and if it is false."""

    test: Symbol
    yes: "Tree"
    no: "Tree"


Tree: TypeAlias = Leaf | Fork


def leaves(tree: Tree) -> list[Any]:
    """Return what the ways through a function return."""
    if isinstance(tree, Leaf):
        return [tree.result]
    return [*leaves(tree.yes), *leaves(tree.no)]


def tests(tree: Tree) -> list[Symbol]:
    """Return the conditions of a function."""
    return [] if isinstance(tree, Leaf) else [tree.test, *tests(tree.yes), *tests(tree.no)]


def divisions(tree: Tree) -> list[Symbol]:
    """Return the divisions of a function whose divisors may be zero."""
    if isinstance(tree, Leaf):
        return list(tree.divisions)
    return [*divisions(tree.yes), *divisions(tree.no)]


#: The conditions on one way through a function, with the way that it takes at each, and its end.
_Way: TypeAlias = tuple[list[tuple[Symbol, bool]], Leaf]
#: Creates the arguments of one run; symbols of the same field are one.
_Arguments: TypeAlias = Callable[["SymbolicRuns"], Sequence[Any]]


@define(eq=False)
class SymbolicRuns:
    """Runs functions with symbols, all of which it creates: equal operations are one symbol."""

    watch: CodeWatch
    _symbols: dict[Any, Symbol] = field(factory=dict)
    _script: Sequence[tuple[Symbol, bool]] = ()
    _path: list[tuple[Symbol, bool]] = field(factory=list)
    _divisions: dict[int, Symbol] = field(factory=dict)

    def symbol(self, op: str, *args: Any, kind: type) -> Symbol:
        """Return the symbol of an operation."""
        key = (op, *(id(each) if isinstance(each, Symbol) else constant_key(each) for each in args))
        symbol = self._symbols.get(key)
        if symbol is None:
            symbol = self._symbols[key] = Symbol(op, args, kind, self)
        if op in _DIVISIONS and (isinstance(args[1], Symbol) or not args[1]):
            self._divisions[id(symbol)] = symbol
        return symbol

    def decide(self, test: Symbol) -> bool:
        """Return which way this run goes at a condition: as before, as scripted, or the way of yes."""
        for before, taken in self._path:
            if before is test:
                return taken
        place = len(self._path)
        taken = True
        if place < len(self._script):
            scripted, taken = self._script[place]
            if scripted is not test:
                raise TraceError("does not do the same each time")
        self._path.append((test, taken))
        return taken

    def select(self, test: Any, yes: Any, no: Any) -> Any:
        """Return what a selection gives, if both have one type."""
        if not isinstance(test, Symbol):
            return yes if test else no
        if kind_of(yes) is not kind_of(no):
            raise TraceError(f"takes the larger or smaller of {_article(kind_of(yes))} and {_article(kind_of(no))}")
        return self.symbol("select", test, yes, no, kind=kind_of(yes))

    def tree(self, function: Callable[..., Any], arguments: _Arguments) -> Tree:
        """Return the decision tree of a function.

        Raises:
            TraceError: the function cannot be traced.
        """
        call = self._callable(function)
        ways: list[_Way] = []
        pending: list[list[tuple[Symbol, bool]]] = [[]]
        while pending:
            self._script = pending.pop()
            self._path = []
            self._divisions = {}
            result = self._run(call, arguments(self))
            path = self._path
            ways.append((path, Leaf(result, tuple(self._divisions.values()))))
            pending += [[*path[:place], (path[place][0], False)] for place in range(len(self._script), len(path))]
            if len(ways) + len(pending) > MAX_PATHS:
                raise TraceError(f"has more than {MAX_PATHS} ways through its conditions")
        return _tree(ways, 0)

    def _run(self, call: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        # An aggregator may change its aggregate.
        inputs = arguments[:2]
        before = [_contents(argument) for argument in inputs]
        try:
            result = self.watch.run(call, arguments)
        except (TraceError, *INTERRUPTIONS):
            raise
        except Exception as error:
            raise TraceError(f"raises {type(error).__name__}: {error}") from error
        if [_contents(argument) for argument in inputs] != before:
            raise TraceError("changes its input")
        return result

    def _callable(self, function: Any) -> Callable[..., Any]:
        """Return a function whose ``max`` and ``min`` are selections."""
        if function is max or function is min:
            return self._extreme(function)
        if isinstance(function, operator.attrgetter) or is_c_function(function):
            return function  # type: ignore[no-any-return]
        if not isinstance(function, FunctionType):
            raise TraceError(f"is {_article(type(function))}, no function of Python")
        self.watch.check_function(function)
        names = vars(builtins) | {"max": self._extreme(max), "min": self._extreme(min)}
        outer = {**function.__globals__, "__builtins__": names}
        copied = FunctionType(function.__code__, outer, function.__name__, function.__defaults__, function.__closure__)
        copied.__kwdefaults__ = function.__kwdefaults__
        return copied

    def _extreme(self, function: Any) -> Callable[..., Any]:
        """Return ``max`` or ``min`` for symbols, with the order of CPython's comparisons, which matters for NaN."""
        is_better = operator.gt if function is max else operator.lt

        def chosen(*values: Any, **options: Any) -> Any:
            items = values[0] if len(values) == 1 and isinstance(values[0], tuple) else values
            if options or len(items) < 2 or not any(isinstance(item, Symbol) for item in items):
                return function(*values, **options)
            best = items[0]
            for item in items[1:]:
                best = self.select(is_better(item, best), item, best)
            return best

        return chosen


def _contents(argument: Any) -> Any:
    """Return the identities of the fields of an argument."""
    if isinstance(argument, Symbol):
        return id(argument)
    names = [*getattr(argument, "__dict__", ())]
    for base in type(argument).__mro__:
        slots = vars(base).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    names += getattr(type(argument), "__struct_fields__", ())
    return id(argument), [id(getattr(argument, name)) for name in names if hasattr(argument, name)]


def _tree(ways: Sequence[_Way], depth: int) -> Tree:
    if len(ways) == 1 and len(ways[0][0]) == depth:
        return ways[0][1]
    test = ways[0][0][depth][0]
    sides = [[way for way in ways if way[0][depth][1] is taken] for taken in (True, False)]
    return Fork(test, _tree(sides[0], depth + 1), _tree(sides[1], depth + 1))


@frozen(eq=False)
class Traced:
    """What a function does with columns: its decision tree, and the fields of values that it uses."""

    tree: Tree
    #: The shape of what it returns; None for a condition.
    shape: RowShape | None
    fields: tuple[str, ...]
    #: What the function uses from outside.
    outer: tuple[OuterName | OuterVariable, ...]


def trace_condition(function: Callable[..., Any], key: RowShape | None, value: RowShape) -> Traced:
    """Trace a predicate of a key and a value.

    Raises:
        TraceError: it cannot be traced, or its result is neither a number nor true nor false.
    """
    tracer, arguments = _tracer(key, value)
    tree = tracer.tree(function, arguments)
    for result in leaves(tree):
        if kind_of(result) not in (*_NUMBERS, NoneType):
            raise TraceError(f"returns {_article(kind_of(result))} as a condition")
    return _traced(tracer, tree, value, None)


def trace_value(
    function: Callable[..., Any], key: RowShape | None, value: RowShape, *, with_key: bool = True
) -> Traced:
    """Trace a function of a key and a value, or of a value alone, that returns a new value, or a new key.

    Raises:
        TraceError: it cannot be traced, or its results have no declared or more than one type.
    """
    tracer, arguments = _tracer(key, value)
    tree = tracer.tree(function, arguments if with_key else lambda tracer: arguments(tracer)[1:])
    kinds = {kind_of(result) for result in leaves(tree)}
    if len(kinds) > 1:
        raise TraceError(f"returns {' or '.join(sorted(map(_article, kinds)))}")
    (kind,) = kinds
    shape = RowShape.of(kind)
    for result in leaves(tree):
        for (name, declared), part in zip(_named(shape), shape.parts(result), strict=True):
            _check_part(name, declared, part)
    return _traced(tracer, tree, value, shape)


def trace_fold(aggregator: Callable[..., Any], initial: Any, key: RowShape | None, value: RowShape | None) -> Traced:
    """Trace an aggregator of (key, value, aggregate); ``initial`` is the aggregate that it begins with.

    Raises:
        TraceError: it cannot be traced, or a part of its aggregate is no number, or does not keep its type.
    """
    if initial is None and value is None:
        raise TraceError("has values of an unknown type")
    # A reduction begins with the first value.
    state = value if initial is None and value is not None else RowShape.of(type(initial))
    for name, declared in _named(state):
        if declared not in (int, float, bool):
            raise TraceError(f"has an aggregate whose {name or 'type'} is {_article(declared)}, which is no number")
    for (name, declared), part in zip(_named(state), [] if initial is None else state.parts(initial), strict=False):
        if type(part) is not declared:
            raise TraceError(
                f"begins with {_article(type(part))} in {name or 'its aggregate'}, which is {_article(declared)}"
            )
        checked_constant(part)
    tracer, arguments = _tracer(key, value, state)
    tree = tracer.tree(aggregator, arguments)
    for result in leaves(tree):
        if state.kind is not None and kind_of(result) is not state.kind:
            raise TraceError(f"returns {_article(kind_of(result))}, not {_article(state.kind)}")
        for (name, declared), part in zip(_named(state), state.parts(result), strict=True):
            _check_part(name, declared, part)
    return _traced(tracer, tree, value, state)


def _named(shape: RowShape) -> Sequence[tuple[str, type]]:
    return shape.fields or [("", shape.kind or object)]


def _check_part(name: str, declared: type, part: Any) -> None:
    if declared is not object and kind_of(part) is not declared:
        raise TraceError(f"gives {name or 'its result'}, which is {_article(declared)}, {_article(kind_of(part))}")
    if not isinstance(part, Symbol) and declared in (int, float, bool):
        checked_constant(part)


def _tracer(
    key: RowShape | None, value: RowShape | None, state: RowShape | None = None
) -> tuple[SymbolicRuns, _Arguments]:
    shapes = [shape for shape in (value, state) if shape is not None and shape.kind is None]
    tracer = SymbolicRuns(CodeWatch([shape.form for shape in shapes]))

    def arguments(tracer: SymbolicRuns) -> Sequence[Any]:
        items = [
            tracer.symbol("key", "", kind=object) if key is None or key.kind is None else key.symbols(tracer, "key")
        ]
        items.append(tracer.symbol("value", "", kind=object) if value is None else value.symbols(tracer, "field"))
        return items if state is None else [*items, state.symbols(tracer, "state")]

    return tracer, arguments


def _traced(tracer: SymbolicRuns, tree: Tree, value: RowShape | None, shape: RowShape | None) -> Traced:
    parts = [part for result in leaves(tree) for part in ([result] if shape is None else shape.parts(result))]
    used = dict.fromkeys(
        symbol.args[0] or "value"
        for root in (*tests(tree), *divisions(tree), *parts)
        for symbol in symbols_in(root)
        if symbol.op == "field"
    )
    if value is not None and value.fields:
        used |= dict.fromkeys(value.optional & tracer.watch.names)
        used = {name: None for name, _ in value.fields if name in used}
    return Traced(tree, shape, tuple(used), tuple(tracer.watch.outer))


__all__ = ["Fork", "Leaf", "TraceError", "RowShape", "Traced", "trace_condition", "trace_fold", "trace_value"]
