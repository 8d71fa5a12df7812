"""Operators whose sources are idle are advanced with the wall clock, and nothing is emitted twice."""

import re
from datetime import timedelta

import pytest

from streams import (
    ConfigError,
    EmitStrategy,
    JoinWindows,
    Processor,
    PunctuationType,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topic,
    TopologyError,
    build_topology,
)
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.concurrency.calls import SteppedLoop
from streams.core.metrics import Metrics
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.tasks.checkpoint import Checkpoint
from streams.runtime.tasks.progress import ProgressBoard
from streams.runtime.tasks.task import Task, TaskState
from streams.state import open_store
from streams.testing import TopologyTestDriver

SECOND = timedelta(seconds=1)
orders, others = Topic("orders", key=str, value=int), Topic("others", key=str, value=int)
out = Topic("out", key=str, value=int)
INPUT = TopicPartition("orders", 0)


def windowed(windows, builder):
    grouped = builder.stream(orders, idle_close=5 * SECOND).group_by_key()
    return grouped.windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("counts")


def counting(builder: StreamsBuilder) -> None:
    windowed(TimeWindows.of(10 * SECOND), builder).to_stream().map(lambda key, count: (key.key, count)).to(out)


def sliding(builder: StreamsBuilder) -> None:
    table = windowed(SlidingWindows.of(7 * SECOND), builder)
    table.to_stream().map(lambda key, count: (key.key, count)).to(out)


def sessions(builder: StreamsBuilder) -> None:
    table = windowed(SessionWindows.of(6 * SECOND), builder)
    table.to_stream(tombstones=False).map(lambda key, count: (key.key, count)).to(out)


def suppressing(builder: StreamsBuilder) -> None:
    grouped = builder.stream(orders, idle_close=5 * SECOND).group_by_key()
    table = grouped.windowed_by(TimeWindows.of(10 * SECOND)).count()
    table.suppress(Suppressed.until_window_closes()).to_stream().map(lambda key, count: (key.key, count)).to(out)


def joining(builder: StreamsBuilder) -> None:
    left, right = builder.stream(orders, idle_close=5 * SECOND), builder.stream(others)
    left.left_join(right, lambda one, two: one + (two or 0), JoinWindows.of(6 * SECOND)).to(out)


class Ticker(Processor[str, int, str, int]):
    """Forwards the stream time every 7 s of it."""

    def init(self, context) -> None:
        context.schedule(7 * SECOND, PunctuationType.STREAM_TIME, lambda now_ms: context.forward("tick", now_ms))

    def process(self, record) -> None:
        pass


def ticking(builder: StreamsBuilder) -> None:
    builder.stream(orders, idle_close=5 * SECOND).process(Ticker).to(out)


# --- what is advanced -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (counting, [("a", 2)]),
        (sliding, [("a", 2), ("a", 1)]),
        (sessions, [("a", 2)]),
        (suppressing, [("a", 2)]),
        (joining, [("a", 1), ("a", 1)]),
        (ticking, [("tick", 7000)]),
    ],
)
def test_results_come_without_a_further_record(topology, expected):
    driver = TopologyTestDriver(topology, now_ms=1_000_000)
    driver.pipe(orders, 1, key="a", timestamp_ms=2000)
    driver.pipe(orders, 1, key="a", timestamp_ms=3000)
    driver.read(out)

    driver.advance_wall_clock(3_999)
    assert driver.read(out) == []
    driver.advance_wall_clock(1_001)
    early = driver.read(out)
    driver.advance_wall_clock(20_000)
    late = driver.read(out)

    if topology is ticking:
        assert early == [] or early[0][1] >= 7000
        assert [value >= 7000 for _, value in [*early, *late]][:1] == [True]
    else:
        assert [*early, *late] == expected


def test_stream_time_goes_on_from_where_it_was_and_never_jumps_to_the_wall_clock():
    driver = TopologyTestDriver(counting, now_ms=1_700_000_000_000)
    driver.pipe(orders, 1, key="a", timestamp_ms=3000)

    driver.advance_wall_clock(6_999)
    assert driver.read(out) == []
    driver.advance_wall_clock(1)

    assert driver.read(out) == [("a", 1)]
    # 10 s of stream time: the next window is open.
    driver.pipe(orders, 1, key="a", timestamp_ms=10_001)
    assert driver.metric("dropped-records") == 0


def test_older_record_after_an_idle_period_is_late_and_counted():
    driver = TopologyTestDriver(counting)
    driver.pipe(orders, 1, key="a", timestamp_ms=3000)
    driver.advance_wall_clock(8_000)

    driver.pipe(orders, 1, key="a", timestamp_ms=4000)

    assert driver.read(out) == [("a", 1)]
    assert [(drop.reason, drop.count) for drop in driver.drops()] == [("late", 1)]


def test_sources_with_different_limits_must_be_idle_together_for_the_longest():
    def topology(builder: StreamsBuilder) -> None:
        both = builder.stream(orders, idle_close=60 * SECOND).merge(builder.stream(others, idle_close=5 * SECOND))
        counts = both.group_by_key().windowed_by(TimeWindows.of(SECOND)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        counts.count().to_stream().map(lambda key, count: (key.key, count)).to(out)

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 1, key="a", timestamp_ms=0)
    driver.advance_wall_clock(30_000)
    driver.pipe(others, 1, key="a", timestamp_ms=0)

    driver.advance_wall_clock(59_999)
    assert driver.read(out) == []
    driver.advance_wall_clock(1)
    assert driver.read(out) == [("a", 2)]


def test_a_record_ends_the_idle_time():
    driver = TopologyTestDriver(counting)
    for second in range(3, 9):
        driver.pipe(orders, 1, key="a", timestamp_ms=second * 1000)
        driver.advance_wall_clock(4_000)

    assert driver.read(out) == []


def test_without_a_limit_only_records_advance_stream_time():
    def topology(builder: StreamsBuilder) -> None:
        grouped = builder.stream(orders).group_by_key().windowed_by(TimeWindows.of(10 * SECOND))
        grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to_stream().map(lambda k, v: (k.key, v)).to(out)

    for settings, expected in (({}, []), ({"idle_close_ms": 5_000}, [("a", 1)])):
        driver = TopologyTestDriver(topology, **settings)
        driver.pipe(orders, 1, key="a", timestamp_ms=3000)
        driver.advance_wall_clock(100_000)
        assert driver.read(out) == expected


def test_zero_keeps_a_source_out_of_the_setting():
    def topology(builder: StreamsBuilder) -> None:
        grouped = builder.stream(orders, idle_close=timedelta(0)).group_by_key().windowed_by(TimeWindows.of(SECOND))
        grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to_stream().map(lambda k, v: (k.key, v)).to(out)

    driver = TopologyTestDriver(topology, idle_close_ms=1)
    driver.pipe(orders, 1, key="a", timestamp_ms=0)
    driver.advance_wall_clock(100_000)

    assert driver.read(out) == []


def test_topics_that_a_pattern_matches_later_count_as_inputs():
    """The test driver adds them to a task that is open."""

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(re.compile("or.*"), key=str, value=int, idle_close=5 * SECOND)
        counts = stream.group_by_key().windowed_by(TimeWindows.of(10 * SECOND))
        counts.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to_stream().map(lambda k, v: (k.key, v)).to(out)

    orphans = Topic("orphans", key=str, value=int)
    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 1, key="a", timestamp_ms=3000)
    for _ in range(3):
        driver.advance_wall_clock(4_000)
        driver.pipe(orphans, 1, key="a", timestamp_ms=3000)
    assert driver.read(out) == []
    driver.advance_wall_clock(7_000)

    assert driver.read(out) == [("a", 4)]
    assert driver.drops() == []


def test_an_active_side_keeps_a_join_open_but_not_the_windows_of_the_other_side():
    def topology(builder: StreamsBuilder) -> None:
        left, right = builder.stream(orders, idle_close=5 * SECOND), builder.stream(others)
        left.left_join(right, lambda one, two: one + (two or 0), JoinWindows.of(6 * SECOND)).to(out)
        counts = left.group_by_key().windowed_by(TimeWindows.of(SECOND)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        counts.count().to_stream().map(lambda key, count: (key.key, -count)).to(out)

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 1, key="a", timestamp_ms=100)
    for _ in range(5):
        driver.advance_wall_clock(4_000)
        driver.pipe(others, 1, key="b", timestamp_ms=100)
    assert driver.read(out) == [("a", -1)]

    driver.advance_wall_clock(10_000)
    assert driver.read(out) == [("a", 1)]


@pytest.mark.case
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_window_downstream_of_another_one_loses_nothing(partitions):
    """Its time stays behind by what the windows upstream keep back, in one task or through a repartition topic."""

    def topology(builder: StreamsBuilder) -> None:
        first = windowed(TimeWindows.of(10 * SECOND), builder)
        second = first.to_stream().group_by(lambda key, count: "all", key=str, value=int)
        table = second.windowed_by(TimeWindows.of(20 * SECOND)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        table.reduce(lambda one, two: one + two).to_stream().map(lambda key, count: (key.key, count)).to(out)

    for step in (1_000, 600_000):
        driver = TopologyTestDriver(topology, partitions=partitions)
        for second in (1, 5, 12, 13, 19):
            driver.pipe(orders, 1, key="a", timestamp_ms=second * 1000)
            driver.advance_wall_clock(1_000)
        for _ in range(0, 600_000, step):
            driver.advance_wall_clock(step)
        assert driver.read(out) == [("all", 5)]
        assert driver.drops() == []


@pytest.mark.case(4)
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("jump_ms", [60_000, 3_600_000])
@pytest.mark.parametrize("limit_ms", [5, 5_000])
def test_results_of_idle_windows_reach_the_windows_downstream_however_far_the_clock_is_advanced(
    partitions, jump_ms, limit_ms
):
    """An early result opens a window downstream, which must stay open until the final one has come."""

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(orders, idle_close=timedelta(milliseconds=limit_ms))
        windows = TimeWindows.of(timedelta(milliseconds=10), grace=timedelta(milliseconds=40))
        first = stream.group_by_key().windowed_by(windows).emit(early_every=2).count("first").to_stream()
        again = first.group_by(lambda key, count: key.key, key=str, value=int).windowed_by(windows)
        second = again.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("second")
        second.to_stream().map(lambda key, count: (key.key, count)).to(out)

    with TopologyTestDriver(topology, partitions=partitions) as driver:
        for key in "abc":
            driver.pipe(orders, 1, key=key, timestamp_ms=0)
            driver.pipe(orders, 1, key=key, timestamp_ms=1)
        driver.advance_wall_clock(jump_ms)

        assert (sorted(driver.read(out)), driver.drops()) == ([("a", 2), ("b", 2), ("c", 2)], [])


def test_cached_updates_are_part_of_the_final_result():
    driver = TopologyTestDriver(suppressing, cache_max_bytes=1 << 20)
    for second in range(3):
        driver.pipe(orders, 1, key="a", timestamp_ms=second * 1000)
    driver.advance_wall_clock(20_000)

    assert driver.read(out) == [("a", 3)]


def test_the_idle_time_is_checked():
    with pytest.raises(TopologyError, match="idle_close of stream must not be negative"):
        StreamsBuilder().stream(orders, idle_close=-SECOND)
    with pytest.raises(TopologyError, match="idle_close of stream must be a timedelta"):
        StreamsBuilder().stream(orders, idle_close=5)  # type: ignore[call-overload]
    with pytest.raises(TopologyError, match="idle_close of stream must be in whole milliseconds"):
        StreamsBuilder().stream(orders, idle_close=timedelta(microseconds=999))
    with pytest.raises(ConfigError, match="idle_close_ms"):
        StreamsConfig.of(idle_close_ms=-1)


# --- restart ----------------------------------------------------------------------------


def open_task(stores, checkpoint: Checkpoint | None = None, now_ms: int = 0, topology=counting, loop=None) -> Task:
    config = StreamsConfig.of(application_id="app")
    plan = ApplicationPlan.make(
        build_topology(topology, config), config, VirtualClock(now_ms), {"orders": 1, "out": 1}, is_single_task=True
    )
    (task_id,) = plan.groups
    if not stores:
        stores |= {spec.name: open_store(spec, None, default_engine="in_memory") for spec in plan.stores_of(task_id)}
    return plan.open_task(
        task_id,
        TaskState(stores, checkpoint=checkpoint or Checkpoint(), call_loop=loop),
        Metrics(),
    )


def output_count(task: Task) -> int:
    return sum(len(block) for _, block in task.take_outputs())


def test_a_restart_continues_the_idle_time_and_emits_nothing_twice():
    stores: dict = {}
    task = open_task(stores)
    task.note_end(INPUT, 1)
    task.add(INPUT, Block([b"a"], [(1).to_bytes(8, "big")], [3000], None, range(1)))
    assert task.process(0, 10) == 1
    task.close_idle(1_000)
    saved = Checkpoint.from_metadata(task.checkpoint().offset_metadata([INPUT]))

    # Nothing came in while no instance ran: the window has closed in the meantime.
    again = open_task(stores, saved, now_ms=9_000)
    again.note_end(INPUT, 1)
    assert again.close_idle(9_000) == 0, "the end is not reached yet"
    again.seek(INPUT, 1)
    assert again.close_idle(9_000) == 1
    assert output_count(again) == 1
    saved = Checkpoint.from_metadata(again.checkpoint().offset_metadata([INPUT]))

    third = open_task(stores, saved, now_ms=20_000)
    third.seek(INPUT, 1)
    third.note_end(INPUT, 1)
    assert third.close_idle(20_000) == 0
    assert output_count(third) == 0


def test_an_idle_task_has_nothing_to_commit_until_results_come():
    task = open_task({})
    task.note_end(INPUT, 1)
    task.add(INPUT, Block([b"a"], [(1).to_bytes(8, "big")], [3000], None, range(1)))
    task.process(0, 10)
    task.close_idle(0)
    task.take_outputs()
    task.write_state({})

    for now_ms in range(0, 7_000, 500):
        task.close_idle(now_ms)
        assert not task.is_dirty
    task.close_idle(7_000)
    assert task.is_dirty


def test_records_in_the_log_keep_a_task_from_being_idle():
    task = open_task({})
    task.note_end(INPUT, 2)
    task.add(INPUT, Block([b"a"], [(1).to_bytes(8, "big")], [3000], None, range(1)))
    task.process(0, 10)

    assert task.close_idle(0) == 0
    assert task.close_idle(100_000) == 0
    assert task.next_deadline_ms() is None


def test_a_check_that_was_postponed_before_the_idle_time_began_is_due_again():
    """Nothing else announces it: a resting thread would wait for ever."""
    task = open_task({})
    task.note_end(INPUT, 1)
    task.add(INPUT, Block([b"a"], [(1).to_bytes(8, "big")], [3000], None, range(1)))
    task.process(0, 10)

    task.idle.postpone(1_000)
    assert task.next_deadline_ms() == 1_250
    task.close_idle(1_250)
    assert task.next_deadline_ms() == 6_250


def test_unprocessed_input_upstream_keeps_a_repartition_topic_from_being_idle():
    """Its idle time begins when the tasks upstream have processed their input."""

    def topology(builder: StreamsBuilder) -> None:
        grouped = builder.stream(orders, idle_close=5 * SECOND).group_by(
            lambda key, value: key + "!", name="all", key=str
        )
        windowed = grouped.windowed_by(TimeWindows.of(SECOND)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        windowed.count("counts").to_stream().map(lambda key, count: (key.key, count)).to(out)

    config = StreamsConfig.of(application_id="app")
    plan = ApplicationPlan.make(build_topology(topology, config), config, VirtualClock(0), {"orders": 1, "out": 1})
    upstream, downstream = (
        plan.open_task(
            task_id,
            TaskState(
                {spec.name: open_store(spec, None, default_engine="in_memory") for spec in plan.stores_of(task_id)}
            ),
            Metrics(),
        )
        for task_id in sorted(plan.groups)
    )
    assert (upstream.feeds_idle, downstream.feeds_idle) == (True, False)
    (repartition,) = downstream.inputs
    downstream.note_end(repartition, 1)
    downstream.add(repartition, Block([b"a"], [(1).to_bytes(8, "big")], [3000], None, range(1)))
    downstream.process(0, 10)
    board = ProgressBoard()

    def close_idle(now_ms: int) -> int:
        """The tasks are on two threads."""
        board.note_busy("one", [0] if upstream.has_work else [])
        return downstream.close_idle(now_ms, board.note_busy("two", []))

    assert upstream.has_work, "its end is not known"
    assert close_idle(0) == close_idle(60_000) == 0
    upstream.seek(INPUT, 0)
    upstream.note_end(INPUT, 0)
    for node in (upstream, downstream):
        node.initialize()
    assert not upstream.has_work
    assert close_idle(60_000) == close_idle(65_000) == 0
    assert (downstream.next_deadline_ms() or 0) == 65_250, "upstream operators may be advanced up to 250 ms later"
    assert close_idle(65_250) == 1

    upstream.note_end(INPUT, 1)
    assert upstream.has_work
    assert close_idle(66_000) == 0
    assert (downstream.next_deadline_ms() or 0) > 66_000, "it does not spin"
    board.leave("one")
    assert board.note_busy("two", []) == frozenset()


def test_calls_in_flight_keep_a_task_from_being_idle():
    """Their results are older than the time to which the operators downstream would be advanced."""

    class Calls:
        in_flight, room = 1, 1

    task = open_task({})
    task.note_end(INPUT, 1)
    task.add(INPUT, Block([b"a"], [(1).to_bytes(8, "big")], [3000], None, range(1)))
    task.process(0, 10)
    task.close_idle(0)
    task.calls = Calls()  # type: ignore[assignment]

    assert task.close_idle(100_000) == 0
    assert (task.next_deadline_ms() or 0) > 100_000, "it does not spin"
    task.calls = None
    assert task.close_idle(101_000) == 1


def test_a_batch_that_waits_for_records_keeps_a_task_from_being_idle():
    """It ends with its own limit: results that an idle input brought about would wait for the next commit."""

    def negated(values: list[int]) -> list[int]:
        return [-value for value in values]

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(orders, idle_close=SECOND)
        batches = stream.map_values_batches(negated, max_records=10, max_wait=3 * SECOND)
        counts = batches.group_by_key().windowed_by(TimeWindows.of(4 * SECOND))
        counts.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to_stream().map(lambda k, v: (k.key, v)).to(out)
        batches.to(out)

    task = open_task({}, topology=topology, loop=SteppedLoop(VirtualClock()))
    task.note_end(INPUT, 1)
    task.add(INPUT, Block([b"a"], [(1).to_bytes(8, "big")], [3000], None, range(1)))
    task.process(0, 10)
    task.close_idle(0)
    assert task.close_idle(2_000) == 0
    assert output_count(task) == 0

    task.punctuate(3_000)
    assert output_count(task) == 1
    assert [task.close_idle(now_ms) for now_ms in (3_000, 3_999, 4_000)] == [0, 0, 1]
    assert output_count(task) == 1


def test_records_that_wait_for_calls_do_not_make_the_thread_spin():
    """Without room for calls, the end of a call is awaited, though the wait for an empty input is over."""

    class Calls:
        in_flight, room = 10, 0

    task = open_task({})
    task.initialize()
    task.add(INPUT, Block([b"a"], [(1).to_bytes(8, "big")], [3000], None, range(1)))
    task.queues[INPUT].idle_deadline_ms = 50
    task.idle = None
    assert task.next_deadline_ms() == 50

    task.calls = Calls()  # type: ignore[assignment]

    assert task.process(100, 10) == 0
    assert task.next_deadline_ms() is None
