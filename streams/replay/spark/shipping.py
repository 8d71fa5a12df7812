"""Shipping of the project's code to the Python workers of a cluster, and a check of its digest.

Does not import pyspark.
"""

import hashlib
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from streams.replay.errors import ReplayError

_PACKAGE = "streams"


@cache
def build_digest() -> str:
    """Return a digest of the project's code in this process, which was loaded from a folder or a zip file."""
    state = hashlib.blake2b(digest_size=8)
    for name, file in _sources(files(_PACKAGE), _PACKAGE):
        state.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return state.hexdigest()


def check_build(expected: str, found: str) -> None:
    """Check that this process has the same code as the driver.

    Raises:
        ReplayError: the digests differ.
    """
    if expected != found:
        raise ReplayError(
            f"the workers of Spark have another build of {_PACKAGE} ({found}) than the driver ({expected}); "
            "install the same one on all machines, or none on the workers, and begin with a new session"
        )


def write_package(folder: Path) -> Path:
    """Write the project's code as an importable zip file; return its path."""
    path = folder / f"{_PACKAGE}-{build_digest()}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in _sources(files(_PACKAGE), _PACKAGE):
            archive.writestr(name, file.read_bytes())
    return path


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the files of a package, sorted by name, without bytecode."""
    for child in sorted(folder.iterdir(), key=lambda child: child.name):
        if child.is_dir():
            if child.name != "__pycache__":
                yield from _sources(child, f"{name}/{child.name}")
        elif not child.name.endswith((".pyc", ".pyo")):
            yield f"{name}/{child.name}", child
