"""Chooses the build of the project that a Python worker of Spark loads: an installed build, or the driver's code.

The package that is sent to workers contains a copy of this module at the top level, as ``streams_builds``, which a
worker imports before it imports the project.  So this module uses the standard library only.
"""

import hashlib
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.resources.abc import Traversable
from importlib.util import module_from_spec
from pathlib import Path

PACKAGE = "streams"
#: The digest covers source files only: compiled modules are built from them, and differ between machines.
_SOURCES = (".py", ".pyx")


def digest_of(folder: Traversable) -> str:
    """Return a digest of the source code of the package in ``folder``, a folder or a part of a zip file."""
    state = hashlib.blake2b(digest_size=8)
    for name, file in files_of(folder, PACKAGE):
        if name.endswith(_SOURCES):
            state.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return state.hexdigest()


def files_of(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the files of a package, sorted by name, each with its path, which begins with ``name``."""
    for child in sorted(folder.iterdir(), key=lambda child: child.name):
        if not child.is_dir():
            yield f"{name}/{child.name}", child
        elif child.name != "__pycache__":
            yield from files_of(child, f"{name}/{child.name}")


def use_installed(expected: str) -> None:
    """Import the project from an installed build with the digest ``expected``, whose compiled modules then run.

    If there is none, nothing is imported, and a later ``import`` loads the code that the driver has sent.  A process
    that has already imported the project keeps its build.
    """
    if PACKAGE in sys.modules:
        return
    # Executors name the sent files by relative paths, as in ``./streams-....zip``.
    sent = Path(__file__).parent.resolve()
    spec = PathFinder.find_spec(PACKAGE, [path for path in sys.path if Path(path).resolve() != sent])
    if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader):
        return
    if digest_of(Path(spec.origin).parent) != expected:
        return
    module = module_from_spec(spec)
    sys.modules[PACKAGE] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[PACKAGE]
        raise
