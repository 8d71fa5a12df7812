"""Event time in step in live runs: what a bounded run writes, whatever threads and instances run the tasks.

Each application starts paused, and each test asserts which thread runs which task: a test in which one thread runs all
of them proves nothing.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from itertools import accumulate
from random import Random
from typing import Any

import pytest

from streams import (
    Admin,
    Consumer,
    EmbeddedBroker,
    Streams,
    StreamsBuilder,
    TimeWindows,
    Topic,
    TopicPartition,
    TopologyError,
    time_windowed,
)
from streams.bounded import run_bounded
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import Block, TaskId, lane_of
from streams.runtime.tasks.progress import MarkState
from tests.waiting import WATCHDOG_MS

HOUR = timedelta(hours=1)
PARTITIONS = 4
RECORDS = 4_000
EVENTS = Topic("events", key=str, value=int)
COUNTS = Topic("counts", key=time_windowed(str, HOUR), value=int)
GROUPED = Topic("grouped", key=str, value=int)
EXACTLY_ONCE = {"processing_guarantee": "exactly_once_v2"}
#: Partition, key, window start, count, timestamp: in the order of each partition.
Output = tuple[int, str, int, int, int]


def count_by_group(builder: StreamsBuilder) -> None:
    """Count per group and hour: the records of a group come from all partitions."""
    groups = builder.stream(EVENTS).filter(lambda _, value: value % 11 != 0).group_by(lambda _, value: f"g{value % 7}")
    windows = TimeWindows.of(HOUR, grace=timedelta(minutes=10))
    groups.windowed_by(windows).count("by-group").to_stream().to(COUNTS)


def rows() -> list[list[tuple[str, int, int]]]:
    """Events up to 500 s out of order, by partition; the partitions have from an eighth to two fifths of them."""
    random = Random(5)
    result: list[list[tuple[str, int, int]]] = [[] for _ in range(PARTITIONS)]
    for number in range(RECORDS):
        key = f"p{random.randrange(40)}"
        time_ms = 1_700_000_000_000 + number * 15_000 - random.choice([0, 0, 0, 60_000, 500_000])
        result[partition_for(key.encode(), PARTITIONS)].append((key, number, time_ms))
    return result


def blocks() -> list[tuple[int, Block]]:
    encoded = []
    for partition, own in enumerate(rows()):
        keys, values, times = (list(column) for column in zip(*own, strict=True))
        raw = [EVENTS.value_serde.serialize(value) for value in values]
        encoded.append((partition, Block([key.encode() for key in keys], raw, times, None, range(len(own)))))
    return encoded


def from_a_file(topology: Callable[[StreamsBuilder], None] = count_by_group) -> list[Output]:
    """Return the outputs of the bounded run."""

    def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        yield blocks()

    with run_bounded(topology, {"events": read}, application_id="file", partitions=PARTITIONS) as finished:
        assert not finished.dropped
        return [
            (number, key.key, key.window.start_ms, COUNTS.value_serde.deserialize(value), time)
            for number, block in finished.read_output("counts")
            for key, value, time in zip(
                map(COUNTS.key_serde.deserialize, block.keys), block.values, block.timestamps, strict=True
            )
        ]


def read_outputs(broker: EmbeddedBroker | None = None, **client: Any) -> list[Output]:
    """Return the committed outputs, partition by partition."""
    result: list[Output] = []
    with Consumer(broker, isolation_level="read_committed", **client) as consumer:
        partitions = [TopicPartition("counts", number) for number in range(PARTITIONS)]
        consumer.assign(partitions, [COUNTS])
        consumer.seek_to_beginning(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for record in consumer.poll(100):
                key = record.key
                result.append((record.partition, key.key, key.window.start_ms, record.value, record.timestamp_ms))
    return sorted(result, key=lambda row: row[0])


def threads_of(*applications: Streams) -> list[set[TaskId]]:
    """Return the tasks of each thread of all instances."""
    return [set(thread.tasks) for each in applications for thread in each.instance.stream_threads]


@contextmanager
def spread(
    broker: EmbeddedBroker | None,
    topology: Callable[[StreamsBuilder], None],
    *,
    instances: int = 1,
    threads: int = 1,
    **settings: Any,
) -> Iterator[list[Streams]]:
    """Yield running instances that are paused, when each of their threads has its share of the tasks."""
    options: dict[str, Any] = {
        "num_stream_threads": threads,
        "commit_interval_ms": 50,
        "heartbeat_interval_ms": 100,
        "poll_ms": 10,
        "cache_max_bytes": 0,
        **settings,
    }
    with ExitStack() as stack:
        made = [Streams(topology, application_id="live", broker=broker, **options) for _ in range(instances)]
        for each in made:
            each.pause()
            stack.enter_context(each)
        share = 2 * PARTITIONS // (instances * threads)
        until(lambda: [len(tasks) for tasks in threads_of(*made)] == [share] * instances * threads, *made)
        yield made


def until(is_true: Callable[[], bool], *applications: Streams) -> None:
    """Wait for a condition while no application has failed."""
    for _ in range(WATCHDOG_MS // 10):
        if is_true():
            return
        for each in applications:
            each.wait(10)
            assert each.failure is None
    raise AssertionError("the condition has not become true")


def is_done(broker: EmbeddedBroker, expected: Sequence[Output]) -> bool:
    """Return whether as many outputs are committed; the markers of transactions have offsets too."""
    return len(read_outputs(broker)) >= len(expected)


@contextmanager
def backlog() -> Iterator[EmbeddedBroker]:
    """Yield a broker with all events, before any application runs."""
    with EmbeddedBroker() as broker:
        broker.create_topic("events", PARTITIONS)
        broker.create_topic("counts", PARTITIONS)
        for partition, block in blocks():
            broker.append(TopicPartition("events", partition), block)
        yield broker


def count_through_a_topic(builder: StreamsBuilder) -> None:
    """The same over a topic of the user, which the application writes and reads."""
    groups = (
        builder.stream(EVENTS).filter(lambda _, value: value % 11 != 0).select_key(lambda _, value: f"g{value % 7}")
    )
    groups.to(GROUPED)
    windows = TimeWindows.of(HOUR, grace=timedelta(minutes=10))
    builder.stream(GROUPED).group_by_key().windowed_by(windows).count("by-group").to_stream().to(COUNTS)


@pytest.mark.parametrize(
    ("threads", "settings"), [(1, {}), (4, {}), (2, EXACTLY_ONCE)], ids=["one thread", "four threads", "exactly once"]
)
def test_a_topic_that_is_written_and_read_gives_what_a_file_gives(threads: int, settings: dict[str, Any]) -> None:
    """All outputs are equal, in the order of each partition, and none is late."""
    expected = from_a_file(count_through_a_topic)
    with backlog() as broker:
        broker.create_topic("grouped", PARTITIONS)
        with spread(broker, count_through_a_topic, threads=threads, **settings) as (live,):
            live.resume()
            until(lambda: live.metrics.get("process-total") == RECORDS + len(expected), live)

            assert live.metrics.get("dropped-records-total") == 0
            assert live.metrics.get("repartition-wait-ended-total") == 0
            live.close()
        assert read_outputs(broker) == expected


@pytest.mark.case(3)
@pytest.mark.parametrize("settings", [{}, EXACTLY_ONCE], ids=["at least once", "exactly once"])
@pytest.mark.parametrize(("instances", "threads"), [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2)])
def test_a_backlog_gives_what_a_file_gives(instances: int, threads: int, settings: dict[str, Any]) -> None:
    """All outputs are equal, in the order of each partition, and none is late."""
    expected = from_a_file()
    with backlog() as broker, spread(broker, count_by_group, instances=instances, threads=threads, **settings) as made:
        for each in made:
            each.resume()
        until(lambda: is_done(broker, expected), *made)

        assert sum(each.metrics.get("dropped-records-total") for each in made) == 0
        assert sum(each.metrics.get("repartition-wait-ended-total") for each in made) == 0
        for each in made:
            each.close()
        assert read_outputs(broker) == expected


def halves() -> list[list[tuple[int, Block]]]:
    """Return the events before and behind a place: what a run over all of them reads first, and then."""
    parts: list[list[tuple[int, Block]]] = [[], []]
    middle_ms = 1_700_000_000_000 + RECORDS // 2 * 15_000
    for partition, block in blocks():
        count = sum(place < middle_ms for place in accumulate(block.timestamps, max))
        parts[0].append((partition, block.slice(0, count)))
        parts[1].append((partition, block.slice(count, len(block))))
    return parts


@pytest.mark.case
@pytest.mark.parametrize("settings", [EXACTLY_ONCE, {}], ids=["exactly once", "at least once"])
def test_input_that_stops_and_comes_back_gives_what_a_file_gives(settings: dict[str, Any]) -> None:
    """The application is at rest in between, and has said that it is at its end."""
    expected = from_a_file()
    first, second = halves()
    with EmbeddedBroker() as broker:
        broker.create_topic("events", PARTITIONS)
        broker.create_topic("counts", PARTITIONS)
        for partition, block in first:
            broker.append(TopicPartition("events", partition), block)
        with spread(broker, count_by_group, instances=2, threads=2, **settings) as made:
            for each in made:
                each.resume()
            count = sum(EVENTS.value_serde.deserialize(value) % 11 != 0 for _, block in first for value in block.values)
            until(lambda: len(read_outputs(broker)) == count, *made)
            lanes = [lane_of(TaskId(0, number)) for number in range(PARTITIONS)]
            boards = [each.instance.stream_threads[0].shared.board for each in made]

            def states() -> list[MarkState]:
                return [mark.state for board in boards for mark in board.marks(lanes).values()]

            until(lambda: states() == [MarkState.AT_END] * 2 * PARTITIONS, *made)
            for each in made:
                each.pause()
            for partition, block in second:
                broker.append(TopicPartition("events", partition), block)
            until(lambda: states() == [MarkState.BEHIND] * 2 * PARTITIONS, *made)
            for each in made:
                each.resume()
            until(lambda: is_done(broker, expected), *made)

            assert sum(each.metrics.get("dropped-records-total") for each in made) == 0
        assert read_outputs(broker) == expected


def test_what_a_closed_instance_has_left_goes_on_in_order() -> None:
    """An instance ends in the middle, and another one takes up: lanes that are ahead are not read twice."""
    expected = from_a_file()
    with backlog() as broker:
        with spread(broker, count_by_group, threads=2, max_poll_records=50, **EXACTLY_ONCE) as (first,):
            first.resume()
            until(lambda: broker.end_offset(TopicPartition("counts", 0)) > 100, first)
        with spread(broker, count_by_group, threads=4, **EXACTLY_ONCE) as (second,):
            second.resume()
            until(lambda: is_done(broker, expected), second)
            assert second.metrics.get("dropped-records-total") == 0
        assert read_outputs(broker) == expected


def count_by_group_of_two(builder: StreamsBuilder) -> None:
    """The same with a repartition topic that does not grow with its source."""
    groups = (
        builder.stream(EVENTS).filter(lambda _, value: value % 11 != 0).select_key(lambda _, value: f"g{value % 7}")
    )
    windowed = (
        groups.repartition(partitions=2, key=str)
        .group_by_key()
        .windowed_by(TimeWindows.of(HOUR, grace=timedelta(minutes=10)))
    )
    windowed.count("by-group").to_stream().to(COUNTS)


def test_the_lanes_of_new_partitions_are_waited_for() -> None:
    """The topic grows while the readers of its repartition topic stay open."""
    expected = from_a_file(count_by_group_of_two)
    with EmbeddedBroker() as broker:
        broker.create_topic("events", 2)
        broker.create_topic("counts", PARTITIONS)
        settings = {"num_stream_threads": 2, "poll_ms": 10, "metadata_max_age_ms": 50}
        with Streams(count_by_group_of_two, application_id="live", broker=broker, **settings) as live:
            live.pause()
            until(lambda: [len(tasks) for tasks in threads_of(live)] == [2, 2], live)
            readers = {id(task) for thread in live.instance.stream_threads for task in thread.tasks.values()}
            with Admin(broker) as admin:
                admin.create_partitions({"events": PARTITIONS})
            until(lambda: sum(len(tasks) for tasks in threads_of(live)) == PARTITIONS + 2, live)
            until(lambda: all(thread.is_ready for thread in live.instance.stream_threads), live)
            assert readers & {id(task) for thread in live.instance.stream_threads for task in thread.tasks.values()}
            for partition, block in blocks():
                broker.append(TopicPartition("events", partition), block)
            lanes = [lane_of(TaskId(0, number)) for number in range(PARTITIONS)]
            board = live.instance.stream_threads[0].shared.board
            # What comes when tasks have been at their ends is in step from when they have said that they are behind.
            until(lambda: [mark.state for mark in board.marks(lanes).values()] == [MarkState.BEHIND] * PARTITIONS, live)
            live.resume()
            until(lambda: live.metrics.get("process-total") == RECORDS + len(expected), live)

            assert live.metrics.get("dropped-records-total") == 0
        assert read_outputs(broker) == expected


class Gate:
    """Lets one partition's task wait in a function until the test opens it."""

    def __init__(self, patience: timedelta | None = None) -> None:
        self.patience = patience
        self.is_open = threading.Event()
        self.keys = {key for key, *_ in rows()[0]}

    def __enter__(self) -> None:
        """Open the gate at the end, also after a failure: the application could not be closed."""

    def __exit__(self, *_: object) -> None:
        self.is_open.set()

    def topology(self, builder: StreamsBuilder) -> None:
        def wait(key: str, value: int) -> str:
            if key in self.keys:
                assert self.is_open.wait(WATCHDOG_MS / 1_000)
            return f"g{value % 7}"

        windows = TimeWindows.of(HOUR, grace=timedelta(minutes=10))
        groups = builder.stream(EVENTS).filter(lambda _, value: value % 11 != 0).select_key(wait)
        grouped = groups.repartition("by-group", patience=self.patience).group_by_key()
        grouped.windowed_by(windows).count("by-group").to_stream().to(COUNTS)


def test_tasks_that_are_ahead_wait_for_the_slowest_one() -> None:
    """The budget is 8 KiB for four tasks; the records are some 60 bytes, so that most of the backlog waits upstream."""
    expected = from_a_file()
    gate = Gate()
    with (
        backlog() as broker,
        spread(broker, gate.topology, threads=4, repartition_buffer_bytes=8_192, max_poll_records=100) as (live,),
    ):
        live.resume()
        others = [thread for thread in live.instance.stream_threads if TaskId(0, 0) not in thread.tasks]
        ahead = [thread for thread in others if any(task.sub_topology == 0 for task in thread.tasks)]
        until(lambda: all(any(stage.is_waiting for stage in thread.stages) for thread in ahead), live)

        written = sum(
            broker.end_offset(TopicPartition("live-by-group-repartition", number)) for number in range(PARTITIONS)
        )
        gate.is_open.set()
        until(lambda: is_done(broker, expected), live)

        assert written < RECORDS / 2
        assert live.metrics.get("dropped-records-total") == 0
        live.close()
        assert read_outputs(broker) == expected


@pytest.mark.parametrize(
    ("patience", "settings"),
    [(None, {"repartition_patience_ms": 100}), (timedelta(milliseconds=100), {})],
    ids=["setting", "topic"],
)
def test_a_task_that_does_not_move_is_waited_for_with_patience_only(
    patience: timedelta | None, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The others go on without its records, say so, and count the waits; the records come late.

    Each thread has one task, so that no other one waits with it.  A busy machine may let others wait as well.
    """
    gate = Gate(patience)
    _, *others = rows()
    with (
        caplog.at_level(logging.WARNING, "streams.runtime.in_step.lane_waits"),
        backlog() as broker,
        spread(broker, gate.topology, threads=2 * PARTITIONS, **settings) as (live,),
    ):

        def processed() -> int:
            ends = [broker.end_offset(TopicPartition("counts", number)) for number in range(PARTITIONS)]
            return sum(ends) + int(live.metrics.get("dropped-records-total"))

        live.resume()
        until(lambda: processed() == sum(value % 11 != 0 for own in others for _, value, _ in own), live)
        assert live.metrics.get("repartition-wait-ended-total") > 0
        gate.is_open.set()
        until(lambda: processed() == len(from_a_file()), live)
        assert live.metrics.get("dropped-records-total") > 0

    warnings = [record.getMessage() for record in caplog.records]
    assert any("task 0_0 has not moved for 100 ms (repartition_patience_ms" in each for each in warnings)


@pytest.mark.parametrize("settings", [{"repartition_patience_ms": 0}, {"max_task_idle_ms": -1}])
def test_without_patience_nothing_is_in_step_and_there_is_no_progress_topic(settings: dict[str, Any]) -> None:
    expected = from_a_file()
    with backlog() as broker, spread(broker, count_by_group, threads=2, **settings) as (live,):
        live.resume()
        until(lambda: live.metrics.get("process-total") == RECORDS + len(expected), live)

        assert "live-progress" not in broker.topics()


def test_the_topic_of_marks_is_none_of_the_user() -> None:
    def topology(builder: StreamsBuilder) -> None:
        count_by_group(builder)
        builder.stream(EVENTS).to(Topic("live-progress", key=str, value=int))

    with backlog() as broker, pytest.raises(TopologyError, match="'live-progress' is that of the progress of"):
        Streams(topology, application_id="live", broker=broker).start()


def test_an_application_that_keeps_up_writes_no_marks() -> None:
    """Records that come one by one are processed at once."""
    with EmbeddedBroker() as broker:
        broker.create_topic("events", PARTITIONS)
        broker.create_topic("counts", PARTITIONS)

        def written() -> int:
            return sum(broker.end_offset(TopicPartition("counts", number)) for number in range(PARTITIONS))

        with spread(broker, count_by_group, threads=2) as (live,):
            live.resume()
            threads = live.instance.stream_threads
            until(lambda: not any(task.has_work for thread in threads for task in list(thread.tasks.values())), live)
            progress = TopicPartition("live-progress", 0)
            before = broker.end_offset(progress)
            for partition, block in blocks():
                count = written()
                broker.append(TopicPartition("events", partition), block.slice(1, 2))
                until(partial(lambda count: written() > count, count), live)

            assert broker.end_offset(progress) - before <= 2 * PARTITIONS
