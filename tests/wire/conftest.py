"""A broker in a process of its own, for clients of others."""

import subprocess
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests import programs

_NUMBERS = count()


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where ``streams broker`` listens."""
    folder = tmp_path_factory.mktemp("broker")
    command = ["-m", "streams", "broker", "--listen", "127.0.0.1:0", "--data", str(folder)]
    with programs.start(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "listens on" in line, line
        try:
            yield line.split("listens on ")[1].split(",")[0]
        finally:
            process.terminate()
            _, said = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "Traceback" not in said


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Return a name that no other test has."""
    return lambda name: f"{name}-{next(_NUMBERS)}"
