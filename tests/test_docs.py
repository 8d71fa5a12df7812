"""Pages that are made from the code are current, and everything public is documented."""

import importlib.util
import json
import re
import shlex
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

import streams
import streams.connect
import streams.formats
import streams.group
import streams.lookup
import streams.replay
import streams.testing
from streams.cli.program import parser
from streams.connect.kinds import KINDS
from streams.why.story import REASONS
from tests.conformance.cases import read_cases

DOCS = Path(__file__).parents[1] / "docs"


def _script(name: str):
    """A script beside the pages, as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["settings", "metrics", "dashboard", "commands", "values", "conformance"])
def test_generated_page_is_that_of_the_code(name: str):
    module = _script(name)

    assert module.PAGE.read_text(encoding="utf-8") == module.page(), f"run: python docs/{name}.py"


REFERENCE = "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md")))
GUIDE = "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "guide").glob("*.md")))
#: Code of the guide, which is executed by tests/examples/test_guide.py.
EXAMPLES = "\n".join(re.findall(r"^```(?:python|console)[^\n]*\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL))
#: What is chained to build a topology; methods of Topology itself are the Processor API's.
FLUENT = (
    streams.StreamsBuilder,
    streams.KStream,
    streams.KTable,
    streams.Branched,
    streams.KGroupedStream,
    streams.KGroupedTable,
    streams.CogroupedKStream,
    streams.TimeWindowedKStream,
    streams.SessionWindowedKStream,
    streams.TimeWindowedCogroupedKStream,
    streams.SessionWindowedCogroupedKStream,
    streams.Suppressed,
)


PACKAGES = (streams, streams.testing, streams.replay, streams.group, streams.lookup, streams.formats, streams.connect)


def public_names(package):
    """The names that a package lists, or imports as themselves."""
    source = Path(package.__file__).read_text(encoding="utf-8")
    return getattr(package, "__all__", None) or re.findall(r"^from .* import (\w+) as \1$", source, re.MULTILINE)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda it: it.__name__)
def test_every_public_name_has_one_entry_in_the_reference(package):
    entries = re.findall(rf"^::: {re.escape(package.__name__)}\.(\w+)$", REFERENCE, re.MULTILINE)

    assert sorted(entries) == sorted(public_names(package))


@pytest.mark.parametrize("kind", FLUENT, ids=lambda kind: kind.__name__)
def test_every_operator_has_an_example_in_the_guide(kind):
    verbs = {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}

    without = {verb for verb in verbs if not re.search(rf"\.{verb}\(", EXAMPLES)}

    assert not without, f"{kind.__name__}: no example in docs/guide of {', '.join(sorted(without))}"


def test_every_page_is_in_the_navigation():
    listed = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    decisions = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if f"({page.name})" not in decisions]

    assert [page for page in pages if not re.search(rf"^ +- {re.escape(page)}$", listed, re.MULTILINE)] == []


#: Words of a page that is read; those that one looks things up in may have more.
WORDS = 2_500
LOOKED_UP = re.compile(r"reference/|decisions/|guide/rules-|performance\.md|conformance\.md")


def test_a_page_that_is_read_is_short():
    pages = [it for it in DOCS.rglob("*.md") if not LOOKED_UP.match(it.relative_to(DOCS).as_posix())]

    assert [it.name for it in pages if len(it.read_text(encoding="utf-8").split()) > WORDS] == []


def test_nothing_on_a_page_comes_from_another_host():
    """Where it is not reached, as in a company's network, the search of the site would not start."""
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "mkdocs.yml"]

    assert [
        it.name for it in pages if re.search(r"^```mermaid|!\[.*\]\(http|unpkg", it.read_text("utf-8"), re.MULTILINE)
    ] == []


def test_doctests_of_the_reference_are_code():
    pytest.importorskip("griffe")
    in_sections = _script("griffe_examples").in_sections

    assert in_sections("Add.\n\n>>> 1\n1\n\n>>> 2\n2\n\nRaises:\n    A: b.") == (
        "Add.\n\nExamples:\n    >>> 1\n    1\n\n    >>> 2\n    2\n\nRaises:\n    A: b."
    )
    assert in_sections("Add.\n\nExamples:\n    >>> 1\n    1") == "Add.\n\nExamples:\n    >>> 1\n    1"


FIGURES = _script("figures")
MEASURED = json.loads(FIGURES.FIGURES.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", FIGURES.pages(), ids=lambda page: page.relative_to(DOCS.parent).as_posix())
def test_figures_of_every_page_are_those_measured(page):
    text = page.read_text(encoding="utf-8")

    assert text == FIGURES.rendered(text, MEASURED), "run: python docs/figures.py"


def test_every_measured_table_is_shown_by_a_page():
    shown = {name for page in FIGURES.pages() for name in re.findall(r"<!-- table: (\S+) -->", page.read_text("utf-8"))}

    assert shown == set(MEASURED)


def test_a_figure_is_rounded_to_its_step():
    figures = {"walk": {"conditions": "2 legs", "columns": ["what", "m/s"], "rows": [["uphill", "1,449"]]}}

    text = FIGURES.rendered("<!-- figure: walk / uphill / m/s / 100 -->9<!-- /figure --> m/s", figures)

    assert text == "<!-- figure: walk / uphill / m/s / 100 -->1,400<!-- /figure --> m/s"


def test_every_invariant_is_held_by_a_test_that_is_there():
    page = (DOCS / "non-obvious.md").read_text(encoding="utf-8")
    holders = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    without = [
        f"{path}::{name}"
        for path, name in holders
        if not (DOCS.parent / path).exists() or f"def {name}(" not in (DOCS.parent / path).read_text(encoding="utf-8")
    ]

    assert len(holders) == page.count("\n- **")
    assert without == []


#: Pages about the inside of the library, and the modules that they name as places of a reader's own.
DECISIONS = tuple(page.relative_to(DOCS).as_posix() for page in sorted((DOCS / "decisions").glob("[0-9]*.md")))
INSIDE = ("architecture.md", "one-record.md", "non-obvious.md", "glossary.md", "contributing.md", *DECISIONS)
OWN_MODULES = {"dsl/processing/x_processor.py", "cli/commands/x.py"}


@pytest.mark.parametrize("page", INSIDE)
def test_every_module_that_a_page_names_is_there(page):
    root = DOCS.parent
    there = [
        f"/{file.relative_to(root).as_posix()}"
        for kind in ("streams", "tests", "docs")
        for file in root.glob(f"{kind}/**/*.py")
    ]
    named = set(re.findall(r"`([\w/]+\.py)`", (DOCS / page).read_text(encoding="utf-8"))) - OWN_MODULES

    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in there)] == []


def test_each_metric_of_kafka_streams_is_there_or_said_why_not():
    module = _script("metrics")
    missing = module.absent()

    assert [name for name, why in missing.items() if not why] == []
    unused = [
        start
        for start in module.ABSENT
        if not any(at is start[0] and name.startswith(start[1]) for at, name in missing)
    ]
    assert unused == []


#: Bytes of the changelog, and characters of an entry; the story of a change is in its commit.
CHANGELOG_BYTES = 40_000
ENTRY_CHARACTERS = 200


def test_the_changelog_says_each_change_in_one_short_line():
    text = (DOCS.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    lines = text.split("\n## ", 1)[1].splitlines()[1:]
    headings = re.compile(r"## \d+\.\d+\.\d+ - \d{4}-\d\d-\d\d|### (Breaks|Adds|Fixes)")

    assert len(text.encode()) <= CHANGELOG_BYTES
    assert [line for line in lines if line and not line.startswith("- ") and not headings.fullmatch(line)] == []
    assert [line for line in lines if len(line) > ENTRY_CHARACTERS] == []


DECISION_LINES = 40


def test_a_decision_is_a_short_dated_file_in_the_list():
    listed = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\d+)\]\((\S+)\) (.*) \| (\S+) \|$", listed, re.MULTILINE)
    texts = {page: (DOCS / page).read_text(encoding="utf-8") for page in DECISIONS}
    heads = [re.match(r"# (\d+)\. (.*)\n\n(\d{4}-\d\d-\d\d)", text) for text in texts.values()]
    parts = [re.findall(r"^\*\*(\w+)\.\*\* \S", text, re.MULTILINE) for text in texts.values()]

    assert [f"decisions/{file}" for _, file, _, _ in rows] == list(DECISIONS)
    assert [head and (head[1].zfill(4), head[2], head[3]) for head in heads] == [(n, it, at) for n, _, it, at in rows]
    assert [page for page, text in texts.items() if text.count("\n") > DECISION_LINES] == []
    assert [it for it in parts if it != ["Context", "Decision", "Consequences"]] == []


ARCHITECTURE = (DOCS / "architecture.md").read_text(encoding="utf-8")
#: Two pages.
ARCHITECTURE_WORDS = 1_250


def test_the_architecture_has_the_packages_in_the_order_of_their_imports():
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {contract["containers"][0]: contract for contract in project["tool"]["importlinter"]["contracts"]}
    whole = contracts["streams"]
    layers = [re.findall(r"\w+", layer) for layer in whole["layers"]]
    packages = ARCHITECTURE.split("## Packages")[1].split("\n## ")[0]
    rows = [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`.*?) \|", packages, re.MULTILINE)]
    within = re.findall(r"`(\w+)` it is ((?:`\w+`(?:, )?)+)", packages)
    inside = [it for it in Path(streams.__file__).parent.iterdir() if it.suffix in ("", ".py")]
    folders = [it.stem for it in inside if not it.name.startswith("_")]

    assert rows == layers
    assert sorted(it for row in rows for it in row) == sorted(folders)
    assert [package for package, _ in within] == ["runtime", "replay"]
    for package, parts in within:
        floors = [layer for layer in contracts[f"streams.{package}"]["layers"] if "|" not in layer]
        assert re.findall(r"`(\w+)`", parts) == floors
    assert len(ARCHITECTURE.split()) <= ARCHITECTURE_WORDS


def test_the_folders_that_the_architecture_names_are_there():
    root = Path(streams.__file__).parent
    drawn = (DOCS / "images" / "architecture.svg").read_text(encoding="utf-8")
    paths = {*re.findall(r"`([a-z_]+(?:/[a-z_]+)+(?:\.py)?)`", ARCHITECTURE), *re.findall(r">([a-z_/]+\.py)<", drawn)}

    assert [path for path in sorted(paths) if not (root / path).exists()] == []


COVERAGE = (DOCS / "coverage.md").read_text(encoding="utf-8")
CASES = DOCS.parent / "tests" / "conformance" / "cases"


def test_each_row_of_the_coverage_names_tests_that_are_there():
    rows = re.findall(r"^\| .* \| (.*?) \|$", COVERAGE, re.MULTILINE)
    rows = [row for row in rows if row != "tests"]
    paths = set(re.findall(r"`(tests/[\w/.]+)`", COVERAGE))
    files = set(re.findall(r"[\w*]+", " ".join(re.findall(r"`tests/conformance` \((.*?)\)", COVERAGE))))

    assert [row for row in rows if "`tests/" not in row] == []
    assert [path for path in sorted(paths) if not (DOCS.parent / path).exists()] == []
    assert [name for name in sorted(files) if not list(CASES.glob(f"{name}.jsonl.gz"))] == []


def test_the_coverage_has_a_row_for_each_folder_of_tests_of_features():
    """What shows how the project itself is tested is no feature."""
    own = {
        "bench",
        "conformance",
        "core",
        "examples",
        "files",
        "outside",
        "protocol",
        "scenarios",
        "topology",
        "values",
        "wire",
    }
    folders = {
        it.name
        for it in (DOCS.parent / "tests").iterdir()
        if (it / "__init__.py").exists() or list(it.glob("test_*.py"))
    }

    assert sorted(folders - set(re.findall(r"`tests/(\w+)", COVERAGE)) - own) == []


def test_the_operators_beside_those_of_java_are_there():
    page = (DOCS / "coming-from" / "kafka-streams.md").read_text(encoding="utf-8")
    rows = page.split("## Operators side by side")[1].split("\n## ")[0]
    cells = re.sub(r'"[^"]*"', "", " ".join(re.findall(r"\| ([^|]*) \|$", rows, re.MULTILINE)))
    named = {it for code in re.findall(r"`([^`]+)`", cells) for it in re.findall(r"\b(?:[a-z_]+(?=\()|[A-Z]\w+)", code)}
    kinds = {name: getattr(package, name) for package in PACKAGES for name in public_names(package)}
    there = {*kinds, *(name for kind in kinds.values() for name in dir(kind)), "SCRIPT", "ON_WINDOW_CLOSE", "timedelta"}

    assert sorted(named - there - {"HEADERS", "DEFAULT", "TTL", "True"}) == []
    assert [name for name in public_names(streams) if name.endswith("Windows") and name not in named] == []


def test_the_coverage_has_the_number_of_the_cases():
    number = sum(len(read_cases(path)) for path in CASES.glob("*.jsonl.gz"))

    assert f"compares {number:,} recorded results" in COVERAGE


def test_the_guide_names_each_command_and_no_other():
    calls = {prog.removeprefix("streams ") for prog in _script("commands").commands()}
    first = {call.split()[0] for call in calls}
    with_more = {call.split()[0] for call in calls if " " in call}
    named = re.findall(r"(?:`|^\$ )streams ([a-z]+)(?: ([a-z]+))?", GUIDE, re.MULTILINE)

    assert {name for name, _ in named} == first
    assert {f"{name} {more}" for name, more in named if more and name in with_more} <= calls


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_each_command_of_the_first_page_has_the_arguments_that_are_shown(page: str):
    text = (DOCS.parent / page).read_text(encoding="utf-8")
    shown = re.findall(r"\| `streams (.*)` \|$", text, re.MULTILINE)

    assert len(shown) == 6
    for command in shown:
        parser().parse_args(shlex.split(command))


def _first_cells(page: str, head: str) -> list[str]:
    """The first cells of the table of a page whose header row begins with ``head``."""
    text = (DOCS / page).read_text(encoding="utf-8")
    table = text.split(f"\n{head}", 1)[1].split("\n\n", 1)[0]
    return [row.split("|")[1].strip() for row in table.splitlines()[2:]]


def _factories(side: str) -> list[str]:
    return [kind.factory for kind in KINDS if kind.side == side]


@pytest.mark.parametrize(
    ("page", "head", "names"),
    [
        ("guide/why.md", "| reason |", REASONS),
        ("guide/operating.md", "| state | meaning |", [state.name for state in streams.State]),
        ("guide/sources.md", "| source | kind |", _factories("source")),
        ("guide/connectors.md", "| sink | extra |", _factories("sink")),
    ],
    ids=["reasons", "states", "sources", "sinks"],
)
def test_a_table_of_the_guide_has_the_names_of_the_code(page: str, head: str, names: Iterable[str]):
    cells = ", ".join(_first_cells(page, head))

    assert sorted(re.findall(r"\w[\w ]*", re.sub(r"\(.*?\)|`", "", cells))) == sorted(names)
