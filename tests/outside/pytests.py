"""Tests of Python clients: in an environment of their own, with the client that is published, by pytest."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.outside.suite import Outcome, Room

_PLUGIN = Path(__file__).with_name("plugin")
_MARK = "@outside "


def environment(room: Room, *packages: str) -> Path:
    """Make an environment with packages of PyPI in the room's cache, and return its Python.

    Raises:
        UnavailableError: They cannot be installed.
    """
    python = room.cache / "venv" / "bin" / "python"
    if not python.exists():
        room.fetch(sys.executable, "-m", "venv", "venv")
    room.fetch(str(python), "-m", "pip", "install", "--quiet", "pytest", "pytest-timeout", *packages)
    return python


def run_pytest(
    room: Room,
    python: Path,
    folder: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    timeout_s: int = 180,
    prefix: str = "",
    places: Sequence[str] = (),
) -> Iterator[Outcome]:
    """Run tests; one that takes longer than ``timeout_s`` has failed.

    ``places`` are of modules that stand for others.
    """
    results: dict[str, tuple[str, str]] = {}
    command = [str(python), "-m", "pytest", "-s", "--color=no", "--tb=short", f"--timeout={timeout_s}"]
    command += ["-p", "outside_report", *options]
    env = {"PYTHONPATH": os.pathsep.join([str(_PLUGIN), *places]), **(env or {})}
    with room.program(*command, cwd=folder, env=env, quiet_s=timeout_s + 120, log=f"output{prefix}") as program:
        for line in program:
            if not line.startswith(_MARK):
                continue
            test, result, note = json.loads(line.removeprefix(_MARK))
            # A failure of what is around a test counts beside its own end.
            if result != "begun" and results.get(test, ("begun", ""))[0] != "failed":
                results[test] = result, note
            else:
                results.setdefault(test, (result, note))
    for test, (result, note) in results.items():
        if result == "begun":
            yield Outcome(prefix + test, "failed", f"no end: {program.ended_by or program.status}")
        elif result == "passed":
            yield Outcome(prefix + test, "passed")
        else:
            yield Outcome(prefix + test, "left out" if result == "left out" else "failed", " ".join(note.split())[:300])
