"""Removes texts that look like secrets from the sources of a script, since a capsule must not contain them."""

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

_NAME = re.compile(
    r"password|passwd|passphrase|secret|token|credential|api_?key|access_?key|private_?key", re.IGNORECASE
)
#: A user name with a password in an address.
_LOGIN = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
_LEFT_OUT = "left out"


def without_secrets(source: str) -> tuple[str, list[tuple[int, str]]]:
    """Remove texts that look like secrets from Python source; return the source, and the line and name of each text.

    Such a text is a literal that is assigned to a name like ``password`` or ``API_TOKEN`` (a variable, an argument, a
    key, or the default of an environment variable), or an address with a password.  Line numbers do not change.

    >>> without_secrets("API_TOKEN = 'abc'")
    ("API_TOKEN = 'left out'", [(1, 'API_TOKEN')])
    """
    lines = source.encode().splitlines(keepends=True)
    literals = {(it.lineno, it.col_offset): (it, name) for it, name in _literals(ast.parse(source)) if it.value}
    for place in sorted(literals, reverse=True):
        literal, _ = literals[place]
        first = literal.lineno - 1
        last = (literal.end_lineno or literal.lineno) - 1
        text = repr(_LEFT_OUT.encode() if isinstance(literal.value, bytes) else _LEFT_OUT)
        if last > first:
            text = f"({text}" + "\n" * (last - first) + ")"
        tail = lines[last][literal.end_col_offset :]
        lines[first : last + 1] = (lines[first][: literal.col_offset] + text.encode() + tail).splitlines(keepends=True)
    return b"".join(lines).decode(), [(line, literals[line, column][1]) for line, column in sorted(literals)]


def _literals(tree: ast.AST) -> Iterator[tuple[ast.Constant, str]]:
    """Yield the text literals that look like secrets, each with the name that it is assigned to."""
    for node in ast.walk(tree):
        for name, value in _named(node):
            if name is not None and _NAME.search(name) and _is_text(value):
                yield value, name
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _LOGIN.search(node.value):
            yield node, "an address with a password"


def _is_text(value: ast.AST | None) -> TypeGuard[ast.Constant]:
    return isinstance(value, ast.Constant) and isinstance(value.value, str | bytes)


def _named(node: ast.AST) -> Iterator[tuple[str | None, ast.AST | None]]:
    """Yield (name, value) for each value that a syntax node assigns to a name."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((_name_of(target), value) for target in targets)
        case ast.AnnAssign(target=target, value=value):
            yield _name_of(target), value
        case ast.keyword(arg=name, value=value):
            yield name, value
        case ast.Dict(keys=keys, values=values):
            yield from ((_name_of(key), value) for key, value in zip(keys, values, strict=True))
        case ast.Call(args=[name, value]):
            yield _name_of(name) if isinstance(name, ast.Constant) else None, value
        case ast.arguments(args=names, defaults=values) if values:
            yield from ((name.arg, value) for name, value in zip(names[-len(values) :], values, strict=True))


def _name_of(node: ast.AST | None) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return None
