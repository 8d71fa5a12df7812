"""``streams new``: create a project with a typed topology, its tests and its settings."""

import argparse
import keyword
import re
import sys
from importlib.resources import files
from pathlib import Path
from string import Template

from attrs import frozen

from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_debug
from streams.core.installation import requirement

#: Files of a project, by the names of their templates.
_FILES = {
    "pyproject.toml.in": "pyproject.toml",
    "application.py.in": "{module}.py",
    "test_application.py.in": "tests/test_{module}.py",
    "orders.jsonl.in": "orders.jsonl",
    "README.md.in": "README.md",
    "gitignore.in": ".gitignore",
    "test.yml.in": ".github/workflows/test.yml",
}
_LOCAL_HINT = (
    "# streams is the one that made this project; where that place is not reached, such as in CI, name another.\n"
)
_NAME = re.compile(r"[a-z](?:[a-z0-9]|[-_](?=[a-z0-9])){0,63}")
#: Modules that the project itself imports or has.
_TAKEN = {"streams", "tests", "test", "pytest", "mypy", "setuptools"}
_EXAMPLES = """\
examples:
  streams new shop
  streams new services/word-count
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams new`` and its arguments to the program."""
    parser = commands.add_parser(
        "new",
        description="Make a folder with a project: a typed topology, tests with the test driver, pyproject.toml, "
        "README, .gitignore and a workflow for CI. Its tests pass, and so does mypy --strict.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "folder", metavar="NAME", help="folder to make; its last part is the name of the project and of its module"
    )
    add_debug(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Create the project and print the next steps."""
    project = Project.at(options.folder)
    project.make()
    print(
        f"{project.folder}: made. Next:\n"
        f"  cd {project.folder}\n"
        f"  streams run {project.module}.py --input orders=orders.jsonl --output revenue=-\n"
        "  python -m venv .venv && . .venv/bin/activate && pip install --editable '.[test]'\n"
        "  pytest && mypy"
    )
    return 0


@frozen
class Project:
    """A project to create: its folder, its name, and the name of its module."""

    folder: Path
    name: str
    module: str

    @classmethod
    def at(cls, text: str) -> "Project":
        """Return the project of a folder; ``-`` in the name is ``_`` in the name of the module.

        Raises:
            UsageError: the name is not that of a package and a module, or the module's name is taken.
        """
        folder = Path(text)
        name = folder.name
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{text!r}: {name!r} is no name of a project; give lowercase letters, digits, and single - or _ "
                "between them, starting with a letter, at most 64, such as word-count"
            )
        module = name.replace("-", "_")
        if keyword.iskeyword(module) or module in _TAKEN or module in sys.stdlib_module_names:
            raise UsageError(f"{text!r}: a module {module!r} would hide another one; choose another name")
        return cls(folder, name, module)

    def make(self) -> None:
        """Write the files of the project.

        Raises:
            UsageError: the folder is a file, has files, or cannot be created.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise UsageError(f"{self.folder}: is a file; choose another name")
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise UsageError(f"{self.folder}: the folder is not empty; choose another name, or empty it")
        values = {
            "name": self.name,
            "module": self.module,
            "streams": requirement(),
            "test_streams": requirement("hypothesis,watch"),
            "hint": _LOCAL_HINT if " @ file:" in requirement() else "",
        }
        templates = files("streams.cli") / "project"
        try:
            for template, form in _FILES.items():
                path = self.folder / form.format(module=self.module)
                path.parent.mkdir(parents=True, exist_ok=True)
                text = (templates / template).read_text(encoding="utf-8")
                path.write_text(Template(text).substitute(values), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{self.folder}: cannot be made: {error}") from error
