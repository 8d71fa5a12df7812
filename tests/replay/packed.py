"""An environment of Python as a user packs it for a cluster, with the packages of this one.

The packages are copied from here, so that only venv-pack itself comes from the registry.
"""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

_ROOT = Path(__file__).parents[2]


def packed_environment(folder: Path) -> Path:
    """Make an environment with the project and what it needs, and return its archive.

    Raises:
        CalledProcessError: venv-pack cannot be installed, or cannot pack the environment.
    """
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--copies", environment], check=True)
    subprocess.run(
        [environment / "bin" / "pip", "install", "--quiet", "venv-pack"], check=True, capture_output=True, text=True
    )
    site = environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for found in _needed(tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["dependencies"]):
        _copy(found, site)
    for package in ("streams", "tests"):
        shutil.copytree(_ROOT / package, site / package, ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    archive = folder / "environment.tar.gz"
    subprocess.run(
        [environment / "bin" / "venv-pack", "--quiet", "--prefix", environment, "--output", archive],
        check=True,
        capture_output=True,
        text=True,
    )
    return archive


def _needed(lines: Iterable[str]) -> list[Distribution]:
    """Return the distributions that the lines require, and those that these require."""
    found: dict[str, Distribution] = {}
    waiting = list(lines)
    while waiting:
        required = Requirement(waiting.pop())
        if required.name not in found and (required.marker is None or required.marker.evaluate({"extra": ""})):
            found[required.name] = distribution(required.name)
            waiting += found[required.name].requires or ()
    return list(found.values())


def _copy(found: Distribution, site: Path) -> None:
    for file in found.files or ():
        source = Path(str(found.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, site / file)
