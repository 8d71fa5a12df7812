"""Tasks that regroup records stay in step: what they write into one repartition topic is not late there."""

import threading
from datetime import timedelta

import pytest

from streams import EmbeddedBroker, Streams, StreamsBuilder, TimeWindows, Topic, TopicPartition
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import Block
from streams.runtime.tasks import stage
from tests.waiting import WATCHDOG_MS

PARTITIONS = 4
RECORDS = 20_000
clicks = Topic("clicks", key=str, value=str)
counts = Topic("counts", key=str, value=int)


def by_user(builder: StreamsBuilder) -> None:
    """Count per user; the records of a page lie in one partition, those of a user in all of them."""
    windows = TimeWindows.of(timedelta(seconds=10), grace=timedelta(seconds=1))
    by_name = builder.stream(clicks).group_by(lambda _, user: user)
    counted = by_name.windowed_by(windows).count("clicks-by-user").to_stream(lambda key, _: key.key)
    counted.to(counts)


def write(broker: EmbeddedBroker, number: int, count: int) -> None:
    """Write records to a partition, one for each 4 ms, as large blocks: a fetch brings thousands of them."""
    times = [index * PARTITIONS for index in range(count)]
    users = [b"user%d" % (index * 7 % 50) for index in range(count)]
    for start in range(0, count, 5_000):
        part = slice(start, start + 5_000)
        block = Block([b"page%d" % number] * len(times[part]), users[part], times[part])
        broker.append(TopicPartition("clicks", number), block)


@pytest.mark.parametrize("empty", [None, 2])
def test_no_record_is_late_behind_a_repartition_topic(empty, monkeypatch):
    """Also where one of the partitions has nothing, which is not waited for; a machine may be slow with a fetch."""
    monkeypatch.setattr(stage, "PATIENCE_MS", WATCHDOG_MS)
    with EmbeddedBroker() as broker:
        broker.create_topic("clicks", PARTITIONS)
        broker.create_topic("counts", 1)
        written = 0
        for number in range(PARTITIONS):
            if number != empty:
                write(broker, number, RECORDS)
                written += RECORDS
        done = threading.Event()

        def follow() -> None:
            while streams.metrics.get("process-total") < 2 * written and not streams.wait(20):
                pass
            done.set()

        settings = {"poll_ms": 10}
        with Streams(by_user, application_id="stepping", broker=broker, **settings) as streams:
            threading.Thread(target=follow, daemon=True).start()
            assert done.wait(WATCHDOG_MS / 1_000)

        assert streams.failure is None
        assert streams.metrics.get("dropped-records-total") == 0
        assert broker.end_offset(TopicPartition("counts", 0)) == written


def test_users_are_spread():
    """Else nothing would meet in a partition."""
    assert len({partition_for(b"user%d" % number, PARTITIONS) for number in range(50)}) == PARTITIONS
