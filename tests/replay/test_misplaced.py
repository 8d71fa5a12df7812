"""Keys of a topic's history that are not in their partition; of files, which a replay places itself, all are."""

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from streams import EmbeddedBroker, Producer, StreamsBuilder, Topic
from streams.core.blocks.partitioning import partition_for
from streams.core.errors import StreamsError
from streams.replay import Archive, replay
from streams.replay.history.archive import archive_topic

orders = Topic("orders", key=str, value=int)
counts = Topic("counts", key=str, value=int)
KEYS = [f"customer-{number}" for number in range(60)]
MISPLACED = sum(crc32(key.encode()) % 4 != partition_for(key.encode(), 4) for key in KEYS)
LOCAL: dict[str, Any] = {"executor": "local", "processes": 1}


def topology(builder: StreamsBuilder) -> None:
    builder.stream(orders).group_by_key().count("counted").to_stream().to(counts)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    with EmbeddedBroker() as broker:
        broker.create_topic(orders, 4)
        with Producer(broker, partitioner=lambda topic, key, value, count: crc32(key or b"") % count) as producer:
            for number, key in enumerate(KEYS):
                producer.send(orders, number, key=key, timestamp_ms=number)
        archive_topic(broker, "orders", tmp_path / "archive")
    return tmp_path / "archive"


def test_replay_of_an_archive_says_how_many_there_are_and_why(archive: Path, caplog: pytest.LogCaptureFixture) -> None:
    with replay(topology, {orders: Archive(archive)}, **LOCAL) as result:
        (found,) = result.misplaced

    assert (found.topic, found.count, found.sampled) == ("orders", MISPLACED, len(KEYS))
    (said,) = (record.getMessage() for record in caplog.records if "misplaced" in record.getMessage())
    assert said == str(found)
    assert said.startswith(f"{MISPLACED} of 60 sampled keys are misplaced; topic 'orders': key b'customer-")
    assert "CRC32 (the default of librdkafka" in said


def test_fail_ends_the_replay(archive: Path) -> None:
    with pytest.raises(StreamsError, match="topic 'orders': key b'customer-"):
        replay(topology, {orders: Archive(archive)}, misplaced_keys="fail", **LOCAL)


def test_partitions_that_rows_name_are_meant_so(tmp_path: Path) -> None:
    rows = [
        {"key": key, "value": number, "timestamp": number, "partition": crc32(key.encode()) % 4}
        for number, key in enumerate(KEYS)
    ]
    (tmp_path / "orders.records.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    with replay(topology, {orders: tmp_path / "orders.records.jsonl"}, partitions=4, **LOCAL) as result:
        assert result.misplaced == []
