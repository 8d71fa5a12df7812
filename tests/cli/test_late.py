"""Exit status and words of runs over files in no order of time."""

import json
import random

import pytest

from tests.cli.conftest import Program

WINDOWS = """\
from datetime import timedelta

from streams import StreamsBuilder, TimeWindows, Topic, time_windowed

rows = Topic("rows", key=str, value=dict[str, int], timestamp=lambda row: row["at"], key_from=lambda row: "k")
hours = Topic("hours", key=time_windowed(str, timedelta(hours=1)), value=int)


def topology(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(timedelta(hours=1))
    builder.stream(rows).group_by_key().windowed_by(windows).count("by-hour").to_stream().to(hours)
"""
HOPPING = "TimeWindows.of(timedelta(hours=1), advance=timedelta(minutes=15))"
COMMANDS = {"run": (), "replay": ("--executor", "local")}


@pytest.fixture
def shuffled(streams: Program) -> Program:
    """A day of 200 records in no order, the last hour first."""
    streams.write("windows.py", WINDOWS)
    times = [1 + number * 400_000 for number in range(200)]
    random.Random(1).shuffle(times)
    times.sort(key=lambda time: time < 76_000_000)
    streams.write("rows.jsonl", "".join(json.dumps({"at": at}) + "\n" for at in times))
    return streams


@pytest.mark.case
@pytest.mark.parametrize("command", COMMANDS)
def test_late_records_above_the_limit_are_an_exit_status_of_their_own(command: str, shuffled: Program):
    arguments = (
        command,
        "windows.py",
        "--input",
        "rows=rows.jsonl",
        "--output",
        "hours=hours.jsonl",
        *COMMANDS[command],
    )

    done = shuffled(*arguments)

    assert done.status == 3
    assert "streams: by-hour: 19" in done.err
    assert "of 200 records dropped as late (9" in done.err
    assert "history of topic 'rows' is out of order by up to 22 h 6 min; sort it by time" in done.err
    assert "more than --max-dropped 1%: the outputs are written, but exit status is 3" in done.end
    assert 0 < len(shuffled.read("hours.jsonl")) < 20
    accepted = shuffled(*arguments, "--max-dropped", "100%")
    assert (accepted.status, "by-hour: 19" in accepted.err) == (0, True)
    assert shuffled(*arguments, "--max-dropped", "150").status == 3
    assert shuffled(*arguments, "--max-dropped", "200").status == 0
    charted = shuffled(*arguments, "--max-dropped", "100%", "--charts", "charts.txt")
    assert charted.status == 0
    charts = (shuffled.folder / "charts.txt").read_text()
    assert charts.startswith("by-hour: 19")
    assert charts.endswith("(keeps 100.0%)\n")
    assert shuffled(*arguments, "--max-dropped", "100%", "--charts", "charts.svg").status == 0
    assert (shuffled.folder / "charts.svg").read_text().startswith("<svg")
    wrong = shuffled(*arguments, "--max-dropped", "few")
    assert (wrong.status, "give a share such as 1%, or a number of records" in wrong.err) == (2, True)


@pytest.mark.slow
def test_record_counts_for_each_window_so_that_a_share_above_all_records_is_needed(shuffled: Program):
    """Windows of an hour that advance by a quarter: a record is late for four."""
    shuffled.write("windows.py", WINDOWS.replace("TimeWindows.of(timedelta(hours=1))", HOPPING))
    arguments = ("run", "windows.py", "--input", "rows=rows.jsonl", "--output", "hours=hours.jsonl", "--max-dropped")

    done = shuffled(*arguments, "100%")

    assert (done.status, "more than --max-dropped 100%" in done.end) == (3, True)
    assert shuffled(*arguments, "400%").status == 0
    assert "A record counts once for each window" in " ".join(shuffled("run", "--help").out.split())


def test_live_run_has_no_such_limit(shuffled: Program):
    done = shuffled("run", "windows.py", "--max-dropped", "1%")

    assert (done.status, "--max-dropped needs --input" in done.err) == (2, True)
