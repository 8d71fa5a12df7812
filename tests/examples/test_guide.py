"""The guide's examples work: every block of code is run, every output that is shown is compared.

A block with a title is a file of that name.  A ``python`` block is executed, with ``>>>`` as a doctest; the blocks
of a page share their names.  A ``console`` block is run by a shell: after each command comes what it
prints, and ``[2]`` for an exit status other than 0; ``...`` stands for anything.  Of an ``sh`` block, the commands
``streams`` and ``python`` are run.  A page that goes on from another one has its files and names.
"""

import doctest
import re
import sys
import types
from contextlib import closing
from pathlib import Path

import pytest

from tests.examples.shells import BEFORE, FLAGS, NOT_RUN, OURS, RUNS_ON, Shell, commands_of, why_not_run

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GUIDE = DOCS / "guide"
PAGES = [
    ROOT / "README.md",
    DOCS / "index.md",
    *sorted(GUIDE.glob("*.md")),
    *sorted((DOCS / "coming-from").glob("*.md")),
]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
#: A page whose files and names this one has.
GOES_ON = re.compile(r"^The examples go on from \[.*?\]\((\S+?)\)", re.MULTILINE)


def run_python(source: str, page: types.ModuleType, place: str) -> None:
    if ">>>" not in source:
        exec(compile(source, place, "exec"), page.__dict__)
        return
    test = doctest.DocTestParser().get_doctest(source, page.__dict__, place, place, 0)
    output: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=output.append, clear_globs=False)
    page.__dict__.update(test.globs)
    assert not output, "".join(output)


@pytest.fixture
def page_folder(tmp_path, monkeypatch):
    """A folder with the examples in it, where the page's own files are modules as well."""
    (tmp_path / "topology_examples").symlink_to(ROOT / "topology_examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # Scripts that other tests have loaded may have the names of the page's files.
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path.parents[1])):
            monkeypatch.delitem(sys.modules, name)
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture(scope="session")
def commands(tmp_path_factory):
    """A folder for the commands ``python`` and ``streams`` of a console."""
    return tmp_path_factory.mktemp("commands")


SHELLS = ("sh", "console")

#: Pages whose commands say their partitions, on which those after them depend.
REPLAY = {"replay", "replay-daily", "replay-live", "replay-tables", "rules-replay"}
#: Pages with commands that run on, or with many of them.
LONG = {
    *("README", "kafka", "live-page", "connectors", "simulation", "rules-simulation", "why", "tutorial"),
    *REPLAY,
    *("joins-that-find-nothing", "projects", "testing"),
}
#: Pages whose commands the sample tries with four partitions.
FOUR = {"getting-started"}


def has_commands(path: Path) -> bool:
    return path.stem not in REPLAY and any(
        language in SHELLS and OURS.search(source) for language, _, source in BLOCK.findall(path.read_text())
    )


def stem(path: Path) -> str:
    return path.stem


def run_page(path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    page = types.ModuleType(f"guide_{path.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, page.__name__, page)
    run_blocks(path, shell, page)


def run_blocks(path: Path, shell: Shell, page: types.ModuleType) -> None:
    text = path.read_text()
    if before := GOES_ON.search(text):
        run_blocks(path.parent / before[1], shell, page)
    blocks = list(BLOCK.finditer(text))
    assert blocks or path.stem.startswith(("rules-", "runbook")), "a page without an example"
    for block in blocks:
        language, title, source = block.groups()
        place = f"{path.name}:{text.count(chr(10), 0, block.start()) + 1}"
        if title:
            (shell.folder / title).write_text(source)
        elif language == "python":
            run_python(source, page, place)
        elif language == "console":
            shell.console(source, place)
        elif language == "sh":
            shell.script(source, place)


@pytest.mark.case(4)
@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=pytest.mark.slow if path.stem in LONG else ()) for path in PAGES], ids=stem
)
def test_page(path, page_folder, commands, monkeypatch):
    with closing(Shell(page_folder, commands, partitions=1)) as shell:
        run_page(path, shell, monkeypatch)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.exhaustive if path.stem in LONG else pytest.mark.slow)
        if path.stem not in FOUR
        else path
        for path in filter(has_commands, PAGES)
    ],
    ids=stem,
)
def test_commands_of_a_page_with_four_partitions(path, page_folder, commands, monkeypatch):
    with closing(Shell(page_folder, commands, partitions=4)) as shell:
        run_page(path, shell, monkeypatch)


def test_each_command_that_is_not_run_has_a_reason_and_no_reason_is_stale():
    blocks = [block for path in PAGES for block in BLOCK.findall(path.read_text())]
    scripts = [command for language, _, source in blocks if language == "sh" for command in commands_of(source)]
    # Sessions that are shown only.
    texts = [source for language, _, source in blocks if language == "text"]
    shown = [line for source in texts for line in re.findall(r"^\$ (.*)", source, re.MULTILINE) if OURS.search(line)]
    started = [*scripts, *BEFORE.values()]

    assert [command for command in shown if why_not_run(command) is None] == []
    assert {why_not_run(command) for command in (*scripts, *shown)} - {None} == set(NOT_RUN)
    for patterns, commands in (([it.pattern for it in RUNS_ON], started), (BEFORE, scripts)):
        assert [it for it in patterns if not any(re.search(it, command) for command in commands)] == []


def headings(page: Path) -> set[str]:
    """The anchors of a page, as Python-Markdown makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    own_ids = re.findall(r"\{ ?#([\w-]+) ?\}", text)
    plain = (re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title).replace("*", "") for title in titles)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in plain} | {*own_ids}


def test_links_between_pages_lead_somewhere():
    astray = []
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target, _, anchor in re.findall(r"\]\(([^)#:\"\s]*)(#([^)\s]*))?\)", text):
            page = (path.parent / target).resolve() if target else path
            # Those of the reference are made from the code, and checked by the build of the site.
            if not page.exists() or (page.suffix == ".md" and anchor and anchor not in headings(page)
                                     and not anchor.startswith("streams.")):  # fmt: skip
                astray.append(f"{path.relative_to(ROOT)}: {target}#{anchor}")
    assert astray == []
    for path in PAGES:
        for example in re.findall(r"topology_examples/(\w+\.py)", path.read_text()):
            assert (ROOT / "topology_examples" / example).exists(), f"{path.name} names {example}"
