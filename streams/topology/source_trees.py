"""Syntax trees of functions that may be inlined.

A tree is created once per code object. A function has no tree if its source is unavailable or its body cannot be
inlined: the body defines functions, has comprehensions or yields, or a sibling function rebinds one of the outer
names.
"""

import ast
import linecache
from collections.abc import Iterator
from functools import cache
from types import CodeType

from attrs import frozen

from streams.core.collection import collection_paused

_UNMOVABLE = (
    ast.AsyncFor,
    ast.AsyncWith,
    ast.Await,
    ast.ClassDef,
    ast.DictComp,
    ast.FunctionDef,
    ast.GeneratorExp,
    ast.Global,
    ast.Import,
    ast.ImportFrom,
    ast.Lambda,
    ast.ListComp,
    ast.Match,
    ast.Nonlocal,
    ast.SetComp,
    ast.Starred,
    ast.Yield,
    ast.YieldFrom,
)


@frozen(eq=False)
class Tree:
    """The syntax tree of a function's body, and the names in the body by role."""

    body: list[ast.stmt]
    parameters: tuple[str, ...]
    #: Parameters to which the body assigns.
    assigned: frozenset[str]
    #: Parameters that are tuples and of which the body only uses the items.
    unpacked: frozenset[str]
    #: Other names to which the body assigns, in alphabetical order.
    locals: tuple[str, ...]
    #: Outer names of the function: free variables and globals.
    outer: tuple[str, ...]
    #: Methods that the function calls on outer names: (name, method).
    methods: tuple[tuple[str, str], ...]
    #: Local names that are assigned once, from a call of an outer name: (local, name).
    results: tuple[tuple[str, str], ...]


@cache
def tree_of(code: CodeType) -> Tree | None:
    """Return the tree of a function, or None if the function cannot be inlined."""
    parsed = _functions(code.co_filename).get((code.co_name, code.co_firstlineno))
    if parsed is None:
        return None
    function, rebound = parsed
    arguments = function.args
    is_plain = not (arguments.vararg or arguments.kwonlyargs or arguments.kwarg)
    body = [_Bare().visit(statement) for statement in function.body[_is_documented(function) :]]
    inside = [node for statement in body for node in ast.walk(statement)]
    if not is_plain or rebound & set(code.co_freevars) or any(isinstance(node, _UNMOVABLE) for node in inside):
        return None
    parameters = tuple(argument.arg for argument in (*arguments.posonlyargs, *arguments.args))
    names = [node for node in inside if isinstance(node, ast.Name)]
    stored = [name.id for name in names if not isinstance(name.ctx, ast.Load)]
    outer = {name.id for name in names} - set(parameters) - set(stored)
    return Tree(
        body,
        parameters,
        frozenset(stored) & frozenset(parameters),
        frozenset(name for name in parameters if name not in stored and _is_unpacked(name, names, inside)),
        tuple(sorted(set(stored) - set(parameters))),
        tuple(sorted(outer)),
        tuple(sorted(_methods(inside, outer))),
        tuple((local, called) for local, called in _results(inside) if called in outer and stored.count(local) == 1),
    )


@cache
def _functions(filename: str) -> dict[tuple[str, int], tuple[ast.FunctionDef, frozenset[str]]]:
    """Return the functions in a file by name and first line, each with the names that its siblings rebind."""
    source = "".join(linecache.getlines(filename))
    if not source:
        return {}
    functions: dict[tuple[str, int], tuple[ast.FunctionDef, frozenset[str]]] = {}
    # Python 3.11 fails with "AST constructor recursion depth mismatch" if a finalizer lets another thread parse in
    # between.
    with collection_paused():
        tree = ast.parse(source)
    for outermost in _outermost(tree):
        inside = list(ast.walk(outermost))
        rebound = frozenset(name for node in inside if isinstance(node, ast.Nonlocal) for name in node.names)
        for node in inside:
            if isinstance(node, ast.FunctionDef):
                first = min((node.lineno, *(decorator.lineno for decorator in node.decorator_list)))
                functions[node.name, first] = (node, rebound)
    return functions


def _outermost(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Yield the functions that are not nested in another function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node
        else:
            yield from _outermost(node)


class _Bare(ast.NodeTransformer):
    """Removes the annotations from a syntax tree."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            return ast.Pass()
        return ast.Assign([node.target], node.value, lineno=node.lineno)


def _is_documented(function: ast.FunctionDef) -> int:
    return 1 if ast.get_docstring(function, clean=False) is not None else 0


def _is_unpacked(name: str, names: list[ast.Name], inside: list[ast.AST]) -> bool:
    uses = sum(1 for other in names if other.id == name)
    as_items = 0
    for node in inside:
        match node:
            case ast.Subscript(ast.Name(id), ast.Constant(int()), ast.Load()) if id == name:
                as_items += 1
            case ast.Assign([ast.Tuple()], ast.Name(id)) if id == name:
                as_items += 1
    return uses == as_items


def _methods(inside: list[ast.AST], outer: set[str]) -> set[tuple[str, str]]:
    methods = set()
    for node in inside:
        match node:
            case ast.Call(ast.Attribute(ast.Name(owner), method)) if owner in outer:
                methods.add((owner, method))
    return methods


def _results(inside: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in inside:
        match node:
            case ast.Assign([ast.Name(local)], ast.Call(ast.Name(called))):
                yield local, called
