"""Expressions: what a summary gets in place of values, and of the results of aggregates.

An expression is the text of a Python expression and the type of what it gives.  Where a part may be None, as SQL's
NULL, all that is computed with it is None.  The module is pure and imports only ``core`` from outside ``dsl``.
"""

import math
import operator
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Final, NoReturn, TypeAlias, Union, get_args, get_origin, get_type_hints

from attrs import frozen

#: Names in the text of expressions, with what they stand for.
Names: TypeAlias = dict[str, Any]

_BINARY: Final = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"}
_BITS: Final = {"and": "&", "or": "|", "xor": "^"}
_COMPARED: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_SIGNS: Final = {"neg": "-", "pos": "+"}
#: What Python does where it needs a value at once.
_NEEDS_VALUE: Final = {
    "bool": "decides by {}; give where= to an aggregate, and write & and | for `and` and `or`",
    "iter": "goes through {}",
    "len": "takes the length of {}",
    "contains": "looks for something in {}",
    "int": "converts {}",
    "float": "converts {}",
    "index": "takes {} as an index",
    "str": "makes text of {}",
    "format": "makes text of {}",
    "round": "rounds {}",
}
#: A value of each type whose operations give one type.
_EXAMPLES: Final[dict[Any, Any]] = {
    type(example): example
    for example in (True, 1, 1.0, "", Decimal(1), timedelta(days=1), datetime(2000, 1, 1, tzinfo=UTC))
}


def both(left: bool | None, right: bool | None) -> bool | None:
    """Return "and" of conditions, as SQL: false if one is false, whatever the other is."""
    return False if left is False or right is False else None if left is None or right is None else True


def either(left: bool | None, right: bool | None) -> bool | None:
    """Return "or" of conditions, as SQL: true if one is true, whatever the other is."""
    return True if left is True or right is True else None if left is None or right is None else False


#: Conditions that may be None have the logic of SQL.
_LOGIC: Final[dict[str, Callable[..., bool | None]]] = {"and": both, "or": either}


class SummaryError(Exception):
    """Why a summary cannot be read, as what it does."""


@frozen
class Formula:
    """The text of an expression, the type of its value, and whether it is made of results of aggregates."""

    text: str
    form: Any = Any
    is_result: bool = False
    #: Texts that are not None where this one may be evaluated.
    guards: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """Texts that are not None where the value of this one may be used."""
        return (*self.guards, self.text) if may_be_none(self.form) else self.guards

    @property
    def whole(self) -> str:
        """The text, for all cases: None where a part is None."""
        if not self.guards:
            return self.text
        return f"({self.text} if {' and '.join(f'{text} is not None' for text in self.guards)} else None)"


class Expression:
    """Stands for the value of a record, for a part of it, or for a result; operations with it are written down."""

    __slots__ = ("_formula_of_summary", "_names_of_summary")
    __hash__: Any = None

    def __init__(self, part: Formula, names: Names) -> None:
        object.__setattr__(self, "_formula_of_summary", part)
        object.__setattr__(self, "_names_of_summary", names)

    def __repr__(self) -> str:
        return formula_of(self).text

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        part = formula_of(self)
        return _new(self, f"{part.text}.{name}", _attribute(part.form, name), part)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise SummaryError(f"sets .{name} of {self!r}; a summary changes nothing")

    def __getitem__(self, item: Any) -> Any:
        part, index = formula_of(self), as_formula(item, self)
        return _new(self, f"{part.text}[{index.text}]", _item(part.form), part, index)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        parts = [as_formula(argument, self) for argument in (*arguments, *options.values())]
        names = [""] * len(arguments) + [f"{name}=" for name in options]
        inside = ", ".join(f"{name}{part.text}" for name, part in zip(names, parts, strict=True))
        return _new(self, f"{self!r}({inside})", Any, formula_of(self), *parts)


def formula_of(expression: Expression) -> Formula:
    """Return the text and type of an expression."""
    part: Formula = object.__getattribute__(expression, "_formula_of_summary")
    return part


def names_of(expression: Expression) -> Names:
    """Return the names in the texts of a summary."""
    names: Names = object.__getattribute__(expression, "_names_of_summary")
    return names


def as_formula(value: Any, beside: Expression) -> Formula:
    """Return an expression, or a constant beside one, as text."""
    if isinstance(value, Expression):
        return formula_of(value)
    names = names_of(beside)
    return constant(value, names)


def constant(value: Any, names: Names) -> Formula:
    """Return a constant as text: itself, or a new name for it."""
    is_literal = value is None or type(value) in (int, str, bool) or (type(value) is float and math.isfinite(value))
    if is_literal:
        return Formula(f"({value!r})" if type(value) in (int, float) else repr(value), type(value))
    return Formula(named(value, "constant", names), type(value))


def named(value: Any, prefix: str, names: Names) -> str:
    """Return a new name for an object."""
    name = f"{prefix}_{len(names)}"
    names[name] = value
    return name


def _new(beside: Expression, text: str, form: Any, *parts: Formula) -> Expression:
    needs = dict.fromkeys(need for part in parts for need in part.needs)
    part = Formula(text, form, any(part.is_result for part in parts), tuple(needs))
    return Expression(part, names_of(beside))


def _define(name: str, method: Callable[..., Any]) -> None:
    setattr(Expression, f"__{name}__", method)


def _two(name: str, sign: str, *, is_reflected: bool = False) -> Callable[[Expression, Any], Expression]:
    def operation(self: Expression, other: Any) -> Expression:
        left, right = formula_of(self), as_formula(other, self)
        if is_reflected:
            left, right = right, left
        forms = without_none(left.form), without_none(right.form)
        if NoneType in forms:
            raise SummaryError(f"computes {sign} of None: aggregates pass over values that are None")
        if name in _BITS and Any not in forms and forms.count(bool) == 1:
            raise SummaryError(f"computes {left.text} {sign} {right.text}, of a condition and none; put parentheses")
        if name in _LOGIC and forms == (bool, bool) and (left.needs or right.needs):
            function, names = _LOGIC[name], names_of(self)
            names[function.__name__] = function
            text = f"{function.__name__}({left.whole}, {right.whole})"
            return Expression(Formula(text, bool | None, left.is_result or right.is_result), names)
        form = bool if name in _COMPARED else _result(name, *forms)
        return _new(self, f"({left.text} {sign} {right.text})", form, left, right)

    return operation


def _one(sign: str) -> Callable[[Expression], Expression]:
    def operation(self: Expression) -> Expression:
        form = without_none(formula_of(self).form)
        return _new(self, f"({sign}{self!r})", int if form is bool else form, formula_of(self))

    return operation


def _inverted(self: Expression) -> Expression:
    """Invert a number, or a condition: ``~True`` is -2 in Python, which is true."""
    part = formula_of(self)
    form = without_none(part.form)
    if form is bool:
        return _new(self, f"(not {part.text})", bool, part)
    names = names_of(self)
    names["inverted"] = inverted
    return _new(self, f"inverted({part.text})", form, part)


def inverted(value: Any) -> Any:
    """Return what ``~`` means in a summary."""
    return not value if isinstance(value, bool) else ~value


def _absolute(self: Expression) -> Expression:
    names = names_of(self)
    names["abs"] = abs
    form = without_none(formula_of(self).form)
    return _new(self, f"abs({self!r})", int if form is bool else form, formula_of(self))


def _refusing(does: str) -> Callable[..., Any]:
    def refuse(self: Expression, *_: Any) -> NoReturn:
        raise SummaryError(does.format(repr(self)))

    return refuse


for _name, _sign in (_BINARY | _BITS).items():
    _define(_name, _two(_name, _sign))
    _define(f"r{_name}", _two(_name, _sign, is_reflected=True))
for _name, _sign in _COMPARED.items():
    _define(_name, _two(_name, _sign))
for _name, _sign in _SIGNS.items():
    _define(_name, _one(_sign))
_define("abs", _absolute)
_define("invert", _inverted)
for _name, _does in _NEEDS_VALUE.items():
    _define(_name, _refusing(_does))


# --- types ---------------------------------------------------------------------------------------


def may_be_none(form: Any) -> bool:
    """Return whether a type has None; a type that is not declared may have it."""
    return form is Any or form is None or form is NoneType or NoneType in _members(form)


def optional(form: Any) -> Any:
    """Return a type with None."""
    return form if form is Any else form | None


def without_none(form: Any) -> Any:
    """Return a type without None."""
    if NoneType not in _members(form):
        return form
    others = [member for member in _members(form) if member is not NoneType]
    return others[0] if len(others) == 1 else Any


def _members(form: Any) -> Iterable[Any]:
    return get_args(form) if get_origin(form) in (Union, UnionType) else ()


def _attribute(form: Any, name: str) -> Any:
    form = without_none(form)
    try:
        hints = get_type_hints(form)
    except Exception:  # noqa: BLE001 - annotations that cannot be evaluated say nothing, as elsewhere.
        return Any
    if name in hints:
        return hints[name]
    attribute = getattr(form, name, None)
    if isinstance(attribute, property):
        try:
            return get_type_hints(attribute.fget).get("return", Any)
        except Exception:  # noqa: BLE001
            return Any
    return type(attribute) if callable(attribute) else Any


def _item(form: Any) -> Any:
    form = without_none(form)
    arguments = get_args(form)
    # A mapping may lack a key, which is an error of the record; its values have a type.
    if get_origin(form) is dict and len(arguments) == 2:
        return arguments[1]
    return arguments[0] if get_origin(form) is list else Any


def _result(name: str, left: Any, right: Any) -> Any:
    """Return the type of an operation with two types, Any if it is not known."""
    if name == "pow" or left not in _EXAMPLES or right not in _EXAMPLES:
        return Any
    try:
        return type(getattr(operator, f"__{name}__")(_EXAMPLES[left], _EXAMPLES[right]))
    except TypeError:
        return Any
