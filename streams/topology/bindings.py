"""Bindings: the values of the free variables and globals of an operator's process function in one task.

``Capture`` inspects the closures that ``Operator.bind`` returns. Plain constants are written into the generated
program; other objects get a name in the program. Tasks of the same sub-topology differ only in these objects, so their
bindings are equal and they share one program. Functions that will be inlined are inspected recursively.
"""

from collections.abc import Sequence
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeAlias

from attrs import define, field, frozen

from streams.core.inlining import is_inlined
from streams.core.user_code import CheckedFunction
from streams.topology.source_trees import tree_of


@frozen
class Constant:
    """A constant that is written into the generated program."""

    value: Any
    #: The type distinguishes 1, True and 1.0, which are equal.
    kind: type


@frozen
class Named:
    """An object of one task, to which the generated program refers by a name."""

    name: str


@frozen
class Forward:
    """The function that sends a record to all children of a node, or to a single child."""

    name: str
    node: str
    child: str | None = None


@frozen
class Inlined:
    """A function that is inlined in the generated program where possible; elsewhere it is called by ``name``."""

    name: str
    code: CodeType
    #: Values of free variables and globals; the method of such an object has the key ``name.method``.
    names: "tuple[tuple[str, Binding], ...]"
    #: Bound first arguments, such as ``self`` of a method.
    bound: "tuple[Binding, ...]" = ()
    #: Default values of the last parameters.
    defaults: "tuple[Binding, ...]" = ()


Binding: TypeAlias = Constant | Named | Forward | Inlined


@define
class Capture:
    """Determines the bindings of one task's functions, and names their objects."""

    #: The namespace of the program.
    names: dict[str, Any]
    #: Bindings by the identity of the function.
    forwards: dict[int, Forward]
    _by_object: dict[int, str] = field(factory=dict)
    _inside: list[FunctionType] = field(factory=list)

    def process(self, function: Any, name: str, number: int) -> Binding:
        """Return the binding of a node's process function, which is called ``name`` in the program."""
        forward = self.forwards.get(id(function))
        if forward is not None:
            return forward
        self.names[name] = function
        return self._function(function, name, number) or Named(name)

    def _binding(self, value: Any, hint: str, number: int | None) -> Binding:
        if value is None or type(value) in (bool, int, str):
            return Constant(value, type(value))
        forward = self.forwards.get(id(value))
        if forward is not None:
            return forward
        name = self._named(value, hint, number)
        if is_inlined(value):
            return self._function(value, name, number) or Named(name)
        return Named(name)

    def _named(self, value: Any, hint: str, number: int | None) -> str:
        earlier = self._by_object.get(id(value))
        if earlier is not None:
            return earlier
        base = name = hint.lstrip("_") if number is None else f"{hint.lstrip('_')}_{number}"
        more = 1
        while name in self.names:
            more += 1
            name = f"{base}_{more}"
        self._by_object[id(value)] = name
        self.names[name] = value
        if isinstance(value, CheckedFunction):
            value.install = partial(self.names.__setitem__, name)
        return name

    def _function(self, function: Any, name: str, number: int | None) -> Inlined | None:
        bound: tuple[Binding, ...] = ()
        if isinstance(function, MethodType):
            bound = (self._binding(function.__self__, "self", number),)
            function = function.__func__
        if not isinstance(function, FunctionType):
            return None
        code = function.__code__
        tree = tree_of(code)
        if tree is None or function in self._inside:
            return None
        self._inside.append(function)
        try:
            outer = self._outer(function, tree.outer, tree.methods, number)
        except ValueError:  # An empty cell.
            return None
        finally:
            self._inside.pop()
        defaults = tuple(self._binding(value, "default", number) for value in function.__defaults__ or ())
        return Inlined(name, code, outer, bound, defaults)

    def _outer(
        self, function: FunctionType, names: Sequence[str], methods: Sequence[tuple[str, str]], number: int | None
    ) -> tuple[tuple[str, Binding], ...]:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        values: dict[str, Any] = {}
        bindings: list[tuple[str, Binding]] = []
        for name in names:
            if name in cells:
                values[name] = cells[name].cell_contents
                bindings.append((name, self._binding(values[name], name, number)))
            elif name in function.__globals__:
                values[name] = function.__globals__[name]
                bindings.append((name, self._binding(values[name], name, None)))
        for name, method in methods:
            if name in values and is_inlined(getattr(type(values[name]), method, None)):
                called = getattr(values[name], method)
                inside = self._function(called, f"{self._named(values[name], name, number)}.{method}", number)
                if inside is not None:
                    bindings.append((f"{name}.{method}", inside))
        return tuple(bindings)
