"""What `streams replay` says when it is interrupted, and outputs that are folders."""

import pytest

from streams import StreamsBuilder, Topic
from streams.replay import Plan, replay
from tests.cli.conftest import Program

INTERRUPTED = """\
from pathlib import Path

from streams import StreamsBuilder, Topic

rows = Topic("rows", value=dict[str, int], timestamp=lambda row: row["at"])
out = Topic("out", value=dict[str, int])


def looked_at(row: dict[str, int]) -> dict[str, int]:
    if row["at"] == 23 and not Path("second").exists():
        raise KeyboardInterrupt  # As a signal would, in the middle of a slice.
    return row


def topology(builder: StreamsBuilder) -> None:
    builder.stream(rows).map_values(looked_at).to(out)
"""
REPLAY = ("replay", "rows.py", "--input", "rows=rows.jsonl", "--executor", "local", "--slices", "12")


@pytest.fixture
def interrupted(streams: Program) -> Program:
    streams.write("rows.py", INTERRUPTED)
    streams.write("rows.jsonl", "".join(f'{{"at": {number}}}\n' for number in range(1, 25)))
    return streams


def test_interrupted_replay_says_what_to_type_and_that_goes_on(interrupted: Program):
    done = interrupted(*REPLAY, "--snapshot", "my snapshot", "--output", "out=out.jsonl")

    assert done.status == 130
    way = done.err.splitlines()[-2]
    assert way == (
        "streams: completed work is kept; to continue: streams replay rows.py --input rows=rows.jsonl --executor local "
        "--slices 12 --snapshot 'my snapshot' --output out=out.jsonl --resume"
    )
    interrupted.write("second", "")
    resumed = interrupted(*REPLAY, "--snapshot", "my snapshot", "--output", "out=out.jsonl", "--resume")
    assert resumed.status == 0
    assert "10 slices were done before and skipped" in resumed.err  # They share their calls; two were in the next ones.
    assert len(interrupted.read("out.jsonl")) == 24


@pytest.mark.slow
def test_replay_without_a_folder_says_that_nothing_is_kept(interrupted: Program):
    done = interrupted(*REPLAY)

    assert done.status == 130
    assert "nothing is kept of a replay without --directory or --snapshot" in done.err


@pytest.mark.slow
def test_output_to_a_folder_is_partitioned_and_written_once(interrupted: Program):
    import duckdb

    interrupted.write("second", "")
    given = ("--output", "out=parquet:lake/out", "--partition-by", "out=day", "--directory", "work")
    assert interrupted(*REPLAY, *given).status == 0
    assert interrupted(*REPLAY, *given, "--resume").status == 0

    folder = interrupted.folder / "lake/out"
    found = duckdb.sql(f"select count(*), count(distinct \"offset\") from '{folder}/day=1970-01-01/*.parquet'")
    assert found.fetchall() == [(24, 24)]


def test_columns_of_partitions_are_checked_before_the_replay(interrupted: Program):
    given = ("--output", "out=parquet:lake/out", "--partition-by", "out=dya", "--directory", "work")

    done = interrupted(*REPLAY, *given)

    assert done.status == 2
    assert "partition_by 'dya': there is no such column; give day, key" in done.err
    assert not (interrupted.folder / "work").exists()


@pytest.mark.parametrize("option", ["--partition-by", "--overwrite"])
def test_option_for_a_folder_needs_one(interrupted: Program, option: str):
    done = interrupted(*REPLAY, "--output", "out=out.jsonl", option, "out=day" if option == "--partition-by" else "out")

    assert done.status == 2
    assert f"{option} out: no --output writes this topic to a folder or table" in done.err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("out=out.jsonl",), "--output-mode last: no --output is a folder or table"),
        (("out=parquet:lake/out", "--overwrite", "out"), "--overwrite out: not with --output-mode last"),
    ],
)
def test_last_values_are_of_folders_and_do_not_overwrite(interrupted: Program, given: tuple[str, ...], message: str):
    done = interrupted(*REPLAY, "--output-mode", "last", "--output", *given)

    assert done.status == 2
    assert message in done.err


def test_progress_has_an_estimate_of_the_time_that_is_left():
    from streams.cli.commands.replay import state_of
    from streams.cli.progress import times_text
    from streams.replay import ReplayProgress

    progress = ReplayProgress(2, 3, 0, 2, 1, 4, 1_000, 601_000, 1_000, share=0.25)
    assert state_of(progress) == ("slice 2 of 3, stage 1 of 2, task 1 of 4, 1,000 records, 1,000/s", 0.25)
    assert times_text(0.25, 2400, 2400) == "25%, 40 min, about 2 h left"


def test_share_of_a_replay_rises_to_the_end(tmp_path):
    """It stood still while a stage ran, there was none once the records of later stages were counted, and the last
    line was "task 1 of 0".
    """
    numbers = Topic("numbers", key=str, value=int, timestamp=lambda value: value)
    (tmp_path / "numbers.records.jsonl").write_text("".join(f'{{"key": "k", "value": {n}}}\n' for n in range(1000)))
    seen = []

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(numbers).group_by(lambda key, number: str(number % 7)).count("seen").to_stream().to("out")

    replay(
        topology,
        {numbers: tmp_path / "numbers.records.jsonl"},
        plan=Plan(executor="local", processes=1, slices=2, progress=seen.append),
    )

    shares = [progress.share for progress in seen]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert {0.2, 0.99} < set(shares)
    last = seen[-1]
    assert (last.stage, last.tasks_done) == (last.stages - 1, last.tasks)
    assert last.tasks > 0
