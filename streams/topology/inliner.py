"""Inlining of function bodies: locals are renamed, constants folded, dead branches removed.

Behaviour is the same without inlining (``tests/topology/test_inliner.py``). A call is kept if a body cannot
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
    """Return the expression that reads a name."""
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
        """Return a new local name of the node."""
        wanted = found = f"{name.lstrip('_')}_{self.number}"
        more = 1
        while found in self._locals:
            more += 1
            found = f"{wanted}_{more}"
        self._locals.add(found)
        return found

    # Inlining one function.

    def _inlined(self, function: Inlined, arguments: Sequence[ast.expr], on_return: OnReturn) -> list[ast.stmt]:
        before, body = self._written(function, arguments)
        return [*before, *self._block(body, on_return)]

    def _written(self, function: Inlined, arguments: Sequence[ast.expr]) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Return the assignments to a function's parameters, and its body, with the names of the program."""
        tree = tree_of(function.code)
        assert tree is not None
        scope = {name: self._expression(binding) for name, binding in function.names}
        given = [*map(self._expression, function.bound), *arguments]
        if len(given) < len(tree.parameters):
            given += [self._expression(value) for value in function.defaults[len(given) - len(tree.parameters) :]]
        before: list[ast.stmt] = []
        for parameter, argument in zip(tree.parameters, given, strict=True):
            is_items = isinstance(argument, ast.Tuple) and all(map(is_simple, argument.elts))
            if parameter not in tree.assigned and (is_simple(argument) or (is_items and parameter in tree.unpacked)):
                scope[parameter] = argument
            else:
                scope[parameter] = name_of(self.local(parameter))
                before.append(_assigned(scope[parameter], argument))
        constants = self._constant_results(function, tree)
        scope |= {name: constants.get(name) or name_of(self.local(name)) for name in tree.locals}
        body = _Folding(scope, self._objects).block([_copied(statement) for statement in tree.body])
        if not _always_ends(body):
            body.append(ast.Return(_NONE))
        return before, body

    def _expression(self, binding: Binding) -> ast.expr:
        if isinstance(binding, Constant):
            return ast.Constant(binding.value)
        if isinstance(binding, Inlined | Forward):
            self.functions[binding.name] = binding
        self._objects.add(binding.name)
        return name_of(binding.name)

    def _constant_results(self, function: Inlined, tree: Tree) -> dict[str, ast.Constant]:
        """Return the locals that are assigned from a function that always returns the same constant."""
        names = dict(function.names)
        found = {}
        for local, called in tree.results:
            binding = names.get(called)
            result = self._constant_result(binding) if isinstance(binding, Inlined) else None
            if result is not None:
                found[local] = result
        return found

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
        """Return the statements without ``return``; each exit of the function continues with ``on_return``."""
        written: list[ast.stmt] = []
        for place, statement in enumerate(body):
            statement = self._nested(statement)
            match statement:
                case ast.Return(value):
                    return [*written, *self._valued(value or _NONE, on_return)]
                case ast.If():
                    self._lead(statement, written)
                    if not _returns(statement):
                        statement.body = self._block(statement.body, on_return)
                        statement.orelse = self._block(statement.orelse, on_return)
                        written.append(statement)
                        continue
                    rest = body[place + 1 :]
                    if _always_ends(statement.body):
                        then, orelse = statement.body, [*statement.orelse, *rest]
                    elif _always_ends(statement.orelse):
                        then, orelse = [*statement.body, *rest], statement.orelse
                    else:
                        raise _StaysCall
                    statement.body, statement.orelse = self._block(then, on_return), self._block(orelse, on_return)
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

    def _compound(self, statement: ast.For | ast.While | ast.With | ast.Try, on_return: OnReturn) -> None:
        statement.body = self._block(statement.body, on_return)
        if not isinstance(statement, ast.With):
            statement.orelse = self._block(statement.orelse, on_return)
        if isinstance(statement, ast.Try):
            statement.finalbody = self._block(statement.finalbody, on_return)
            for handler in statement.handlers:
                handler.body = self._block(handler.body, on_return)

    def _valued(self, value: ast.expr, on_return: OnReturn) -> list[ast.stmt]:
        """Return the statements that compute a value, followed by the statements of ``on_return``."""
        found = self._callee(value)
        if found is None:
            return on_return(value)
        function, arguments = found
        try:
            return self._inlined(function, arguments, on_return)
        except _StaysCall:
            return on_return(value)

    def _lead(self, statement: ast.If, written: list[ast.stmt]) -> None:
        """Inline the call that a condition evaluates first."""
        parent: Any = statement
        place = "test"
        test: ast.expr = statement.test
        while not isinstance(test, ast.Call):
            match test:
                case ast.UnaryOp(ast.Not(), operand):
                    parent, place, test = test, "operand", operand
                case ast.Compare(left):
                    parent, place, test = test, "left", left
                case _:
                    return
        if self._callee(test) is None:
            return
        result = name_of(self.local("result"))
        written += self._valued(test, partial(_assignment, result))
        setattr(parent, place, result)

    def _nested(self, statement: ast.stmt) -> ast.stmt:
        """Inline calls of single-expression functions inside a statement's expressions."""
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
    """Inlines calls of single-expression functions."""

    inliner: Inliner

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        found = self.inliner._callee(node)
        if found is None:
            return node
        before, body = self.inliner._written(*found)
        match body:
            case [ast.Return(ast.expr() as value)] if not before:
                result: ast.expr = self.visit(value)
                return result
        return node


@define
class _Folding(ast.NodeTransformer):
    """Substitutes bound names, and removes branches that constants decide."""

    scope: dict[str, ast.expr]
    objects: set[str]

    def block(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        """Return the reachable statements."""
        written: list[ast.stmt] = []
        for statement in body:
            result = self.visit(statement)
            for part in result if isinstance(result, list) else [result]:
                written.append(part)
                if _always_ends([part]):
                    return written
        return written

    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = self.scope.get(node.id)
        if known is None:
            return node
        if isinstance(node.ctx, ast.Load):
            return known
        # An unused constant result needs no assignment.
        return ast.Name(known.id if isinstance(known, ast.Name) else "_", node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node.func:
            case ast.Attribute(ast.Name(owner), method) if f"{owner}.{method}" in self.scope:
                node.func = name_of(f"{owner}.{method}")
        self.generic_visit(node)
        return node

    def visit_If(self, node: ast.If) -> Any:
        test = _truth(self.visit(node.test))
        if isinstance(test, ast.Constant):
            return self.block(node.body if test.value else node.orelse)
        node.test, node.body, node.orelse = test, self.block(node.body), self.block(node.orelse)
        return node

    def visit_For(self, node: ast.For) -> ast.stmt:
        node.target, node.iter = self.visit(node.target), self.visit(node.iter)
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return node

    def visit_While(self, node: ast.While) -> ast.stmt:
        node.test = self.visit(node.test)
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.visit(node.test)
        if isinstance(test, ast.Constant):
            result: ast.expr = self.visit(node.body if test.value else node.orelse)
            return result
        node.test, node.body, node.orelse = test, self.visit(node.body), self.visit(node.orelse)
        return node

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
        node.values = values
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        if isinstance(operand, ast.Constant) and isinstance(node.op, ast.Not):
            return ast.Constant(not operand.value)
        node.operand = operand
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Compare(ast.Constant(left), [(ast.Is() | ast.IsNot()) as test], [ast.Constant(right)]):
                return ast.Constant((left is right) is isinstance(test, ast.Is))
            case ast.Compare(ast.Constant(int() as left), [test], [ast.Constant(int() as right)]):
                return ast.Constant(_COMPARED[type(test)](left, right)) if type(test) in _COMPARED else node
            case ast.Compare(ast.Name(name), [(ast.Is() | ast.IsNot()) as test], [ast.Constant(None)]):
                if name in self.objects:
                    return ast.Constant(isinstance(test, ast.IsNot))
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.BinOp(ast.Constant(int() as left), kind, ast.Constant(int() as right)) if type(kind) in _COMPUTED:
                return ast.Constant(_COMPUTED[type(kind)](left, right))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Subscript(ast.Tuple(items), ast.Constant(int() as place), ast.Load()):
                return items[place]
        return node


def _names_in(binding: Binding) -> Iterator[str]:
    """Yield the names of all objects that a function uses."""
    if not isinstance(binding, Constant):
        yield binding.name
    if isinstance(binding, Inlined):
        for inside in (*(found for _, found in binding.names), *binding.bound, *binding.defaults):
            yield from _names_in(inside)


def _copied(value: Any) -> Any:
    """Return a copy of a syntax tree that may be modified."""
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if not isinstance(value, ast.AST) or not value._fields:
        return value
    copy = type(value)(*[_copied(getattr(value, name, None)) for name in value._fields])
    if isinstance(copy, ast.stmt):
        copy.lineno = 0  # ``ast.unparse`` needs this attribute.
    return copy


def _truth(test: ast.expr) -> ast.expr:
    """Return a condition without its redundant parts."""
    match test:
        case ast.BoolOp(kind, [*values, ast.Constant(value)]) if bool(value) is isinstance(kind, ast.And):
            return values[0] if len(values) == 1 else ast.BoolOp(kind, values)
    return test


def _assigned(target: ast.expr, value: ast.expr) -> ast.stmt:
    if isinstance(target, ast.Name):
        target = ast.Name(target.id, ast.Store())
    return ast.Assign([target], value, lineno=0)


def _assignment(target: ast.expr, value: ast.expr) -> list[ast.stmt]:
    """Return the assignment, or nothing if the target was folded away."""
    match target, value:
        case ast.Name("_"), ast.Constant():
            return []
        case ast.Name(one), ast.Name(other) if one == other:
            return []
    return [_assigned(target, value)]


def _returns(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Return) for node in ast.walk(statement))


def _always_ends(body: Sequence[ast.stmt]) -> bool:
    """Return whether a block always returns or raises."""
    match body[-1] if body else None:
        case ast.Return() | ast.Raise():
            return True
        case ast.If(_, then, orelse):
            return _always_ends(then) and _always_ends(orelse)
    return False
