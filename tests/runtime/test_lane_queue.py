"""The lanes of a repartition partition in a live run: their order does not depend on arrival, marks and restarts."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks.records import NO_LANE, NO_TIMESTAMP, Lanes, TopicPartition, lanes_base
from streams.runtime.tasks.batches import Batch, Drop
from streams.runtime.tasks.lane_queue import PartitionLanes
from streams.runtime.tasks.queues import TaskQueues

PARTITION = TopicPartition("app-by-repartition", 0)
#: Lane, place and offset of a record.
Row = tuple[int, int, int]


def batch_of(rows: list[Row], drops: tuple[Drop, ...] = ()) -> Batch:
    offsets = [offset for *_, offset in rows]
    lanes = Lanes([lane for lane, *_ in rows], [place for _, place, _ in rows])
    return Batch(offsets, offsets, [place for _, place, _ in rows], None, offsets, drops, lanes)


def opened(lanes: set[int], position: int = 0, ahead: dict[int, int] | None = None) -> TaskQueues:
    own = PartitionLanes(frozenset(lanes))
    queues = TaskQueues([PARTITION], lanes={PARTITION: own})
    queue = queues[PARTITION]
    queue.position = queue.fetched = position
    own.start_at(position, ahead or {})
    return queues


def take(queues: TaskQueues, limit: int) -> list[int]:
    """Process up to ``limit`` records; return their offsets."""
    run = queues.take(0, limit)
    if run is None:
        return []
    queues.done(run, len(run))
    return list(run.offsets)


def add(queues: TaskQueues, rows: list[Row]) -> None:
    queues.add(queues[PARTITION], batch_of(rows))
    queues[PARTITION].fetched = rows[-1][-1] + 1


@st.composite
def logs(draw: st.DrawFn) -> list[Row]:
    """A log to which four tasks write, each with places that do not descend, in any order of their speeds."""
    lanes = {
        lane: list(accumulate(draw(st.lists(st.integers(0, 4), max_size=15))))
        for lane in draw(st.sets(st.integers(0, 3), min_size=1))
    }
    order = draw(st.permutations([lane for lane, places in lanes.items() for _ in places]))
    heads = {lane: iter(places) for lane, places in lanes.items()}
    return [(lane, next(heads[lane]), offset) for offset, lane in enumerate(order)]


def in_order(log: list[Row]) -> list[int]:
    return [offset for lane, place, offset in sorted(log, key=lambda row: (row[1], row[0]))]


def promise(queues: TaskQueues, log: list[Row], read: int) -> None:
    """Give each lane the best mark that its task can: the place of its next record, or its end."""
    own = queues[PARTITION].lanes
    assert own is not None
    for lane in range(4):
        rest = [place for number, place, offset in log if number == lane and offset >= read]
        own.note(lane, rest[0] if rest else NO_TIMESTAMP, is_open=bool(rest))
    queues[PARTITION].merge()


@given(logs(), st.data())
def test_order_is_by_place_whatever_arrives_first_and_after_restarts(log: list[Row], data: st.DataObject) -> None:
    """The records since the last commit are processed again after a restart: those and no others."""
    lanes = {0, 1, 2, 3}
    done: list[int] = []
    queues, read = opened(lanes), 0
    while len(done) < len(log):
        step = data.draw(st.sampled_from(["read", "mark", "process", "restart"]))
        if step == "read" and read < len(log):
            stop = data.draw(st.integers(read + 1, len(log)))
            add(queues, log[read:stop])
            read = stop
        elif step == "mark":
            promise(queues, log, read)
        elif step == "process":
            done += take(queues, data.draw(st.integers(1, 5)))
        elif step == "restart":
            queue = queues[PARTITION]
            assert queue.position is not None
            assert queue.lanes is not None
            read = queue.position
            assert read == min({*range(queue.fetched or 0)} - {*done}, default=queue.fetched)
            queues = opened(lanes, read, queue.lanes.ahead_of(read))
        if read == len(log):
            promise(queues, log, read)
            done += take(queues, 5)
        assert done == in_order(log)[: len(done)]

    assert queues[PARTITION].position == len(log)
    assert queues[PARTITION].lanes.ahead_of(len(log)) == {}


def test_a_lane_of_which_nothing_is_known_is_waited_for() -> None:
    queues = opened({1, 2})

    add(queues, [(1, 10, 0), (1, 20, 1)])

    assert take(queues, 9) == []
    queues[PARTITION].lanes.note(2, 15, is_open=True)
    queues[PARTITION].merge()
    assert take(queues, 9) == [0]
    assert not queues[PARTITION].is_at_end


def test_of_equal_places_the_lower_lane_is_first() -> None:
    queues = opened({1, 2})

    add(queues, [(2, 10, 0)])
    queues[PARTITION].lanes.note(1, 10, is_open=True)
    queues[PARTITION].merge()
    assert take(queues, 9) == []

    add(queues, [(1, 10, 1), (1, 11, 2)])
    assert take(queues, 9) == [1, 0]


def test_records_of_other_producers_are_taken_as_they_come() -> None:
    queues = opened({1})

    queues.add(queues[PARTITION], Batch(["a"], ["a"], [500], None, [0]))
    queues[PARTITION].fetched = 1

    assert take(queues, 9) == [0]


def test_a_record_that_cannot_be_read_is_dropped_in_its_lane_and_once() -> None:
    dropped: list[int] = []
    drop = Drop(1, lambda: dropped.append(1), lane=2, place_ms=12)
    queues = opened({1, 2})

    queues.add(queues[PARTITION], batch_of([(1, 10, 0)], (drop,)))
    add(queues, [(2, 13, 2)])
    assert dropped == []
    assert queues[PARTITION].position == 0

    promise(queues, [], 3)
    assert take(queues, 9) == [0]
    assert (dropped, queues[PARTITION].position) == ([], 1)
    assert take(queues, 1) == []
    assert (dropped, queues[PARTITION].position) == ([1], 2)
    assert take(queues, 9) == [2]
    assert queues[PARTITION].position == 3


def test_a_lane_does_not_fall_back_to_the_place_of_a_record_that_cannot_be_read() -> None:
    queues = opened({1, 2})
    queues.add(queues[PARTITION], batch_of([(1, 20, 0)], (Drop(1, lambda: None, lane=1, place_ms=12),)))
    add(queues, [(2, 15, 2)])

    assert take(queues, 9) == [2]


def test_a_record_of_another_producer_that_cannot_be_read_is_dropped_as_it_comes() -> None:
    dropped: list[int] = []
    queues = opened({1})

    queues.add(queues[PARTITION], Batch([], [], [], None, [], [Drop(0, lambda: dropped.append(0), place_ms=500)]))

    assert take(queues, 9) == []
    assert dropped == [0]


@pytest.mark.parametrize("bound", [14, 15])
def test_a_record_of_another_input_below_the_bound_of_an_empty_partition_does_not_wait(bound: int) -> None:
    other = TopicPartition("source", 0)
    own = PartitionLanes(frozenset({1}))
    queues = TaskQueues([other, PARTITION], lanes={PARTITION: own})
    for partition in (other, PARTITION):
        queues[partition].position = queues[partition].fetched = 0
        queues[partition].end_offset = 0
    own.start_at(0, {})
    queues.add(queues[other], Batch(["a"], ["a"], [15], None, [0]))
    queues[other].fetched = queues[other].end_offset = 1

    own.note(1, bound, is_open=True)

    assert take(queues, 9) == ([0] if bound == 15 else [])
    own.note(1, bound, is_open=False)
    assert take(queues, 9) == ([] if bound == 15 else [0])
    assert NO_LANE in own.lanes


def test_records_of_another_application_belong_to_no_lane_and_have_the_place_of_their_times() -> None:
    """Its tasks have the same numbers; records of nobody are merged with those of lanes by the places of both."""
    own = lanes_base("own")
    rows = Lanes([own + 1, lanes_base("another") + 1, 1, own + 1], [10, 7, 8, 11]).above(own)

    assert (list(rows.lanes), list(rows.places)) == ([1, NO_LANE, NO_LANE, 1], [10, NO_TIMESTAMP, NO_TIMESTAMP, 11])
    queues = opened({1})
    batch = Batch(["a"] * 4, ["a"] * 4, [10, 500, 600, 11], None, [0, 1, 2, 3], lanes=rows)
    queues.add(queues[PARTITION], batch)
    queues[PARTITION].fetched = 4
    run = queues.take(0, 9)
    assert run is not None
    assert list(zip(run.offsets, run.places, strict=True)) == [(1, 500), (2, 600), (0, 10), (3, 11)]
