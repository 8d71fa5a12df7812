"""Inlining of function bodies, which renames locals, folds constants and removes dead branches.

Inlining does not change behaviour (``tests/topology/test_inliner.py``). A call is kept if the function body cannot
replace it, for example because of a ``return`` inside a loop.
"""

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from attrs import define, field

from streams.topology.bindings import Binding, Constant, Forward, Inlined
from streams.topology.source_trees import Tree, tree_of

#: Called with a returned value; returns the statements that use it.
OnReturn: TypeAlias = Callable[[ast.expr], list[ast.stmt]]

_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_COMPUTED: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_NONE = ast.Constant(None)


class _StaysCall(Exception):
    """Raised if a function body cannot replace a call."""


def name_of(text: str) -> ast.Name:
    """Return the syntax tree of an expression that reads the name ``text``."""
    return ast.Name(text, ast.Load())


def is_simple(value: ast.expr) -> bool:
    """Return whether an expression may be repeated: a name or a constant."""
    return isinstance(value, ast.Name | ast.Constant)


@define
class Inliner:
    """Inlines the functions of one node as statements that use the names of the program."""

    #: Number of the node, which is the suffix of its local names.
    number: int
    #: Functions that may be inlined, by their names in the program.
    functions: dict[str, Inlined | Forward] = field(factory=dict)
    #: Names of the task's objects, which are never None.
    _objects: set[str] = field(factory=set)
    #: Names already in use: local names, and objects of the task, which local names must not hide.
    _locals: set[str] = field(factory=set)

    def body(self, function: Inlined, arguments: Sequence[ast.expr]) -> list[ast.stmt] | None:
        """Return the statements that replace a call whose result is unused, or None if the call must be kept."""
        self.functions[function.name] = function
        self._locals.update(_names_in(function))
        try:
            return self._inlined(function, arguments, self._effect)
        except _StaysCall:
            return None

    def local(self, name: str) -> str:
        """Return a new name for a local variable in the node's lines."""
        base = unique = f"{name.lstrip('_')}_{self.number}"
        more = 1
        while unique in self._locals:
            more += 1
            unique = f"{base}_{more}"
        self._locals.add(unique)
        return unique

    # Inlining one function.

    def _inlined(self, function: Inlined, arguments: Sequence[ast.expr], on_return: OnReturn) -> list[ast.stmt]:
        before, body = self._written(function, arguments)
        return [*before, *self._block(body, on_return)]

    def _written(self, function: Inlined, arguments: Sequence[ast.expr]) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Return the assignments to a function's parameters, and the function's body, with the names of the program."""
        tree = tree_of(function.code)
        assert tree is not None
        scope = {name: self._expression(binding) for name, binding in function.names}
        passed = [*map(self._expression, function.bound), *arguments]
        if len(passed) < len(tree.parameters):
            passed += [self._expression(value) for value in function.defaults[len(passed) - len(tree.parameters) :]]
        before: list[ast.stmt] = []
        for parameter, argument in zip(tree.parameters, passed, strict=True):
            is_items = isinstance(argument, ast.Tuple) and all(map(is_simple, argument.elts))
            if parameter not in tree.assigned and (is_simple(argument) or (is_items and parameter in tree.unpacked)):
                scope[parameter] = argument
            else:
                scope[parameter] = name_of(self.local(parameter))
                before.append(_assigned(scope[parameter], argument))
        constants = self._constant_results(function, tree)
        scope |= {name: constants.get(name) or name_of(self.local(name)) for name in tree.locals}
        body = _Folding(scope, self._objects).block(tree.body)
        if not _always_ends(body):
            body.append(ast.Return(_NONE))
        return before, body

    def _expression(self, binding: Binding) -> ast.expr:
        """Return the expression for a binding, and note the function or object that it names."""
        if isinstance(binding, Constant):
            return ast.Constant(binding.value)
        if isinstance(binding, Inlined | Forward):
            self.functions[binding.name] = binding
        self._objects.add(binding.name)
        return name_of(binding.name)

    def _constant_results(self, function: Inlined, tree: Tree) -> dict[str, ast.Constant]:
        """Return the local variables that are assigned the result of a function which always returns one constant."""
        names = dict(function.names)
        constants = {}
        for local, called in tree.results:
            binding = names.get(called)
            result = self._constant_result(binding) if isinstance(binding, Inlined) else None
            if result is not None:
                constants[local] = result
        return constants

    def _constant_result(self, function: Inlined) -> ast.Constant | None:
        tree = tree_of(function.code)
        assert tree is not None
        returned = [node.value for part in tree.body for node in ast.walk(part) if isinstance(node, ast.Return)]
        first = returned[0] if returned else None
        if not isinstance(first, ast.Constant) or not _always_ends(tree.body):
            return None
        same = all(isinstance(value, ast.Constant) and value.value is first.value for value in returned)
        return first if same else None

    # Statements.

    def _block(self, body: Sequence[ast.stmt], on_return: OnReturn) -> list[ast.stmt]:
        """Return the statements of ``body`` without ``return``; each exit of the function becomes ``on_return``."""
        written: list[ast.stmt] = []
        for place, statement in enumerate(body):
            statement = self._nested(statement)
            match statement:
                case ast.Return(value):
                    return [*written, *self._valued(value or _NONE, on_return)]
                case ast.If():
                    self._lead(statement, written)
                    if not _returns(statement):
                        self._compound(statement, on_return)
                        written.append(statement)
                        continue
                    rest = body[place + 1 :]
                    if _always_ends(statement.body):
                        then = statement.body
                        orelse = [*statement.orelse, *rest]
                    elif _always_ends(statement.orelse):
                        then = [*statement.body, *rest]
                        orelse = statement.orelse
                    else:
                        raise _StaysCall
                    statement.body = self._block(then, on_return)
                    statement.orelse = self._block(orelse, on_return)
                    return [*written, statement]
                case ast.For() | ast.While() | ast.With() | ast.Try():
                    if _returns(statement):
                        raise _StaysCall
                    self._compound(statement, on_return)
                    written.append(statement)
                case ast.Expr(value):
                    written += self._valued(value, self._effect)
                case ast.Assign([target], value):
                    written += self._valued(value, partial(_assignment, target))
                case ast.Pass():
                    pass
                case _:
                    written.append(statement)
        return written

    def _compound(self, statement: ast.stmt | ast.excepthandler, on_return: OnReturn) -> None:
        for part in ("body", "orelse", "finalbody"):
            if hasattr(statement, part):
                setattr(statement, part, self._block(getattr(statement, part), on_return))
        for handler in getattr(statement, "handlers", ()):
            self._compound(handler, on_return)

    def _valued(self, value: ast.expr, on_return: OnReturn) -> list[ast.stmt]:
        """Return the statements that compute a value, followed by the statements of ``on_return``."""
        callee = self._callee(value)
        if callee is None:
            return on_return(value)
        function, arguments = callee
        try:
            return self._inlined(function, arguments, on_return)
        except _StaysCall:
            return on_return(value)

    def _lead(self, statement: ast.If, written: list[ast.stmt]) -> None:
        """Inline the call that the condition of an ``if`` statement evaluates first."""
        parent: Any = statement
        place = "test"
        test: ast.expr = statement.test
        while not isinstance(test, ast.Call):
            match test:
                case ast.UnaryOp(ast.Not(), operand):
                    parent = test
                    place = "operand"
                    test = operand
                case ast.Compare(left):
                    parent = test
                    place = "left"
                    test = left
                case _:
                    return
        if self._callee(test) is None:
            return
        result = name_of(self.local("result"))
        written += self._valued(test, partial(_assignment, result))
        setattr(parent, place, result)

    def _nested(self, statement: ast.stmt) -> ast.stmt:
        """Inline calls to single-expression functions inside a statement's expressions."""
        if isinstance(statement, ast.Return | ast.Expr | ast.Assign) and isinstance(statement.value, ast.Call):
            call = statement.value
            call.args = [_Calls(self).visit(argument) for argument in call.args]
            return statement
        for name, value in ast.iter_fields(statement):
            if isinstance(value, ast.expr):
                setattr(statement, name, _Calls(self).visit(value))
        return statement

    def _callee(self, value: ast.expr) -> tuple[Inlined, list[ast.expr]] | None:
        """Return the function that an expression calls and the arguments, if the function may be inlined."""
        match value:
            case ast.Call(ast.Name(name), arguments, []):
                function = self.functions.get(name)
                return (function, arguments) if isinstance(function, Inlined) else None
        return None

    @staticmethod
    def _effect(value: ast.expr) -> list[ast.stmt]:
        return [] if is_simple(value) else [ast.Expr(value)]


@define
class _Calls(ast.NodeTransformer):
    """Inlines calls to single-expression functions."""

    inliner: Inliner

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        callee = self.inliner._callee(node)
        if callee is None:
            return node
        before, body = self.inliner._written(*callee)
        match body:
            case [ast.Return(ast.expr() as value)] if not before:
                result: ast.expr = self.visit(value)
                return result
        return node


@define
class _Folding(ast.NodeVisitor):
    """Copies statements with bound names substituted, and without the branches that constants exclude."""

    scope: dict[str, ast.expr]
    objects: set[str]

    def block(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        """Return the folded statements of ``body`` that can be reached."""
        written: list[ast.stmt] = []
        for statement in body:
            result = self.visit(statement)
            for part in result if isinstance(result, list) else [result]:
                written.append(part)
                if _always_ends([part]):
                    return written
        return written

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Return a copy of a node with its parts folded."""
        if not node._fields:
            return node
        copy = type(node)(*[self._part(getattr(node, name, None)) for name in node._fields])
        if isinstance(copy, ast.stmt):
            copy.lineno = 0  # ``ast.unparse`` needs this attribute.
        return copy

    def _part(self, value: Any) -> Any:
        if isinstance(value, ast.AST):
            return self.visit(value)
        if not isinstance(value, list):
            return value
        parts: list[Any] = []
        for item in value:
            result = self._part(item)
            if isinstance(result, list):
                parts += result
            else:
                parts.append(result)
        return parts

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        folded = self.scope.get(node.id)
        if folded is None:
            return node
        if isinstance(node.ctx, ast.Load):
            return folded
        # An unused constant result needs no assignment.
        return ast.Name(folded.id if isinstance(folded, ast.Name) else "_", node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Attribute(ast.Name(owner), method) if f"{owner}.{method}" in self.scope:
                node = ast.Call(name_of(f"{owner}.{method}"), node.args, node.keywords)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        test = _truth(self.visit(node.test))
        if isinstance(test, ast.Constant):
            return self.block(node.body if test.value else node.orelse)
        return ast.If(test, self.block(node.body), self.block(node.orelse), lineno=0)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.visit(node.test)
        if isinstance(test, ast.Constant):
            result: ast.expr = self.visit(node.body if test.value else node.orelse)
            return result
        return ast.IfExp(test, self.visit(node.body), self.visit(node.orelse))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        decides = isinstance(node.op, ast.Or)
        values: list[ast.expr] = []
        for place, value in enumerate(map(self.visit, node.values), start=1):
            if isinstance(value, ast.Constant):
                if bool(value.value) is decides:
                    values.append(value)
                    break
                if place < len(node.values):
                    continue
            values.append(value)
        if len(values) == 1:
            return values[0]
        return ast.BoolOp(node.op, values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        if isinstance(operand, ast.Constant) and isinstance(node.op, ast.Not):
            return ast.Constant(not operand.value)
        return ast.UnaryOp(node.op, operand)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        copy = self.generic_visit(node)
        match copy:
            case ast.Compare(ast.Constant(left), [(ast.Is() | ast.IsNot()) as test], [ast.Constant(right)]):
                return ast.Constant((left is right) is isinstance(test, ast.Is))
            case ast.Compare(ast.Constant(int() as left), [test], [ast.Constant(int() as right)]):
                return ast.Constant(_COMPARED[type(test)](left, right)) if type(test) in _COMPARED else copy
            case ast.Compare(ast.Name(name), [(ast.Is() | ast.IsNot()) as test], [ast.Constant(None)]):
                if name in self.objects:
                    return ast.Constant(isinstance(test, ast.IsNot))
        return copy

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        copy = self.generic_visit(node)
        match copy:
            case ast.BinOp(ast.Constant(int() as left), kind, ast.Constant(int() as right)) if type(kind) in _COMPUTED:
                return ast.Constant(_COMPUTED[type(kind)](left, right))
        return copy

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        copy = self.generic_visit(node)
        match copy:
            case ast.Subscript(ast.Tuple(items), ast.Constant(int() as place), ast.Load()):
                return items[place]
        return copy


def _names_in(binding: Binding) -> Iterator[str]:
    """Yield the names of all objects of the task that a binding uses."""
    if not isinstance(binding, Constant):
        yield binding.name
    if isinstance(binding, Inlined):
        for inside in (*(outer for _, outer in binding.names), *binding.bound, *binding.defaults):
            yield from _names_in(inside)


def _truth(test: ast.expr) -> ast.expr:
    """Return a condition of an ``if`` statement without its redundant parts."""
    match test:
        case ast.BoolOp(kind, [*values, ast.Constant(value)]) if bool(value) is isinstance(kind, ast.And):
            return values[0] if len(values) == 1 else ast.BoolOp(kind, values)
    return test


def _assigned(target: ast.expr, value: ast.expr) -> ast.stmt:
    if isinstance(target, ast.Name):
        target = ast.Name(target.id, ast.Store())
    return ast.Assign([target], value, lineno=0)


def _assignment(target: ast.expr, value: ast.expr) -> list[ast.stmt]:
    """Return the assignment of ``value`` to ``target`` as a list, which is empty if the target was folded away."""
    match target, value:
        case ast.Name("_"), ast.Constant():
            return []
        case ast.Name(one), ast.Name(other) if one == other:
            return []
    return [_assigned(target, value)]


def _returns(statement: ast.AST) -> bool:
    """Return whether a statement is a ``return`` or contains one."""
    parts = (getattr(statement, name, ()) for name in ("body", "orelse", "finalbody", "handlers", "cases"))
    return isinstance(statement, ast.Return) or any(_returns(inner) for part in parts for inner in part)


def _always_ends(body: Sequence[ast.stmt]) -> bool:
    """Return whether a list of statements always ends with a ``return`` or ``raise``."""
    match body[-1] if body else None:
        case ast.Return() | ast.Raise():
            return True
        case ast.If(_, then, orelse):
            return _always_ends(then) and _always_ends(orelse)
    return False
