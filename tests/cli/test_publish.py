"""``streams publish``: outputs of a replay into the broker of a state directory."""

import json
from collections.abc import Callable

from streams import EmbeddedBroker
from streams.core.blocks.records import TopicPartition
from tests.cli.conftest import Program


def snapshot(streams: Program) -> None:
    lines = [json.dumps({"key": f"k{n % 3}", "value": {"word": f"w{n}"}, "timestamp": 1000 + n}) for n in range(10)]
    streams.write("words.records.jsonl", "\n".join(lines))
    result = streams(
        "replay", "counts.py", "--input", "words=words.records.jsonl", "--output", "counts=counts.records.jsonl",
        "--partitions", "2", "--executor", "local", "--snapshot", "snapshot",
    )  # fmt: skip
    assert result.status == 0, result


def test_outputs_are_published_once(streams: Program) -> None:
    snapshot(streams)

    first = streams("publish", "snapshot", "--state-dir", "state")
    second = streams("publish", "snapshot", "--topic", "counts", "--state-dir", "state")

    assert (first.status, first.out, first.err) == (0, "", "counts: 10 records published\n")
    assert (second.status, second.out, second.err) == (0, "", "counts: 0 records published\n")
    with EmbeddedBroker(streams.folder / "state" / "broker") as broker:
        found = [
            (number, time)
            for number in range(2)
            for block in broker.read(TopicPartition("counts", number), 0, committed_only=True)
            for time in block.timestamps
        ]
    assert found == [(record["partition"], record["timestamp"]) for record in streams.read("counts.records.jsonl")]


def test_mistakes_are_refused(streams: Program, refused: Callable[..., str]) -> None:
    snapshot(streams)

    assert "has no output topic 'words'; it has counts" in refused(
        "publish", "snapshot", "--topic", "words", "--state-dir", "state"
    )
    assert "is not a snapshot" in refused("publish", "nowhere", "--state-dir", "state")
    assert "is not host:port" in refused("publish", "snapshot", "--bootstrap-servers", "h")
