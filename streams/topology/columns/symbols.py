"""Symbols: what a user's function gets in place of numbers and texts while it is traced.

An operation with a symbol is a new symbol, whose kind is the type that Python's result would have.  What has no such
kind, or another meaning in C than in Python, is refused.  A condition asks the trace which way to go.
"""

from collections.abc import Callable, Hashable
from enum import Enum
from types import NoneType
from typing import Any, Final, NoReturn, Protocol

_NUMBERS: Final = frozenset({int, float, bool})
_LARGEST_EXACT: Final = 2**53
_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1


class TraceError(BaseException):
    """Why a function cannot be traced, as what it does: "calls sorted()".

    It is no ``Exception``, so that the function cannot catch it.
    """


class SymbolicRun(Protocol):
    """One run of a function with symbols."""

    def decide(self, test: "Symbol") -> bool:
        """Return which way this run goes at a condition."""
        ...

    def symbol(self, op: str, *args: Any, kind: type) -> "Symbol":
        """Return the symbol of an operation; equal operations are one symbol."""
        ...


class Symbol:
    """A field, the key, a part of the state, or the result of an operation; ``kind`` is int, float, bool or str.

    Fields of other types have the kind ``object``: they may be passed on, and not looked into.
    """

    __slots__ = ("args", "kind", "op", "trace")
    __hash__: Any = None

    def __init__(self, op: str, args: tuple[Any, ...], kind: type, trace: SymbolicRun) -> None:
        self.op = op
        self.args = args
        self.kind = kind
        self.trace = trace

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(map(repr, self.args))})"

    def __bool__(self) -> bool:
        if self.kind is str or self.kind is object:
            raise TraceError(f"asks whether {shown(self)} is empty")
        return self.trace.decide(self)

    def __getattr__(self, name: str) -> NoReturn:
        raise TraceError(f"uses .{name} of {shown(self)}")

    def __neg__(self) -> "Symbol":
        return self._sign("neg")

    def __abs__(self) -> "Symbol":
        return self._sign("abs")

    def __pos__(self) -> "Symbol":
        return self._sign("pos")

    def _sign(self, op: str) -> "Symbol":
        if self.kind not in (int, float):
            raise TraceError(f"takes {op} of {shown(self)}, which is a {self.kind.__name__}")
        return self if op == "pos" else self.trace.symbol(op, self, kind=self.kind)


def kind_of(operand: Any) -> type:
    """Return the type that an operand has, or stands for."""
    return operand.kind if isinstance(operand, Symbol) else type(operand)


def shown(operand: Any) -> str:
    """Return a part of an expression as its user knows it."""
    if not isinstance(operand, Symbol):
        return repr(operand)
    return f".{operand.args[0]}" if operand.op in ("field", "state") and operand.args[0] else f"the {operand.op}"


def constant_key(operand: Any) -> Hashable:
    """Return what tells constants apart: 0.0 and -0.0, 1 and 1.0 and True are different."""
    return type(operand), operand.hex() if isinstance(operand, float) else operand


def checked_constant(operand: Any) -> Any:
    """Return a constant that a register can hold.

    Raises:
        TraceError: it is a whole number of more than 64 bits.
    """
    if type(operand) is int and not _LEAST <= operand <= _MOST:
        raise TraceError(f"uses {operand}, which has more than 64 bits")
    return operand


_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPUTED = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%"}
_BITS = {"and": "&", "or": "|", "xor": "^"}
_SIGNS: Final = {**_COMPARED, **_COMPUTED, **_BITS, "pow": "**", "lshift": "<<", "rshift": ">>", "matmul": "@"}


def result_kind(op: str, left: Any, right: Any) -> type:
    """Return the type of the result of a binary operation.

    Raises:
        TraceError: it has none that is the same in C and in Python.
    """
    kinds = {kind_of(left), kind_of(right)}
    names = " and ".join(sorted(kind.__name__ for kind in kinds))
    sign = _SIGNS[op]
    if op in ("eq", "ne") and kinds == {str}:
        return bool
    if not kinds <= _NUMBERS:
        raise TraceError(f"computes {sign} of {names}")
    if float in kinds:
        for operand in (left, right):
            if type(operand) is int and abs(operand) > _LARGEST_EXACT:
                raise TraceError(f"uses {operand} with a float, which has not all of its digits")
    if op in _COMPARED:
        return bool
    if op in _BITS:
        if float not in kinds:
            return bool if kinds == {bool} else int
    elif op in _COMPUTED and (float not in kinds or op not in ("floordiv", "mod")):
        return float if float in kinds or op == "truediv" else int
    raise TraceError(f"computes {sign} of {names}")


def _binary(op: str, *, is_reflected: bool = False) -> Callable[[Symbol, Any], Symbol]:
    def operation(symbol: Symbol, other: Any) -> Symbol:
        checked_constant(other)
        left, right = (other, symbol) if is_reflected else (symbol, other)
        return symbol.trace.symbol(op, left, right, kind=result_kind(op, left, right))

    return operation


def _refused(does: str) -> Callable[..., NoReturn]:
    def method(symbol: Symbol, *_: Any) -> NoReturn:
        raise TraceError(f"{does} {shown(symbol)}")

    return method


for _op in _SIGNS:
    setattr(Symbol, f"__{_op}__", _binary(_op))
    if _op not in _COMPARED:
        setattr(Symbol, f"__r{_op}__", _binary(_op, is_reflected=True))
for _does, _names in {
    "iterates over": "iter reversed next contains",
    "takes the length of": "len length_hint",
    "uses as an index": "index",
    "converts with int()": "int trunc",
    "converts with float() or complex()": "float complex",
    "makes text of": "str format bytes fspath",
    "rounds": "round floor ceil",
    "looks up by": "getitem setitem delitem",
    "calls": "call",
    "inverts the bits of": "invert",
    "takes divmod of": "divmod rdivmod",
    "awaits": "await aiter anext",
    "opens": "enter exit",
    "takes the hash of": "hash",
}.items():
    for _name in _names.split():
        setattr(Symbol, f"__{_name}__", _refused(_does))

#: What may be a constant of a function: nothing of it can change.
CONSTANTS: Final = (int, float, str, bool, bytes, NoneType, Enum)
