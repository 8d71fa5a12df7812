"""Uncommitted state is bounded over all tasks of a thread."""

from streams import EmbeddedBroker, Streams, StreamsBuilder, Topic
from streams.core.blocks.records import Block, TaskId, TopicPartition
from streams.runtime.threads.uncommitted import UncommittedState

words = Topic("words", key=int, value=int)


def test_sum_of_uncommitted_bytes_is_updated_by_each_run() -> None:
    uncommitted = UncommittedState(100)
    first, second = TaskId(0, 0), TaskId(0, 1)

    assert not uncommitted.note(first, 60)
    assert not uncommitted.note(first, 100)
    assert uncommitted.note(second, 1)

    uncommitted.forget([first])
    assert not uncommitted.note(second, 100)
    uncommitted.forget([first, second])
    assert not uncommitted.note(first, 100)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("counts")


def test_much_state_is_committed_before_its_time() -> None:
    """Far less than the interval has passed, but each of four tasks has changed 20,000 entries."""
    with EmbeddedBroker() as broker:
        broker.create_topic("words", 4)
        rows = [number.to_bytes(8, "big") for number in range(20_000)]
        for number in range(4):
            broker.append(TopicPartition("words", number), Block(rows, rows, [0] * len(rows)))
        with Streams(
            topology,
            application_id="app",
            broker=broker,
            state_memory_max_bytes=8 << 20,
            commit_interval_ms=3_600_000,
        ) as streams:
            while streams.metrics.get("process-total") < 80_000:
                assert not streams.wait(5)
            assert streams.metrics.get("commit-total") > 4
