"""What ``make install`` makes serves its users in any folder, type checkers included."""

import importlib.util
import subprocess
import sys

import pytest

APPLICATION = """
from streams import StreamsBuilder, Topic

lines = Topic("lines", value=str)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(lines).map_values(lambda line: line.no_such_method()).to(lines)
"""

CHECKERS = {
    "mypy": ["-m", "mypy", "--strict", "--cache-dir", "cache", "application.py"],
    "pyright": ["-m", "pyright", "--pythonpath", sys.executable, "application.py"],
}


@pytest.mark.case
@pytest.mark.parametrize("checker", CHECKERS)
def test_type_checker_finds_streams_from_any_folder(checker, tmp_path):
    """It reports the planted mistake, and that alone: the types of the package are known."""
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed (make install)")
    (tmp_path / "application.py").write_text(APPLICATION)

    answer = subprocess.run(
        [sys.executable, *CHECKERS[checker]], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    errors = [line for line in answer.stdout.splitlines() if "error:" in line or " - error" in line]
    assert len(errors) == 1, answer.stdout + answer.stderr
    assert "no_such_method" in errors[0]
