"""Order in which a task takes its records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import ProcessingError, TopicPartition
from streams.runtime.tasks.batches import Batch
from streams.runtime.tasks.queues import TaskQueues

LEFT, RIGHT = TopicPartition("left", 0), TopicPartition("right", 0)


def batch(times, start=0):
    return Batch([None] * len(times), list(times), list(times), None, range(start, start + len(times)))


def fill(queues, partition, times, *, ended=False, more=False):
    """Buffer records with these times; ``more`` says that the log has some that are not here."""
    queue = queues[partition]
    if times:
        queue.add(batch(times))
    queue.position, queue.fetched = 0, len(times)
    queue.end_offset, queue.is_ended = len(times) + more, ended


def taken(queues, limit=1000, now_ms=0):
    """Take everything that may be taken now, as (topic, time)."""
    result = []
    while run := queues.take(now_ms, limit):
        result += [(run.queue_of(index).partition.topic, time) for index, time in enumerate(run.timestamps)]
        queues.done(run, len(run))
    return result


def test_lowest_head_goes_first_and_ties_go_to_the_first_input():
    queues = TaskQueues([LEFT, RIGHT])
    fill(queues, LEFT, [5, 1, 7])
    fill(queues, RIGHT, [3, 5, 9])

    assert taken(queues) == [("right", 3), ("left", 5), ("left", 1), ("right", 5), ("left", 7), ("right", 9)]


def greedy(inputs):
    """The rule as it is written: always the lowest head, ties by input."""
    heads, result = [0] * len(inputs), []
    while any(head < len(times) for head, times in zip(heads, inputs, strict=True)):
        _, number = min(
            (times[head], number)
            for number, (head, times) in enumerate(zip(heads, inputs, strict=True))
            if head < len(times)
        )
        result.append((number, inputs[number][heads[number]]))
        heads[number] += 1
    return result


TIMES = st.lists(st.integers(0, 20), max_size=12)


@given(st.lists(TIMES, min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 6))
def test_runs_follow_the_greedy_rule_however_they_are_cut(inputs, limit, size):
    """Runs by sorting, in any size of run and batch, give the order of one-at-a-time selection."""
    partitions = [TopicPartition("in", number) for number in range(len(inputs))]
    queues = TaskQueues(partitions, max_idle_ms=None)
    for partition, times in zip(partitions, inputs, strict=True):
        queue = queues[partition]
        for start in range(0, len(times), size):
            # Larger than what is joined, so that the cuts between batches stay.
            queue.batches.append(batch(times[start : start + size], start))
        queue.size = len(times)
        queue.position, queue.fetched, queue.end_offset, queue.is_ended = 0, len(times), len(times), True

    found = []
    while run := queues.take(0, limit):
        found += [(run.queue_of(index).partition.partition, time) for index, time in enumerate(run.timestamps)]
        queues.done(run, len(run))

    assert found == greedy(inputs)
    assert queues.is_drained
    assert [queue.position for queue in queues] == [len(times) for times in inputs]


def test_run_ends_where_a_partition_with_more_to_come_runs_empty():
    """The right one's next record may be older than what the left one still has."""
    queues = TaskQueues([LEFT, RIGHT])
    fill(queues, LEFT, [1, 2, 8, 9])
    fill(queues, RIGHT, [3, 4], more=True)

    assert taken(queues) == [("left", 1), ("left", 2), ("right", 3), ("right", 4)]


def test_empty_partition_that_is_caught_up_is_not_waited_for():
    queues = TaskQueues([LEFT, RIGHT])
    fill(queues, LEFT, [1, 2])
    fill(queues, RIGHT, [])

    assert taken(queues) == [("left", 1), ("left", 2)]


def test_unknown_end_of_a_partition_holds_the_task_but_for_idle_minus_one():
    """KIP-695: as long as the log may have more, 0 waits for it and -1 does not."""
    for idle, expected in ((0, []), (-1, [("left", 1)])):
        queues = TaskQueues([LEFT, RIGHT], max_idle_ms=idle)
        fill(queues, LEFT, [1])

        assert taken(queues) == expected


def test_idle_time_runs_from_when_the_task_could_have_gone_on():
    """KIP-353: an empty partition is waited for 100 ms."""
    queues = TaskQueues([LEFT, RIGHT], max_idle_ms=100)
    fill(queues, LEFT, [1, 2])
    fill(queues, RIGHT, [])

    assert taken(queues, now_ms=1000) == []
    assert queues.next_deadline_ms() == 1100
    assert taken(queues, now_ms=1099) == []
    assert taken(queues, now_ms=1100) == [("left", 1), ("left", 2)]


def test_empty_partitions_are_waited_for_one_after_the_other():
    """KIP-695: whether one may be left behind is not asked while the one before it is waited for."""
    middle = TopicPartition("middle", 0)
    queues = TaskQueues([LEFT, middle, RIGHT], max_idle_ms=100)
    fill(queues, LEFT, [1, 2])
    fill(queues, middle, [])
    fill(queues, RIGHT, [])

    assert taken(queues, now_ms=1000) == []
    assert taken(queues, now_ms=1150) == []
    assert queues.next_deadline_ms() == 1250
    assert taken(queues, now_ms=1250) == [("left", 1), ("left", 2)]


def test_wait_for_records_that_are_not_fetched_has_no_deadline():
    """They end the wait when they arrive.  The deadline of an earlier wait, long past, would make the thread spin."""
    middle = TopicPartition("middle", 0)
    queues = TaskQueues([LEFT, middle, RIGHT], max_idle_ms=100)
    fill(queues, LEFT, [1])
    fill(queues, middle, [])
    fill(queues, RIGHT, [])
    assert taken(queues, now_ms=1000) == []
    assert not queues.awaits_fetch

    queues[RIGHT].end_offset = 1
    assert taken(queues, now_ms=1100) == []
    assert queues.awaits_fetch
    assert queues.next_deadline_ms() is None

    fill(queues, RIGHT, [2])
    assert not queues.awaits_fetch
    assert taken(queues, now_ms=1100) == [("left", 1)]


def test_bounded_task_waits_until_the_empty_input_has_ended():
    queues = TaskQueues([LEFT, RIGHT], max_idle_ms=None)
    fill(queues, LEFT, [1], ended=True)
    fill(queues, RIGHT, [])

    assert taken(queues) == []
    queues[RIGHT].is_ended = True
    assert taken(queues) == [("left", 1)]


def test_run_stops_at_the_record_that_brings_stream_time():
    queues = TaskQueues([LEFT])
    fill(queues, LEFT, [1, 4, 6, 7])

    run = queues.take(0, 100, until_stream_time_ms=5)

    assert list(run.timestamps) == [1, 4, 6]


def test_position_follows_what_was_taken_and_stream_time_never_goes_back():
    queues = TaskQueues([LEFT])
    fill(queues, LEFT, [9, 3, 4])
    run = queues.take(0, 100)
    queues.done(run, 2)

    assert queues[LEFT].position == 2
    assert queues.stream_time_ms == 9
    assert queues[LEFT].partition_time_ms == 9
    assert [time for _, time in taken(queues)] == [4]


def test_full_buffer_asks_for_a_pause_and_ends_it_when_it_is_taken():
    queues = TaskQueues([LEFT, RIGHT], max_buffered=2)
    fill(queues, LEFT, [1, 2, 3])
    fill(queues, RIGHT, [], more=True)

    assert queues.to_pause() == [LEFT]
    fill(queues, RIGHT, [9, 9])
    taken(queues)
    assert queues.to_pause() == []


def test_partition_far_ahead_is_paused_until_the_others_have_caught_up():
    """20 ms may lie between the heads; the one behind brings the task's time on."""
    queues = TaskQueues([LEFT, RIGHT], max_ahead_ms=20)
    fill(queues, LEFT, [30, 31])
    fill(queues, RIGHT, [5, 15], more=True)

    assert queues.to_pause() == [LEFT]
    queues.done(run := queues.take(0, 1), len(run))
    assert queues.to_pause() == []


def test_bad_record_fails_the_task_only_after_those_before_it():
    queues = TaskQueues([LEFT])
    fill(queues, LEFT, [1, 2])
    queues[LEFT].failure = ProcessingError("bad record")

    run = queues.take(0, 100)
    queues.done(run, len(run))

    assert list(run.timestamps) == [1, 2]
    with pytest.raises(ProcessingError, match="bad record"):
        queues.take(0, 100)
