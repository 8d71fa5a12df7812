"""Pages that are made from the code are current, and everything public is documented."""

import importlib.util
import re
from pathlib import Path

import pytest

import streams
import streams.group
import streams.replay
import streams.testing


def test_page_of_settings_is_that_of_the_code():
    source = Path(__file__).parents[1] / "docs" / "settings.py"
    spec = importlib.util.spec_from_file_location("docs_settings", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run: python docs/settings.py"


DOCS = Path(__file__).parents[1] / "docs"
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


PACKAGES = (streams, streams.testing, streams.replay, streams.group)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda it: it.__name__)
def test_every_public_name_has_one_entry_in_the_reference(package):
    entries = re.findall(rf"^::: {re.escape(package.__name__)}\.(\w+)$", REFERENCE, re.MULTILINE)

    assert sorted(entries) == sorted(package.__all__)


@pytest.mark.parametrize("kind", FLUENT, ids=lambda kind: kind.__name__)
def test_every_operator_has_an_example_in_the_guide(kind):
    verbs = {name for name, it in vars(kind).items() if not name.startswith("_") and callable(getattr(kind, name))}

    without = {verb for verb in verbs if not re.search(rf"\.{verb}\(", EXAMPLES)}

    assert not without, f"{kind.__name__}: no example in docs/guide of {', '.join(sorted(without))}"


def test_every_page_is_in_the_navigation():
    listed = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]

    assert [page for page in pages if not re.search(rf"^ +- {re.escape(page)}$", listed, re.MULTILINE)] == []


def test_figures_on_the_first_page_are_those_of_the_measurement():
    """The table of ``make bench`` is the one place of these figures; the first page rounds them."""
    table = (DOCS / "performance.md").read_text(encoding="utf-8")
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    measured = [
        int(re.findall(rf"^\| {row} \| [\d,]+ \| [\d,]+ \| ([\d,]+) ", table, re.MULTILINE)[0].replace(",", ""))
        for row in ("stateless map", "tumbling count, memory")
    ]

    said = re.search(r"([\d,]+) records/s through a map of JSON values and ([\d,]+) through a windowed count", readme)

    assert said is not None
    assert [int(number.replace(",", "")) for number in said.groups()] == [round(rate, -4) for rate in measured]
