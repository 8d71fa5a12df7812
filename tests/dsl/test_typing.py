"""What mypy and pyright make of user code without annotations in lambdas, from the package as it is installed.

``typing/positive.py`` must be clean; of ``typing/negative.py`` exactly the lines that end in
``# wrong`` must be reported, by both checkers.
"""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "typing"
ROOT = Path(__file__).parents[2]


def mypy(file: Path) -> dict[int, str]:
    """Return errors of mypy --strict by line."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.findall(rf"{re.escape(file.name)}:(\d+):.*?error: (.*)", done.stdout)
    assert found or done.returncode == 0, done.stdout + done.stderr
    return {int(line): message for line, message in found}


def pyright(file: Path) -> dict[int, str]:
    """Return errors of pyright by line."""
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed (make install)")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    errors = [item for item in report["generalDiagnostics"] if item["severity"] == "error"]
    return {item["range"]["start"]["line"] + 1: item["message"] for item in errors}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["positive.py", "settings_positive.py", "queries_positive.py"])
@pytest.mark.parametrize("check", [mypy, pyright])
def test_right_code_is_clean(check: Callable[[Path], dict[int, str]], name: str) -> None:
    """Lambdas get their argument types from topics and from the operators before, handlers from their settings."""
    assert check(HERE / name) == {}


@pytest.mark.case
@pytest.mark.parametrize("name", ["negative.py", "settings_negative.py"])
@pytest.mark.parametrize("check", [mypy, pyright])
def test_each_mistake_is_reported(check: Callable[[Path], dict[int, str]], name: str) -> None:
    """A wrong attribute, a wrong field in a joiner, a sink of another type, a misspelt setting, and the like."""
    file = HERE / name
    lines = file.read_text().splitlines()
    marks = ("# wrong", f"# wrong for {check.__name__}")
    expected = {number: line.strip() for number, line in enumerate(lines, 1) if line.endswith(marks)}

    reported = check(file)

    assert {line: expected[line] for line in expected.keys() - reported.keys()} == {}, "not reported"
    assert {line: reported[line] for line in reported.keys() - expected.keys()} == {}, "reported, but right"


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


@pytest.mark.slow
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
