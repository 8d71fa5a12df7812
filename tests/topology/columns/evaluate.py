"""What a decision tree gives for a value: each operation is Python's."""

import operator
from typing import Any

from streams.topology.columns.symbols import Symbol
from streams.topology.columns.trace import Fork, RowShape, Tree

_OPERATIONS = {
    name: getattr(operator, {"and": "and_", "or": "or_"}.get(name, name))
    for name in (
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "and",
        "or",
        "xor",
    )
}
_OPERATIONS |= {"neg": operator.neg, "abs": abs}


def evaluate(tree: Tree, key: Any, value: Any, state: Any = None) -> Any:
    """Return what a function gives."""
    while isinstance(tree, Fork):
        tree = tree.yes if of(tree.test, key, value, state) else tree.no
    return tree.result


def of(operand: Any, key: Any, value: Any, state: Any) -> Any:
    """Return the value of a symbol or a constant."""
    if not isinstance(operand, Symbol):
        return operand
    if operand.op in ("field", "state", "key"):
        whole = {"field": value, "state": state, "key": key}[operand.op]
        return getattr(whole, operand.args[0]) if operand.args[0] else whole
    if operand.op == "select":
        test, yes, no = operand.args
        return of(yes if of(test, key, value, state) else no, key, value, state)
    return _OPERATIONS[operand.op](*(of(each, key, value, state) for each in operand.args))


def parts(shape: RowShape | None, result: Any, key: Any, value: Any, state: Any = None) -> list[Any]:
    """Return the fields of a result."""
    return [of(part, key, value, state) for part in ([result] if shape is None else shape.parts(result))]
