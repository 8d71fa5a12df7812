"""Rooms that one enters who follows a value through its calls: modules in the order in which they are entered.

    python -m tests.rooms streams/replay/run/drive.py run_work work

Followed are the functions to which the value is handed, or a part of it (an attribute, an item of a loop), and the
methods that are called on an object that holds it.  A climb is a call into a package that is above the own one.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

#: Packages of ``replay`` from the lowest to the highest, as import-linter has them.
FLOORS = ("storage", "calls", "history", "handover", "run", "spark", "api")
#: A path, as pathlib's are: no room of its own.
PATH = "streams/replay/storage/places.py"
#: Methods of other objects, whose names say nothing about the class.
COMMON = {name for kind in (Path, str, dict, list, set) for name in dir(kind)}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _target(module: str, modules: dict[str, ast.Module], name: str) -> tuple[str, ast.stmt] | None:
    """The definition of a name of a module, in this module or where it is imported from."""
    for node in modules[module].body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node.name == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    path = node.module.replace(".", "/") + ".py"
                    return _target(path, modules, alias.name) if path in modules else None
    return None


def _is_part(node: ast.expr, held: set[str]) -> bool:
    """Whether an expression is the value or a part of it: ``work``, ``work.tasks[0]``, ``self.work``."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        if ast.unparse(node) in held:
            return True
        node = node.value
    return isinstance(node, ast.Name) and node.id in held


def _held(function: ast.AST, held: set[str]) -> set[str]:
    """The names in a function for the value and its parts."""
    held = set(held)
    for _ in range(3):
        for node in ast.walk(function):
            pairs: list[tuple[ast.expr, ast.expr]] = []
            if isinstance(node, ast.For | ast.comprehension):
                pairs = [(node.target, node.iter)]
            elif isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            for target, value in pairs:
                if _is_part(value, held):
                    held |= {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}
    return held


def _parameters(node: ast.AST, call: ast.Call, held: set[str], *, is_bound: bool) -> set[str]:
    """The parameters of a function that get the value or a part of it."""
    assert isinstance(node, FUNCTIONS)
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)][is_bound:]
    parts = {name for name, value in zip(names, call.args, strict=False) if _is_part(value, held)}
    return parts | {word.arg for word in call.keywords if word.arg and _is_part(word.value, held)}


def _attributes(node: ast.ClassDef, call: ast.Call, held: set[str]) -> set[str]:
    """The attributes of a new object that hold the value or a part of it."""
    fields = [
        child.target.id
        for child in node.body
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)
    ]
    names = {name for name, value in zip(fields, call.args, strict=False) if _is_part(value, held)}
    names |= {word.arg for word in call.keywords if word.arg and _is_part(word.value, held)}
    return {f"self.{prefix}{name.lstrip('_')}" for name in names for prefix in ("", "_")}


def _methods(modules: dict[str, ast.Module], name: str) -> list[tuple[str, ast.stmt]]:
    return [
        (path, method)
        for path, tree in modules.items()
        for owner in tree.body
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, FUNCTIONS) and method.name == name
    ]


def _steps(
    module: str, node: ast.AST, held: set[str], modules: dict[str, ast.Module]
) -> Iterator[tuple[str, ast.AST, set[str]]]:
    """The functions and classes to which a function hands the value, each with its names for it."""
    held = _held(node, held)
    for call in (item for item in ast.walk(node) if isinstance(item, ast.Call)):
        function = call.func
        owner = function.value if isinstance(function, ast.Attribute) else function
        if isinstance(function, ast.Attribute) and _is_part(owner, held):
            # The type of the part is not known here: only a name that is unique says which method it is.
            methods = [] if function.attr in COMMON else _methods(modules, function.attr)
            if len(methods) == 1:
                yield *methods[0], {"self"}
            continue
        if not isinstance(owner, ast.Name) or (target := _target(module, modules, owner.id)) is None:
            continue
        place, definition = target
        if not any(_is_part(value, held) for value in (*call.args, *(word.value for word in call.keywords))):
            continue
        if isinstance(definition, FUNCTIONS) and owner is function:
            yield place, definition, _parameters(definition, call, held, is_bound=False)
        elif isinstance(definition, ast.ClassDef) and owner is function:
            yield place, definition, _attributes(definition, call, held)
        elif isinstance(definition, ast.ClassDef):
            for method in definition.body:
                if isinstance(method, FUNCTIONS) and method.name == getattr(function, "attr", ""):
                    yield place, method, _parameters(method, call, held, is_bound=True)


def walk(start: str, name: str, value: str, root: Path) -> tuple[list[str], int, int]:
    """Return the rooms in the order of their first visit, the number of climbs, and of all functions visited."""
    files = (file.relative_to(root).as_posix() for file in (root / "streams/replay").rglob("*.py"))
    modules = {path: ast.parse((root / path).read_text()) for path in files}
    first = _target(start, modules, name)
    assert first is not None
    waiting = [(*first, {value})]
    seen: set[tuple[str, str]] = set()
    rooms: list[str] = []
    climbs = 0
    while waiting:
        module, node, held = waiting.pop(0)
        if not held or (module, ast.unparse(node)[:200]) in seen:
            continue
        seen.add((module, ast.unparse(node)[:200]))
        if module not in rooms:
            rooms.append(module)
        for place, target, names in _steps(module, node, held, modules):
            if place == PATH:
                continue
            floors = [FLOORS.index(path.split("/")[2].removesuffix(".py")) for path in (module, place)]
            climbs += floors[1] > floors[0]
            waiting.append((place, target, names))
    return rooms, climbs, len(seen)


if __name__ == "__main__":
    entered, climbed, count = walk(*sys.argv[1:4], Path())
    print(f"{len(entered)} rooms, {climbed} climbs, {count} functions and classes:", *entered, sep="\n  ")
