"""The arguments of all public methods of the DSL obey the rule of ``docs/reference/topologies.md``."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_overloads, get_type_hints

import pytest

import streams

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "topologies.md"
#: Methods that add no node: what they return does.
WITHOUT_NODE = {"add_state_store", "build", "cogroup", "emit", "emit_strategy", "migrate", "windowed_by"}
#: Names of what an operator works with, in the order of the rule: streams and topics, functions, windows.
WORK = [
    {"other", "grouped", "topic", "topics", "store", "migrations", "processor", "transformer"},
    {"predicate", "mapper", "action", "function", "by", "joiner", "initializer", "aggregator", "reducer", "adder"},
    {"subtractor", "merger", "summary"},
    {"windows", "strategy", "suppressed"},
]
#: The kinds of the table, by what their annotations have; the first that fits counts.
KINDS = {
    "types or serdes": r"TypeForm|Serde",
    "durations": r"timedelta",
    "functions": r"Callable|Partitioner",
    "flags": r"\bbool\b|Literal\[(True|False)\]",
    "choices": r"Literal|topology_optimization",
    "names": r"\bstr\b(?!.*Mapping)",
    "numbers": r"\bint\b",
}


def words() -> dict[str, str]:
    """Return the kind of each word of the table."""
    rows = re.findall(r"^\| (`.*?`) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    return {word: kind for cell, kind in rows for word in re.findall(r"`(\w+)`", cell)}


def signatures() -> Iterator[tuple[str, inspect.Signature]]:
    """Yield each public method of the DSL with each of its signatures, which are its overloads if it has some."""
    public = [item for item in (getattr(streams, name) for name in dir(streams)) if inspect.isclass(item)]
    for kind in dict.fromkeys(base for item in public for base in item.__mro__):
        if re.fullmatch(r"streams\.dsl\.\w+", kind.__module__):
            for name, method in vars(kind).items():
                if not name.startswith("_") and inspect.isfunction(method):
                    for form in get_overloads(method) or [method]:
                        yield f"{kind.__name__}.{name}", inspect.signature(form)


def parts(signature: inspect.Signature) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """Return the parameters that may stand by position, and the annotations of the keywords, options among them."""
    first, keywords = [], {}
    for parameter in list(signature.parameters.values())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            options = get_args(parameter.annotation)[0]
            keywords |= get_type_hints(get_origin(options) or options)
        elif parameter.kind is parameter.KEYWORD_ONLY:
            keywords[parameter.name] = parameter.annotation
        else:
            first.append(parameter)
    return first, keywords


ALL = list(signatures())
every_signature = pytest.mark.parametrize(
    ("method", "signature"), ALL, ids=[f"{number}-{method}" for number, (method, _) in enumerate(ALL)]
)


@every_signature
def test_what_an_operator_works_with_comes_first_and_its_name_last(method: str, signature: inspect.Signature) -> None:
    first, keywords = parts(signature)
    work = [parameter.name for parameter in first if parameter.name != "name"]
    ranks = [next((rank for rank, names in enumerate(WORK) if word in names), None) for word in work]
    assert None not in ranks, f"{method}: {work[ranks.index(None)]} is by position, but no stream, function or window"
    assert ranks == sorted(ranks), f"{method}: {work} is not streams, functions, windows"
    if method.partition(".")[2] not in WITHOUT_NODE:
        assert "name" in keywords or (first and first[-1].name == "name"), f"{method} adds a node: give it name="


@every_signature
def test_all_else_is_by_keyword_and_each_word_is_one_thing(method: str, signature: inspect.Signature) -> None:
    for word, annotation in parts(signature)[1].items():
        assert word in words(), f"{method}: {word}= is no word of {PAGE.name}; use one of them, or add a row"
        text = f"{word} {annotation}"
        kind = next((kind for kind, pattern in KINDS.items() if re.search(pattern, text)), words()[word])
        is_key_function = word == "key" and method.endswith("join") and kind == "functions"
        # Offsets and event times may also be a choice or an extractor by name.
        assert kind == words()[word] or is_key_function or word in ("offset_reset", "timestamp", "changelog"), (
            f"{method}: {word}= is {kind}, elsewhere {words()[word]}"
        )


def test_a_type_that_a_function_may_change_can_be_declared() -> None:
    """A result ``KStream[K2, V2]`` of a function has ``key=`` and ``value=``; joins have those of their sides."""
    lacking = []
    for method in dict.fromkeys(method for method, _ in ALL):
        own = {"K", "A"} if "Cogrouped" in method else {"K", "V"}
        forms = [signature for other, signature in ALL if other == method]
        has = {word for form in forms for word in parts(form)[1]}
        for form in forms:
            result = re.search(r"K\w+\[(?:Windowed\[)?(\w+)\]?, (\w+)\]", str(form.return_annotation))
            if result is None or not {"mapper", "processor", "transformer", "aggregator"} & form.parameters.keys():
                continue
            changed = {"key": result[1] not in own, "value": result[2] not in own}
            lacking += [f"{method}: {word}=" for word, is_changed in changed.items() if is_changed and word not in has]
    assert not lacking


def shown_code() -> Iterator[tuple[Path, str]]:
    """Yield the examples of the pages, of the docstrings of the DSL, and of the folder of topologies."""
    for path in sorted((ROOT / "topology_examples").glob("*.py")):
        yield path, path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in re.findall(r"```python[^\n]*\n(.*?)```", path.read_text(), re.DOTALL):
            yield (
                path,
                "\n".join(re.findall(r"^(?:>>>|\.\.\.) ?(.*)", block, re.MULTILINE)) if ">>>" in block else block,
            )
    for path in sorted((ROOT / "streams" / "dsl").glob("*.py")):
        for line in re.findall(r"^ +>>> (.*)", path.read_text(), re.MULTILINE):
            yield path, line


def test_examples_write_the_keyword_of_a_name_behind_something_else() -> None:
    named = {method.partition(".")[2] for method, signature in ALL if "name" in signature.parameters}
    named |= {"join", "left_join", "outer_join"}
    behind = []
    for path, text in shown_code():
        try:
            nodes = ast.walk(ast.parse(text))
        except SyntaxError:  # Part of a statement, or something else than Python.
            continue
        behind += [
            f"{path.name}: {ast.unparse(node)[:100]}"
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in named
            if len(node.args) > 1 and isinstance(node.args[-1], ast.Constant) and isinstance(node.args[-1].value, str)
        ]
    assert not behind
