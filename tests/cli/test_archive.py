"""``streams archive``: topics of a state directory, kept for a replay."""

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Program


def run(streams: Program, rows: int) -> None:
    lines = [json.dumps({"key": f"k{n % 3}", "value": {"word": f"w{n}"}, "timestamp": n}) for n in range(rows)]
    streams.write("words.records.jsonl", "\n".join(lines))
    result = streams(
        "run", "counts.py", "--input", "words=words.records.jsonl", "--output", "counts=live.records.jsonl",
        "--partitions", "2", "--state-dir", "state",
    )  # fmt: skip
    assert result.status == 0, result


def test_topics_of_a_run_are_archived_and_replayed(streams: Program) -> None:
    run(streams, 10)

    result = streams("archive", "--topic", "words", "--topic", "counts", "--to", "history", "--state-dir", "state")

    assert (result.status, result.out) == (0, "")
    assert result.err.splitlines() == [
        "words: 10 records added, 10 in history",
        "counts: 10 records added, 10 in history",
    ]
    replayed = streams(
        "replay", "counts.py", "--input", "words=history", "--output", "counts=again.records.jsonl",
        "--partitions", "2", "--executor", "local",
    )  # fmt: skip
    assert replayed.status == 0, replayed
    assert streams.read("again.records.jsonl") == streams.read("live.records.jsonl")


@pytest.mark.slow
def test_run_again_it_adds_what_is_new(streams: Program) -> None:
    arguments = ("archive", "--topic", "words", "--to", "history", "--state-dir", "state")
    run(streams, 10)
    streams(*arguments)
    run(streams, 14)

    assert streams(*arguments).err == "words: 4 records added, 14 in history\n"


def test_mistakes_are_refused(streams: Program, refused: Callable[..., str]) -> None:
    run(streams, 2)
    to = ("--topic", "words", "--to", "history")

    assert "is not host:port" in refused("archive", *to, "--bootstrap-servers", "localhost")
    assert "has no embedded broker of `streams run`" in refused("archive", *to, "--state-dir", "nowhere")
    assert "has no topic 'wrds'; it has counts" in refused(
        "archive", "--topic", "wrds", "--to", "history", "--state-dir", "state"
    )
    assert "give the broker: --bootstrap-servers HOST:PORT, or --state-dir DIR" in refused("archive", *to)
    assert not (streams.folder / "history").exists()
