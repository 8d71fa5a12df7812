"""State that waits for a commit is bounded over all tasks of a thread."""

from streams import EmbeddedBroker, Streams, StreamsBuilder, Topic
from streams.core.records import Block, TaskId, TopicPartition
from streams.runtime.waiting import WaitingState

words = Topic("words", key=int, value=int)


def test_waiting_state_is_kept_up_run_by_run() -> None:
    waiting = WaitingState(100)
    first, second = TaskId(0, 0), TaskId(0, 1)

    assert not waiting.note(first, 60)
    assert not waiting.note(first, 100)
    assert waiting.note(second, 1)

    waiting.forget([first])
    assert not waiting.note(second, 100)
    waiting.forget([first, second])
    assert not waiting.note(first, 100)


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
            cache_max_bytes=0,
            commit_interval_ms=3_600_000,
        ) as streams:
            while streams.metrics.get("process-total") < 80_000:
                assert not streams.wait(5)
            assert streams.metrics.get("commit-total") > 4
