"""What `streams replay` says when it is interrupted."""

import pytest

from tests.cli.conftest import Program

INTERRUPTED = """\
from pathlib import Path

from streams import StreamsBuilder, Topic

rows = Topic("rows", value=dict[str, int], timestamp=lambda row: row["at"])
out = Topic("out", value=dict[str, int])


def looked_at(row: dict[str, int]) -> dict[str, int]:
    if row["at"] == 8 and not Path("second").exists():
        raise KeyboardInterrupt  # As a signal would, in the middle of a slice.
    return row


def topology(builder: StreamsBuilder) -> None:
    builder.stream(rows).map_values(looked_at).to(out)
"""
REPLAY = ("replay", "rows.py", "--input", "rows=rows.jsonl", "--executor", "local", "--slices", "3")


@pytest.fixture
def interrupted(streams: Program) -> Program:
    streams.write("rows.py", INTERRUPTED)
    streams.write("rows.jsonl", "".join(f'{{"at": {number}}}\n' for number in range(1, 10)))
    return streams


def test_interrupted_replay_says_what_to_type_and_that_goes_on(interrupted: Program):
    done = interrupted(*REPLAY, "--snapshot", "my snapshot", "--output", "out=out.jsonl")

    assert done.status == 130
    way = done.err.splitlines()[-2]
    assert way == (
        "streams: completed work is kept; to continue: streams replay rows.py --input rows=rows.jsonl --executor local "
        "--slices 3 --snapshot 'my snapshot' --output out=out.jsonl --resume"
    )
    interrupted.write("second", "")
    resumed = interrupted(*REPLAY, "--snapshot", "my snapshot", "--output", "out=out.jsonl", "--resume")
    assert resumed.status == 0
    assert "done before and skipped" in resumed.err
    assert len(interrupted.read("out.jsonl")) == 9


def test_replay_without_a_folder_says_that_nothing_is_kept(interrupted: Program):
    done = interrupted(*REPLAY)

    assert done.status == 130
    assert "nothing is kept of a replay without --directory or --snapshot" in done.err
