"""The guide's examples work: every block of code is run, every output that is shown is compared.

A block with a title is a file of that name.  A ``python`` block is executed, with ``>>>`` as a doctest; the blocks
of a page share their names.  A ``console`` block is run by a shell: after each command comes what it
prints, and ``[2]`` for an exit status other than 0; ``...`` stands for anything.
"""

import doctest
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests import programs
from tests.waiting import WATCHDOG_S

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
FLAGS = doctest.ELLIPSIS


def run_python(source: str, page: types.ModuleType, place: str) -> None:
    if ">>>" not in source:
        exec(compile(source, place, "exec"), page.__dict__)
        return
    test = doctest.DocTestParser().get_doctest(source, page.__dict__, place, place, 0)
    output: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=output.append, clear_globs=False)
    page.__dict__.update(test.globs)
    assert not output, "".join(output)


def run_console(source: str, folder: Path, commands: Path, place: str) -> None:
    environment = programs.shell_environment(commands)
    for part in re.split(r"^\$ ", source, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=WATCHDOG_S
        )
        printed = done.stdout + done.stderr
        if done.returncode:
            printed += f"[{done.returncode}]\n"
        assert doctest.OutputChecker().check_output(expected, printed, FLAGS), f"{place}: $ {command}\n{printed}"


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


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_page(path, page_folder, commands, monkeypatch):
    text = path.read_text()
    page = types.ModuleType(f"guide_{path.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, page.__name__, page)
    blocks = list(BLOCK.finditer(text))
    assert blocks, "a page without an example"
    for block in blocks:
        language, title, source = block.groups()
        place = f"{path.name}:{text.count(chr(10), 0, block.start()) + 1}"
        if title:
            (page_folder / title).write_text(source)
        elif language == "python":
            run_python(source, page, place)
        elif language == "console":
            run_console(source, page_folder, commands, place)


def test_links_between_pages_lead_somewhere():
    for path in PAGES:
        # A call such as ``KeyQuery[str, int]("ann")`` is no link.
        for target in re.findall(r"\]\(([^)#:\"]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
        for example in re.findall(r"topology_examples/(\w+\.py)", path.read_text()):
            assert (ROOT / "topology_examples" / example).exists(), f"{path.name} names {example}"
