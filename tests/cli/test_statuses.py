"""The exit statuses of ``streams run`` are those of the table in the guide."""

import re
import signal
from pathlib import Path

import pytest

from streams import EmbeddedBroker
from tests.cli.conftest import Program

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "operating.md"
#: What a restart does, by exit status.
TABLE = {
    int(status): restart for status, restart in re.findall(r"^\| (\d+) \| .* \| ([^|]*) \|$", GUIDE.read_text(), re.M)
}
UNREACHABLE = ("--bootstrap-servers", "127.0.0.1:1", "--set", "request_timeout_ms=200", "--set", "task_timeout_ms=200")
LATE = """
from datetime import timedelta
from streams import StreamsBuilder, TimeWindows, Topic

numbers = Topic("numbers", key=str, value=int)

def topology(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(timedelta(seconds=1), grace=timedelta(0))
    builder.stream(numbers).group_by_key().windowed_by(windows).count("seen").to_stream().to("out")
"""
INTERRUPTED = """
import os, signal
from streams import StreamsBuilder, Topic

def interrupt(number: int) -> int:
    os.kill(os.getpid(), signal.SIGINT)
    return number

def topology(builder: StreamsBuilder) -> None:
    builder.stream(Topic("numbers", value=int)).map_values(interrupt).repartition().to("out")
"""


@pytest.mark.case
@pytest.mark.parametrize(
    ("status", "arguments"),
    [
        (0, ("halves.py", "--input", "numbers=good.jsonl")),
        (1, ("halves.py", "--input", "numbers=bad.jsonl")),
        (1, ("halves.py", *UNREACHABLE)),
        (1, ("halves.py", *UNREACHABLE, "--workers", "2")),
        (1, ("halves.py", "--input", "numbers=good.jsonl", "--state-dir", "used")),
        (2, ("missing.py", "--input", "numbers=good.jsonl")),
        (2, ("halves.py", "--set", "commit_interval=1")),
        (3, ("late.py", "--input", "numbers=late.records.jsonl")),
        (130, ("interrupted.py", "--input", "numbers=good.jsonl")),
    ],
)
def test_a_run_ends_with_the_status_of_the_table(streams: Program, status: int, arguments: tuple[str, ...]):
    streams.write("good.jsonl", "1\n2\n")
    streams.write("bad.jsonl", "1\n0\n")
    streams.write("late.py", LATE)
    rows = [(100_000, "a"), (1_000, "b")]
    lines = [f'{{"key": "{key}", "value": 1, "timestamp": {time}}}\n' for time, key in rows]
    streams.write("late.records.jsonl", "".join(lines))
    streams.write("interrupted.py", INTERRUPTED)
    with EmbeddedBroker(streams.folder / "used" / "broker"):
        found = streams("run", *arguments)

    assert found.status == status, found
    assert TABLE[status].partition(":")[0] == {1: "yes", 130: "manually"}.get(status, "no")


@pytest.mark.slow
def test_a_live_run_that_a_signal_ends_has_succeeded(streams: Program):
    process = streams.start("run", "halves.py")
    assert process.stderr is not None
    while "runs on" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)

    assert process.returncode == 0
    assert TABLE[0] == "no"


COUNTING = """
from dataclasses import dataclass
from streams import Topic

@dataclass
class Total:
    points: int

numbers = Topic("numbers", key=str, value=int)

def topology(builder):
    totals = builder.stream(numbers).group_by_key()
    totals.aggregate(lambda: Total(0), lambda key, number, total: Total(total.points + number), "totals", value=Total)
"""


def test_a_store_of_another_version_of_its_class_is_a_mistake_and_diff_knows_it_before(streams: Program):
    """A service manager would restart status 1 for ever."""
    streams.write("v1.py", COUNTING)
    streams.write("v2.py", COUNTING.replace("points", "score"))
    streams.write("numbers.records.jsonl", '{"key": "ann", "value": 1}\n')
    options = ("--input", "numbers=numbers.records.jsonl", "--state-dir", "state", "--application-id", "totals")
    assert streams("run", "v1.py", *options).status == 0

    done = streams("run", "v2.py", *options)
    compared = streams("diff", "v1.py", "v2.py", "--only-state")

    assert done.status == 2
    advice = "give new fields a default value, convert the values with @migrate('totals', 1, 2)"
    assert "the field 'points' is gone and 'score' is new" in done.err
    assert advice in done.err
    assert "cannot: NEW must not continue" in compared.out
    assert "NEW refuses them at its start" in compared.out
