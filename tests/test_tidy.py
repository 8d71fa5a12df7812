"""The limits of the house, as a test: each rule is a function from parsed sources to what breaks it.

Complexity is limited by ruff (``make lint``, C901); the rest is here.  Each rule has a test that
shows that it finds what it is for.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from streams.broker.logs.config import BrokerConfig, TopicConfig
from streams.core.collection import collection_paused
from streams.core.settings.client_settings import (
    ConnectionSettings,
    ConsumerSettings,
    GroupClientSettings,
    ParallelSettings,
    ProducerSettings,
)
from streams.core.settings.config import SETTINGS
from streams.core.settings.setting import table_of
from streams.group import CoordinatorConfig
from tests.rooms import walk

ROOT = Path(__file__).parents[1]
MODULE_LINES = 1_000
FUNCTION_LINES = 70
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FOLDER_FILES = 30
CLASS_METHODS = 40
#: Classes that had more methods when the rule was made, with their number, which may only fall.
LARGE_CLASSES = {
    "Consumer": 57,
    "ApplicationPlan": 57,
    "Task": 51,
    "Coordinator": 47,
    "StreamThread": 45,
    "Store": 43,
}
#: Assignments of the form ``a, b = x, y``: of local names, and those with attributes or items.
PACKED_LOCALS = 150
PACKED_ATTRIBUTES = 10
#: Names that say how one has got a value, and not what it is; they are bound as often as this, which may only fall.
EMPTY_NAMES = {"found", "given", "known", "wanted", "made", "kept"}
EMPTY_NAMES_BOUND = 16
#: Docstrings that only repeat the name; their number may only fall.
REPEATING_DOCSTRINGS = 39
#: Words that say nothing more than the name of a function, shortened as by ``_stems``.
EMPTY_STEMS = set(
    re.findall(
        r"\w+",
        "a add all an are as at by each for from given ha if in is it its new of on one or "
        "return set that th the this those to what wheth which with yield",
    )
)
#: Modules that import each other: the fluent classes return each other, the others are to be taken apart.
CIRCLES = {
    "streams.dsl": {"branched", "cogrouped", "grouped", "grouped_table", "stream", "table", "windowed"},
}
#: ``streams/state/__init__.py`` is a door that all others take; packages within a package may be entered by module.
DEPTH_OF_DOORS = 2
#: A door lists its names in ``__all__``, or imports each as itself.
DOOR = re.compile(r"^__all__ =|^from .* import (\w+) as \1$", re.MULTILINE)
#: Errors are imported without what raises them; the door of ``group`` is for users, whose names it has.
WITHOUT_DOOR = re.compile(r": streams\.(replay\.(errors|times)|group\.\w+\.\w+), ")
PARAMETERS = 8
MUTABLE_CALLS = {"dict", "list", "set", "defaultdict", "deque", "Counter", "OrderedDict", "WeakKeyDictionary"}
CHANGING = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"),
    *("setdefault", "sort", "update"),
}


class Source(NamedTuple):
    """A module of the project."""

    path: str
    text: str
    tree: ast.Module
    nodes: Sequence[ast.AST]
    """All nodes of the tree, for the rules walk through them again and again."""


def source(path: str, text: str) -> Source:
    # As in source_trees: finalizers of earlier tests may parse.
    with collection_paused():
        tree = ast.parse(text)
        return Source(path, text, tree, list(ast.walk(tree)))


@cache
def sources() -> tuple[Source, ...]:
    """All modules of the package; parsed for the first test that needs them, not wherever tests are collected."""
    files = sorted((ROOT / "streams").rglob("*.py"))
    return tuple(source(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")) for file in files)


def long_modules(modules: Iterable[Source]) -> Iterator[str]:
    for module in modules:
        if (count := module.text.count("\n")) > MODULE_LINES:
            yield f"{module.path}: {count} lines"


def full_folders(modules: Iterable[Source]) -> Iterator[str]:
    counts = Counter(module.path.rpartition("/")[0] for module in modules)
    yield from (f"{folder}: {count} modules" for folder, count in sorted(counts.items()) if count > FOLDER_FILES)


def equal_file_names(modules: Iterable[Source]) -> Iterator[str]:
    """Modules of one package with the same file name: whoever looks for one of them opens the other one."""
    paths = sorted(module.path for module in modules)
    names = Counter((*path.split("/")[:2], path.rpartition("/")[2]) for path in paths)
    for path in paths:
        file = path.rpartition("/")[2]
        if file != "__init__.py" and path.count("/") > 1 and names[*path.split("/")[:2], file] > 1:
            yield path


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """A function that is documented well is not longer for it."""
    if ast.get_docstring(node) is None:
        return 0
    return (node.body[0].end_lineno or 0) - node.body[0].lineno + 1


def long_functions(modules: Iterable[Source]) -> Iterator[str]:
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)
                if count > FUNCTION_LINES:
                    yield f"{module.path}:{node.lineno}: {node.name} has {count} lines"


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def _required_fields(class_: ast.ClassDef) -> int:
    """Return how many values a class of attrs has to be given."""
    fields = [node for node in class_.body if isinstance(node, ast.AnnAssign)]
    return sum(field.value is None and "ClassVar" not in ast.unparse(field.annotation) for field in fields)


def wide_functions(modules: Iterable[Source]) -> Iterator[str]:
    """Functions and constructors with too many parameters; overloads repeat a function, frozen classes are values."""
    for module in modules:
        for node in module.nodes:
            decorators = " ".join(ast.unparse(found) for found in getattr(node, "decorator_list", ()))
            count = 0
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "overload" not in decorators:
                count = _parameters(node)
            elif isinstance(node, ast.ClassDef) and "define" in decorators:
                count = _required_fields(node)
            if count > PARAMETERS:
                yield f"{module.path}:{node.lineno}: {node.name} has {count} parameters"


def large_classes(modules: Iterable[Source]) -> Iterator[str]:
    """Classes with too many methods; overloads, and the setter of a property, are one method with what they are of."""
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                methods = {
                    child.name for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                }
                if len(methods) > LARGE_CLASSES.get(node.name, CLASS_METHODS):
                    yield f"{module.path}:{node.lineno}: {node.name} has {len(methods)} methods"


def packed_assignments(modules: Iterable[Source], *, of_attributes: bool) -> Iterator[str]:
    """Assignments of several values by a tuple on both sides; not what is unpacked from one value."""
    for module in modules:
        for node in module.nodes:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
                continue
            for target in node.targets:
                if not isinstance(target, ast.Tuple) or len(target.elts) != len(node.value.elts):
                    continue
                if any(isinstance(item, ast.Starred) for item in (*target.elts, *node.value.elts)):
                    continue
                if of_attributes == any(isinstance(item, ast.Attribute | ast.Subscript) for item in target.elts):
                    yield f"{module.path}:{node.lineno}: {ast.unparse(node)}"


def empty_names(modules: Iterable[Source]) -> Iterator[str]:
    """Locals and parameters whose names are participles."""
    for module in modules:
        for node in module.nodes:
            is_bound = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in EMPTY_NAMES
            if is_bound or (isinstance(node, ast.arg) and node.arg in EMPTY_NAMES):
                yield f"{module.path}:{node.lineno}: {ast.unparse(node)}"


def repeating_docstrings(modules: Iterable[Source]) -> Iterator[str]:
    """Docstrings of one line whose words are all in the name, the parameters or the types."""
    for module in modules:
        for node in module.nodes:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            text = ast.get_docstring(node) or ""
            returned = ast.unparse(node.returns) if node.returns else ""
            signature = f"{node.name} {ast.unparse(node.args)} {returned}"
            if text and "\n" not in text and not _stems(text) - _stems(signature):
                yield f"{module.path}:{node.lineno}: {node.name}: {text}"


def _bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def undescribed_methods(modules: Iterable[Source]) -> Iterator[str]:
    """Public methods without a docstring that no protocol, and no base of their class, describes either."""
    classes = [(module, node) for module in modules for node in module.tree.body if isinstance(node, ast.ClassDef)]
    described: dict[str, set[str]] = {"Protocol": set()}
    bases = {node.name: _bases(node) for _, node in classes}
    for _, node in classes:
        own = {part.name for part in node.body if isinstance(part, FUNCTIONS) and ast.get_docstring(part)}
        for name in (node.name, *(name for name in bases[node.name] if name == "Protocol")):
            described.setdefault(name, set()).update(own)
    for module, node in classes:
        lines = {node.name, "Protocol"}
        while more := {base for name in lines for base in bases.get(name, ())} - lines:
            lines |= more
        names = {name for line in lines for name in described.get(line, ())}
        for part in node.body:
            is_public = isinstance(part, FUNCTIONS) and not part.name.startswith("_") and node.name[0] != "_"
            if is_public and part.name not in names and "overload" not in map(ast.unparse, part.decorator_list):
                yield f"{module.path}:{part.lineno}: {node.name}.{part.name}"


def _stems(text: str) -> set[str]:
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text)
    return {re.sub("(ing|ed|es|e|s)$", "", word.lower()) for word in words} - EMPTY_STEMS


def _is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in MUTABLE_CALLS
    return isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


def _changed_names(modules: Iterable[Source]) -> set[str]:
    """Names whose objects are changed somewhere: an item set or deleted, or a method that changes them called."""
    changed = set()
    for module in modules:
        for node in module.nodes:
            held: ast.expr | None = None
            if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                held = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
                held = node.func.value
            elif isinstance(node, ast.AugAssign):
                held = node.target
            if isinstance(held, ast.Name):
                changed.add(held.id)
            elif isinstance(held, ast.Attribute):
                changed.add(held.attr)
            elif isinstance(node, ast.Global):
                changed.update(node.names)
    return changed


def mutable_globals(modules: Sequence[Source]) -> Iterator[str]:
    """State at the top of a module: a table that is changed after the import, or could be meant for it."""
    changed = _changed_names(modules)
    for module in modules:
        for node in module.tree.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or not _is_mutable(node.value):
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                name = ast.unparse(target)
                if name in changed or not (name.isupper() or name == "__all__"):
                    yield f"{module.path}:{node.lineno}: {name}"


def _readers() -> str:
    """Everything that may name a definition of the package: itself, its documentation and its examples."""
    files = [
        *(file for kind in ("*.py", "*.pyx", "*.pyi") for file in (ROOT / "streams").rglob(kind)),
        *(ROOT / "topology_examples").glob("*.py"),
        *(file for kind in ("*.md", "*.py") for file in (ROOT / "docs").rglob(kind)),
        ROOT / "README.md",
    ]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def _is_called_by_others(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Hooks of a framework: methods of asyncio's protocols and ast's visitors, defaults and validators of attrs."""
    parent = parents.get(node)
    if isinstance(parent, ast.ClassDef):
        bases = [ast.unparse(base) for base in parent.bases]
        if any(base.startswith(("asyncio.", "ast.")) for base in bases) or getattr(node, "name", "").startswith(
            "visit_"
        ):
            return True
    return any(
        isinstance(decorator, ast.Attribute) and decorator.attr in ("default", "validator")
        for decorator in getattr(node, "decorator_list", ())
    )


def unread_definitions(modules: Iterable[Source], readers: str) -> Iterator[str]:
    """A function, class or method whose name stands nowhere but in its definition."""
    words = Counter(re.findall(r"\w+", readers))
    for module in modules:
        parents = {child: node for node in module.nodes for child in ast.iter_child_nodes(node)}
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                is_special = node.name.startswith("__") and node.name.endswith("__")
                if not is_special and words[node.name] <= 1 and not _is_called_by_others(node, parents):
                    yield f"{module.path}:{node.lineno}: nothing reads {node.name}"


def duplicate_classes(modules: Iterable[Source]) -> Iterator[str]:
    """Public classes of different modules have different names."""
    found: dict[str, list[str]] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(f"{module.path}:{node.lineno}")
    for name, places in sorted(found.items()):
        if len(places) > 1:
            yield f"{name}: {', '.join(places)}"


def private_accesses(modules: Iterable[Source]) -> Iterator[str]:
    """Objects read no private attributes of other objects: all that is not ``self._x`` or ``cls._x``."""
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr):
                holder = ast.unparse(node.value)
                if holder not in ("self", "cls"):
                    yield f"{module.path}:{node.lineno}: {holder}.{node.attr}"


def _imports(modules: Iterable[Source]) -> dict[str, set[str]]:
    """What each module imports, by name; imports within functions and under ``TYPE_CHECKING`` count as well."""
    trees = {module.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): module for module in modules}
    found: dict[str, set[str]] = {}
    for name, module in trees.items():
        named: set[str] = set()
        for node in module.nodes:
            if isinstance(node, ast.Import):
                named.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                named.update(inner & trees.keys() or {node.module})
        found[name] = (named & trees.keys()) - {name}
    return found


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found


def import_circles(modules: Iterable[Source], allowed: Mapping[str, set[str]]) -> Iterator[str]:
    """Modules that import each other, directly or through others; not those of a package that are ``allowed`` to."""
    graph = _imports(modules)
    reachable = {name: _reachable(graph, name) for name in graph}
    circles = {
        tuple(sorted(other for other in names if name in reachable[other]))
        for name, names in reachable.items()
        if name in names
    }
    permitted = [{f"{package}.{name}" for name in names} for package, names in allowed.items()]
    for circle in sorted(circles):
        if not any(names.issuperset(circle) for names in permitted):
            yield f"{len(circle)} modules: {', '.join(circle)}"


def inner_imports(modules: Iterable[Source]) -> Iterator[str]:
    """A package with a door is imported from by that door alone, but within itself."""
    modules = list(modules)
    packages = [module for module in modules if module.path.endswith("/__init__.py")]
    names = {module.path.removesuffix("/__init__.py").replace("/", "."): module for module in packages}
    doors = {name for name, module in names.items() if DOOR.search(module.text) and name.count(".") < DEPTH_OF_DOORS}
    for module in modules:
        name = module.path.removesuffix(".py").replace("/", ".")
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and node.module and node.module not in names:
                package = node.module.rpartition(".")[0]
                if package in doors and not f"{name}.".startswith(f"{package}."):
                    yield f"{module.path}:{node.lineno}: {node.module}, not {package}"


#: Settings are read as attributes of these: ``config.poll_ms``, ``self._settings.linger_ms``.
SETTINGS_HOLDERS = re.compile(r"^_?(config|settings|client|consumer|producer|connection|security)$")
SETTINGS_CLASSES = ("streams/core/settings/config.py", "streams/core/settings/client_settings.py")


def unread_settings(modules: Iterable[Source], names: Iterable[str]) -> Iterator[str]:
    """A setting that no module reads from its settings; methods of the classes that declare them count as readers."""
    read = set()
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                holder = getattr(node.value, "id", None) or getattr(node.value, "attr", "")
                if SETTINGS_HOLDERS.match(holder) or (holder == "self" and module.path in SETTINGS_CLASSES):
                    read.add(node.attr)
    yield from (f"nothing reads the setting {name}" for name in names if name not in read)


#: Classes that travel between processes keep their identity in each of them.
STATE_OF_A_PROCESS = ("streams/replay/calls/structs.py:",)


CLASSES = [source("a.py", "class Batch: ..."), source("b.py", "class Batch: ...\nclass _Batch: ...")]
CIRCLE = [
    source("a.py", "import b"),
    source("b.py", "def f():\n    from p import c"),
    source("p/c.py", "if TYPE_CHECKING:\n    from a import A"),
    source("p/__init__.py", ""),
    source("d.py", "import e, a"),
    source("e.py", "import d"),
]
PACKED = [source("a.py", "a, b = 1, 2\na.b, c = 1, 2\na, b = c\na, *b = 1, 2\na = b = 1, 2")]
BROKEN: dict[str, tuple[Callable[[], Iterator[str]], list[str]]] = {
    "folder": (
        lambda: full_folders([source(f"a/b/m{n}.py", "") for n in range(31)]),
        ["a/b: 31 modules"],
    ),
    "file": (
        lambda: equal_file_names([source(f"a/{path}.py", "") for path in ("b/x", "b/c/x", "b/c/__init__", "d/x", "x")]),
        ["a/b/c/x.py", "a/b/x.py"],
    ),
    "module": (lambda: long_modules([source("a.py", "x = 1\n" * 1_001)]), ["a.py: 1001 lines"]),
    "function": (
        lambda: long_functions([source("a.py", "def f():\n" + "    x = 1\n" * 70)]),
        ["a.py:1: f has 71 lines"],
    ),
    "parameters": (
        lambda: wide_functions([source("a.py", "def f(self, a, b, c, d, e, f, g, h, *, i): ...")]),
        ["a.py:1: f has 9 parameters"],
    ),
    "values": (
        lambda: wide_functions([source("a.py", "@define\nclass A:\n" + "".join(f"    x{n}: int\n" for n in range(9)))]),
        ["a.py:2: A has 9 parameters"],
    ),
    "methods": (
        lambda: large_classes(
            [source("a.py", "class A:\n" + "".join(f"    def x{n}(self): ...\n" for n in range(41)))]
        ),
        ["a.py:1: A has 41 methods"],
    ),
    "locals": (lambda: packed_assignments(PACKED, of_attributes=False), ["a.py:1: a, b = (1, 2)"]),
    "attributes": (lambda: packed_assignments(PACKED, of_attributes=True), ["a.py:2: a.b, c = (1, 2)"]),
    "names": (
        lambda: empty_names([source("a.py", "def f(given, *, a):\n    found = given.found = 1\n    return found")]),
        ["a.py:1: given", "a.py:2: found"],
    ),
    "docstrings": (
        lambda: repeating_docstrings([source("a.py", "def a_key(): 'Return the keys.'\ndef b(): 'In bytes.'")]),
        ["a.py:1: a_key: Return the keys."],
    ),
    "methods without words": (
        lambda: undescribed_methods(
            [
                source(
                    "a.py",
                    "class A(Protocol):\n def a(self): 'As it is.'\nclass B:\n def a(self): ...\n def b(self): ...\n"
                    "class C(B):\n def b(self): 'Of C.'\nclass D(C):\n def b(self): ...",
                )
            ]
        ),
        ["a.py:5: B.b"],
    ),
    "global": (
        lambda: mutable_globals([source("a.py", "A = {}\nB = {}\nc = []\nD = set()\nB[1] = 2\ndef f(): D.add(1)")]),
        ["a.py:2: B", "a.py:3: c", "a.py:4: D"],
    ),
    "unread": (
        lambda: unread_definitions([source("a.py", "def f(): ...\ndef g(): f()")], "def f(): ...\ndef g(): f()"),
        ["a.py:2: nothing reads g"],
    ),
    "setting": (
        lambda: unread_settings([source("a.py", "config.a = 1\nx.b\nself._settings.c")], "abc"),
        ["nothing reads the setting a", "nothing reads the setting b"],
    ),
    "class": (lambda: duplicate_classes(CLASSES), ["Batch: a.py:1, b.py:1"]),
    "private": (
        lambda: private_accesses([source("a.py", "self._a\nother._b\nother.__class__\nself.c._d")]),
        ["a.py:2: other._b", "a.py:4: self.c._d"],
    ),
    "door": (
        lambda: inner_imports(
            [
                source("p/__init__.py", "__all__ = []"),
                source("p/a.py", "from p.b import x"),
                source("q/a.py", "from p.b import x\nfrom p import x\nfrom q.b import y"),
                source("q/__init__.py", "from q.a import x as x"),
                source("p/c.py", "from q.a import x"),
            ]
        ),
        ["q/a.py:1: p.b, not p", "p/c.py:1: q.a, not q"],
    ),
    "circle": (lambda: import_circles(CIRCLE, {"p": {"c"}}), ["3 modules: a, b, p.c", "2 modules: d, e"]),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_finds_what_breaks_it(rule):
    find, broken = BROKEN[rule]

    assert list(find()) == broken


def test_modules_are_short():
    assert list(long_modules(sources())) == []


def test_folders_have_few_modules():
    assert list(full_folders(sources())) == []


def test_a_file_name_stands_once_in_a_package():
    assert list(equal_file_names(sources())) == []


def test_functions_are_short():
    assert list(long_functions(sources())) == []


def test_modules_keep_no_state():
    assert [line for line in mutable_globals(sources()) if not line.startswith(STATE_OF_A_PROCESS)] == []


def test_every_definition_is_read():
    assert list(unread_definitions(sources(), _readers())) == []


def test_functions_and_services_take_few_parameters():
    assert list(wide_functions(sources())) == []


def test_a_call_of_a_replay_is_followed_through_few_modules():
    """From ``run_work``, which executes it: fewer than eight, and none that is above the one that calls it."""
    rooms, climbs, _ = walk("streams/replay/run/drive.py", "run_work", "work", ROOT)
    assert (len(rooms), climbs) == (7, 0)


def test_classes_have_few_methods():
    assert list(large_classes(sources())) == []


def test_exceptions_are_as_large_as_they_are_said_to_be():
    """What has become smaller stays so."""
    sizes = {
        node.name: len({child.name for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)})
        for module in sources()
        for node in module.nodes
        if isinstance(node, ast.ClassDef) and node.name in LARGE_CLASSES
    }

    assert sizes == LARGE_CLASSES


def test_few_assignments_have_several_values():
    assert len(list(packed_assignments(sources(), of_attributes=False))) <= PACKED_LOCALS
    assert len(list(packed_assignments(sources(), of_attributes=True))) <= PACKED_ATTRIBUTES


def test_few_names_are_participles():
    assert len(list(empty_names(sources()))) <= EMPTY_NAMES_BOUND


def test_few_docstrings_repeat_the_name():
    repeating = list(repeating_docstrings(sources()))

    assert len(repeating) <= REPEATING_DOCSTRINGS, "\n".join(repeating)


def test_methods_are_described_once():
    assert list(undescribed_methods(sources())) == []


def test_packages_are_entered_by_their_doors():
    """``core`` and ``protocol`` are collections of modules, and have none."""
    assert [line for line in inner_imports(sources()) if not WITHOUT_DOOR.search(line)] == []


def test_every_setting_is_read():
    tables = [
        SETTINGS,
        table_of(ConsumerSettings),
        table_of(ProducerSettings),
        table_of(ConnectionSettings),
        table_of(ParallelSettings),
        table_of(GroupClientSettings),
    ]

    assert list(unread_settings(sources(), {name: None for table in tables for name in table})) == []


def test_every_setting_of_a_broker_is_read():
    """By its field, or by its name: storages have those of topics, and groups those of a kind without it."""
    declaring = {"streams/broker/logs/config.py", "streams/group/state/coordinator_config.py"}
    nodes = [(module.path, node) for module in sources() if module.path.startswith("streams/") for node in module.nodes]
    read = {node.attr for _, node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    named = {node.value for path, node in nodes if isinstance(node, ast.Constant) and path not in declaring}
    rows = [
        row for kind in (TopicConfig, BrokerConfig, CoordinatorConfig) for row in table_of(kind).values() if row.doc
    ]
    forms = {row.name: {row.kafka_name, row.name.removeprefix("consumer").removeprefix("streams")} for row in rows}

    assert [name for name in forms if name not in read and not forms[name] & named] == []


def test_public_classes_have_names_of_their_own():
    assert list(duplicate_classes(sources())) == []


def test_objects_of_the_dsl_read_no_private_attributes_of_others():
    """Three: where KStream, KTable and CogroupedKStream take the reference out of another fluent object."""
    dsl = [module for module in sources() if module.path.startswith("streams/dsl/")]

    assert len(list(private_accesses(dsl))) <= 3


def test_modules_do_not_import_each_other():
    assert list(import_circles(sources(), CIRCLES)) == []
