"""Records that cannot be read are dropped when it is their turn, not when they are read ahead."""

from streams.core.blocks.records import Block, TaskId, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.event_time.timestamps import extractor_for
from streams.core.handlers import ErrorHandlerContext
from streams.core.metrics import Metrics
from streams.core.serdes.serdes import serde_for
from streams.runtime.tasks.handling import Handlers, HandlerSettings
from streams.runtime.tasks.queues import TaskQueues
from streams.runtime.tasks.sources import SourceReader

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
BAD = b"\x01"


class Source:
    """Queues of two partitions with a reader each, and what they dropped, in order."""

    def __init__(self, *, lanes_base: int | None = None) -> None:
        self.queues = TaskQueues([A, B], max_idle_ms=None)
        self.dead: list[tuple[bytes | None, int]] = []
        self._metrics = Metrics()
        handlers = Handlers(HandlerSettings(deserialization_handler=self._asked), self._metrics)
        self._readers = {
            partition: SourceReader(
                TaskId(0, 0),
                partition,
                "source",
                serde_for(str),
                serde_for(int),
                extractor_for(partition.topic, policy="fail_on_invalid", clock=VirtualClock(0)),
                handlers,
                lanes_base=lanes_base,
            )
            for partition in (A, B)
        }

    def _asked(self, context: ErrorHandlerContext, record: object, error: Exception) -> str:
        self.dead.append((context.source_raw_key, context.timestamp_ms))
        return "continue"

    @property
    def dropped(self) -> int:
        return self._metrics.get("dropped-records-total")

    def add(self, partition: TopicPartition, *rows: tuple[str, int], first: int = 0) -> None:
        """Add records of (key, time); a key that begins with "bad" has a value that cannot be read."""
        keys = [key.encode() for key, _ in rows]
        values = [BAD if key.startswith("bad") else bytes(8) for key, _ in rows]
        block = Block(keys, values, [time for _, time in rows], None, range(first, first + len(rows)))
        queue = self.queues[partition]
        batches, failure = self._readers[partition].read(block)
        assert failure is None
        for batch in batches:
            self.queues.add(queue, batch)
        queue.fetched = queue.end_offset = first + len(rows)

    def take(self, limit: int = 100) -> list[str]:
        """Process a run; return its keys."""
        run = self.queues.take(0, limit)
        if run is None:
            return []
        self.queues.done(run, len(run))
        return list(run.keys)


def test_drop_waits_for_the_records_before_it():
    source = Source()
    source.add(A, ("a1", 1), ("bad2", 2), ("a3", 9))
    source.add(B, ("b1", 5))

    assert source.dropped == 0
    assert source.take() == ["a1"]
    assert (source.dropped, source.queues[A].position) == (1, 2)


def test_bad_record_after_the_end_of_a_run_is_not_dropped_yet():
    """Partition B is empty and may get more, so only what lies before can be processed."""
    source = Source()
    source.add(A, ("a1", 1), ("a2", 2), ("bad3", 3), ("a4", 4))
    source.add(B, ("b1", 1))

    taken = [*source.take(), *source.take()]

    assert taken == ["a1", "b1"]
    assert source.queues[A].position == 1
    assert source.dropped == 0


def test_drop_at_the_head_moves_the_position_on_at_once():
    source = Source()
    source.add(A, ("bad1", 1), ("bad2", 2), ("a3", 3), ("bad4", 4))

    assert source.dropped == 2
    assert source.queues[A].position == 2

    source.add(A, ("bad5", 5), ("a6", 6), first=4)

    assert source.dropped == 2
    assert source.queues[A].size == 4, "two records, and two to be dropped"


def test_order_of_dead_letters_does_not_depend_on_the_length_of_runs():
    found = []
    for limit in (1, 100):
        source = Source()
        source.add(A, ("a1", 1), ("bad2", 2), ("a3", 7), ("bad4", 8))
        source.add(B, ("b1", 3), ("bad5", 4), ("b6", 5), ("bad6", 6))
        for partition in (A, B):
            source.queues[partition].is_ended = True
        order = []
        while keys := source.take(limit):
            order += keys + source.dead
            source.dead.clear()
        found.append(order)

    assert found[0] == found[1]
    assert [key for key in found[0] if isinstance(key, tuple)] == [
        (b"bad2", 2),
        (b"bad5", 4),
        (b"bad6", 6),
        (b"bad4", 8),
    ]
    assert found[0].index((b"bad2", 2)) == 1


def test_drop_of_a_lane_waits_for_its_place_among_all_inputs():
    """Also if it is the first or the last record of its lane, and however long the runs are."""
    for limit in (1, 2, 100):
        source = Source(lanes_base=0)
        source.add(A, ("bad3", 3), ("a4", 4), ("bad6", 6))
        assert (source.take(limit), source.dead) == ([], []), "the other lane may have an earlier record"
        source.add(B, ("b1", 1), ("bad2", 2), ("bad5", 5))
        for partition in (A, B):
            source.queues[partition].is_ended = True

        order: list[object] = []
        while source.queues.size:
            taken = source.take(limit)
            order += source.dead + taken
            source.dead.clear()

        assert order == ["b1", (b"bad2", 2), (b"bad3", 3), "a4", (b"bad5", 5), (b"bad6", 6)]
        assert [queue.position for queue in source.queues] == [3, 3]
        assert source.queues.is_drained
