"""Processes that are killed in the middle, and what their successors find."""

import json
import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests import programs

SCRIPT = """
from streams import StreamsBuilder, Topic

numbers = Topic("numbers", key=str, value=int, key_from=lambda n: f"k{n % 97}", timestamp=lambda n: n)
counts = Topic("counts", key=str, value=int)
highest = Topic("highest", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    grouped = builder.stream(numbers).group_by_key()
    grouped.count("counts-store").to_stream().to(counts)
    grouped.reduce(max, "highest-store").to_stream().to(highest)
"""
ROWS = 60_000
OUTPUTS = ("counts", "highest")


@pytest.fixture
def command(tmp_path):
    """The command of one run; every run has the same state directory."""
    script, rows = tmp_path / "script.py", tmp_path / "numbers.jsonl"
    script.write_text(SCRIPT)
    rows.write_text("".join(f"{(n * 7919) % ROWS}\n" for n in range(ROWS)))
    outputs = [word for name in OUTPUTS for word in ("--output", f"{name}={tmp_path / name}.records.jsonl")]
    return [
        *("-m", "streams", "run", str(script), "--input", f"numbers={rows}", *outputs),
        *("--partitions", "3", "--state-dir", str(tmp_path / "state")),
        *("--set", "commit_interval_ms=20", "--set", "max_poll_records=50"),
    ]


def written(folder: Path) -> int:
    """Return the bytes of counts that have been written so far."""
    size = 0
    for name in ("counts", "*-counts.lanes"):
        for file in (folder / "state/broker/logs").glob(f"{name}-*/*.log"):
            # The run may delete a file between two looks.
            with suppress(FileNotFoundError):
                size += file.stat().st_size
    return size


def started(command: list[str], folder: Path, more: int) -> Any:
    """Start a run and return it when it has written so many more bytes of counts, or has ended."""
    wanted = written(folder) + more
    process = programs.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while written(folder) < wanted and process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.005)
    return process


def lives(folder: Path) -> Iterator[None]:
    """Begin from nothing again and again: on a busy machine a run may end before it is looked at, and ends a life."""
    while True:
        yield
        shutil.rmtree(folder / "state", ignore_errors=True)
        for name in OUTPUTS:
            (folder / f"{name}.records.jsonl").unlink()


def kill_again_and_again(command: list[str], folder: Path, moments: random.Random, *, runs: int, most: int) -> int:
    """Kill runs after random amounts of output, then leave one alone; return how many were hit at work."""
    killed = 0
    for _ in range(runs):
        process = started(command, folder, moments.randrange(20_000, most))
        if process.poll() is None:
            process.kill()
            killed += 1
        _, stderr = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), stderr
    done = programs.run(command)
    assert done.returncode == 0, done.stderr
    return killed


def tables(folder: Path) -> tuple[dict[str, int], dict[str, int], int]:
    """Return the final counts, the final highest values and the number of updates of counts."""
    rows = {name: [json.loads(line) for line in (folder / f"{name}.records.jsonl").open()] for name in OUTPUTS}
    counts, highest = ({row["key"]: row["value"] for row in rows[name]} for name in OUTPUTS)
    return counts, highest, len(rows["counts"])


TRUE_COUNTS = Counter(f"k{n % 97}" for n in range(ROWS))
TRUE_HIGHEST = {f"k{rest}": max(range(rest, ROWS, 97)) for rest in range(97)}


@pytest.mark.slow
def test_killed_runs_miss_nothing_and_repeat_only_what_was_not_committed(command, tmp_path, seeds):
    """Killed at random moments; the last run is left alone."""
    killed, moments = 0, random.Random(11)
    for _ in lives(tmp_path):
        killed += kill_again_and_again(command, tmp_path, moments, runs=4 * seeds, most=300_000)

        counts, highest, updates = tables(tmp_path)

        assert highest == TRUE_HIGHEST
        assert all(counts[key] >= count for key, count in TRUE_COUNTS.items())
        # Each record that was processed again has written its update again.
        assert sum(counts.values()) - ROWS <= updates - ROWS
        assert updates - ROWS < ROWS
        if killed > 2:
            break


@pytest.mark.slow
def test_after_orderly_stops_everything_is_equal(command, tmp_path):
    """SIGTERM in the middle commits; the next run takes up exactly there."""
    stopped = 0
    for _ in lives(tmp_path):
        for _ in range(4):
            process = started(command, tmp_path, 500_000)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                stopped += 1
            process.communicate(timeout=300)
        done = programs.run(command)
        assert done.returncode == 0, done.stderr

        counts, highest, updates = tables(tmp_path)

        assert counts == TRUE_COUNTS
        assert highest == TRUE_HIGHEST
        assert updates == ROWS
        if stopped > 1:
            break


@pytest.mark.slow
def test_exactly_once_counts_every_row_once_however_often_it_is_killed(command, tmp_path, seeds):
    """Every update is in the output once, and the counts are exact."""
    command = [*command, "--set", "processing_guarantee=exactly_once_v2"]
    killed, moments = 0, random.Random(12)
    for _ in lives(tmp_path):
        killed += kill_again_and_again(command, tmp_path, moments, runs=5 * seeds, most=600_000)

        counts, highest, updates = tables(tmp_path)

        assert counts == TRUE_COUNTS
        assert highest == TRUE_HIGHEST
        assert updates == ROWS
        if killed > 1:
            break
