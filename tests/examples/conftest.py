"""What the examples' tests share: real input where it is there, synthetic input from a seed, the command line."""

import csv
import gzip
import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import programs
from tests.waiting import WATCHDOG_S

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "topology_examples"
DATA = ROOT.parent / "shared" / "data"

Rows = list[dict[str, Any]]


def python(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run this Python in a folder, as a user who has installed the package would."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return programs.run([*map(str, arguments)], cwd=cwd, env=environment | {"PYTHONUTF8": "1"}, timeout=WATCHDOG_S)


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., str]:
    """Run an example by itself from an empty folder and return what it prints."""

    def run(name: str, *arguments: object, cwd: Path = tmp_path) -> str:
        done = python(EXAMPLES / name, *arguments, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def stream_runner(folder: Path) -> Callable[..., dict[str, Rows]]:
    """Return a function that does `streams run` bounded in a folder and returns the records of each output topic."""

    def run(
        script: str | Path,
        inputs: dict[str, Path],
        outputs: Sequence[str],
        *,
        partitions: int = 1,
        options: Sequence[str] = (),
    ) -> dict[str, Rows]:
        name, _, function = str(script).partition(":")
        path = Path(name) if os.sep in name else EXAMPLES / name
        paths = {topic: folder / f"{topic}.{partitions}.records.jsonl" for topic in outputs}
        done = python(
            *("-m", "streams", "run", f"{path}:{function}" if function else path, "--partitions", partitions),
            *(word for topic, file in inputs.items() for word in ("--input", f"{topic}={file}")),
            *(word for topic, file in paths.items() for word in ("--output", f"{topic}={file}")),
            *options,
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr
        assert "dropped" not in done.stderr, done.stderr
        assert done.stdout == "", "nothing but data goes to standard output, and that was not asked for"
        return {topic: [json.loads(line) for line in file.open()] for topic, file in paths.items()}

    return run


@pytest.fixture
def run_stream(tmp_path: Path) -> Callable[..., dict[str, Rows]]:
    """Run `streams run` bounded; return the records of each output topic, in topic order."""
    return stream_runner(tmp_path)


@pytest.fixture(scope="session")
def make_run() -> Callable[[Path], Callable[..., dict[str, Rows]]]:
    """Return what makes such a run in a given folder, for fixtures that live longer than a test."""
    return stream_runner


def table_of(rows: Rows) -> dict[Any, Any]:
    """Return what a topic of updates says in the end; a null value deletes its key."""
    table = {}
    for row in rows:
        key = tuple(row["key"].values()) if isinstance(row["key"], dict) else row["key"]
        table[key] = row["value"]
    return {key: value for key, value in table.items() if value is not None}


@pytest.fixture(name="table_of")
def table_of_fixture() -> Callable[[Rows], dict[Any, Any]]:
    """Return the function of that name."""
    return table_of


def synthetic_log(lines: int, seed: int) -> Iterator[str]:
    """Yield lines in the combined log format: half of them late by up to a minute, some by ten."""
    rng = random.Random(seed)
    start = datetime(2026, 2, 27, 22, tzinfo=UTC)
    clients = [f"192.0.2.{number}" for number in range(150)]
    statuses = [200] * 16 + [304, 304, 404, 403, 500, 503]
    for number in range(lines):
        late = rng.choice([0, 0, rng.randrange(60), rng.randrange(60), rng.randrange(600) if number % 7 == 0 else 0])
        time = start + timedelta(seconds=number * 40 - late)
        yield (
            f"{rng.choice(clients[: 1 + number % 150])} - - [{time:%d/%b/%Y:%H:%M:%S +0000}] "
            f'"GET /page/{rng.randrange(9)} HTTP/1.1" '
            f'{rng.choice(statuses)} {rng.randrange(100_000)} "-" "Mozilla/5.0 (\\"odd\\" agent)"'
        )


@pytest.fixture(params=["synthetic", "real"])
def access_log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return an access log in which many lines are older than the line before them."""
    if request.param == "real":
        path = DATA / "apache_access.log.gz"
        if not path.exists():
            pytest.skip("the real log is not here")
        return path
    path = tmp_path / "access.log"
    path.write_text("".join(line + "\n" for line in synthetic_log(3000, seed=11)))
    return path


def _synthetic_weather(seed: int) -> Iterator[dict[str, str]]:
    rng = random.Random(seed)
    start = datetime(2025, 12, 28, tzinfo=UTC)
    for origin in ("EWR", "JFK", "LGA"):
        for hour in range(24 * 90):
            if rng.random() < 0.95:
                time = start + timedelta(hours=hour)
                temp = "NA" if rng.random() < 0.02 else f"{rng.uniform(10, 60):.2f}"
                yield {"origin": origin, "temp": temp, "time_hour": f"{time:%Y-%m-%dT%H:%M:%SZ}"}


@pytest.fixture(params=["synthetic", "real"])
def weather(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Path]:
    """Return the weather of three stations, a file of rows for each topic."""
    if request.param == "real":
        path = DATA / "nyc_weather_2013.csv.gz"
        if not path.exists():
            pytest.skip("the real weather is not here")
        with gzip.open(path, "rt", newline="") as stream:
            rows = list(csv.DictReader(stream))
    else:
        rows = list(_synthetic_weather(seed=5))
    files = {}
    for origin in ("EWR", "JFK", "LGA"):
        file = files[origin.lower()] = tmp_path / f"{origin}.csv"
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0].keys())
            writer.writeheader()
            writer.writerows(row for row in rows if row["origin"] == origin)
    return files


@pytest.fixture
def run_module(tmp_path: Path) -> Callable[..., str]:
    """Run a module of the checkout and return what it prints."""

    def run(module: str, *arguments: object) -> str:
        done = python("-m", module, *arguments, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
