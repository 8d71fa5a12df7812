"""Packs the project's code for the Python workers of a Spark cluster, and checks its digest there.

This module does not import ``pyspark``.
"""

import zipfile
from functools import cache
from importlib.resources import files
from pathlib import Path

from streams.replay.errors import ReplayError
from streams.replay.spark.builds import PACKAGE, digest_of, files_of

#: Files that are not sent: a zip file cannot load compiled modules, and bytecode belongs to one version of Python.
_NOT_SENT = (".pyc", ".pyo", ".so", ".pyd", ".c")


@cache
def build_digest() -> str:
    """Return a digest of the project's source code in this process, which was loaded from a folder or a zip file."""
    return digest_of(files(PACKAGE))


def check_build(expected: str, found: str) -> None:
    """Check that this process has the same code as the driver.

    Raises:
        ReplayError: the digests differ.
    """
    if expected != found:
        raise ReplayError(
            f"the workers of Spark have another build of {PACKAGE} ({found}) than the driver ({expected}); "
            "install the same one on all machines, or none on the workers, and begin with a new session"
        )


def write_package(folder: Path) -> Path:
    """Write the project's code as an importable zip file; return its path."""
    path = folder / f"{PACKAGE}-{build_digest()}.zip"
    package = files(PACKAGE)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in files_of(package, PACKAGE):
            if not name.endswith(_NOT_SENT):
                archive.writestr(name, file.read_bytes())
        chooser = package.joinpath("replay", "spark", "builds.py")
        archive.writestr(f"{PACKAGE}_builds.py", chooser.read_bytes())
    return path
