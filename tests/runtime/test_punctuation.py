"""Timers: KIP-138 and KIP-1146."""

from streams import PunctuationType
from streams.runtime.tasks.checkpoint import CarriedTimer
from streams.runtime.tasks.punctuation import Punctuations, TimerHeap
from streams.testing.reference_order import TIMERS

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


def fire(punctuations, kind, *times):
    fired = []
    for time in times:
        punctuations.fire(kind, time, lambda timer, now_ms: fired.append((timer.node, now_ms)))
    return fired


def test_jump_over_many_intervals_fires_once():
    """A timestamp of the far future must not hang the task."""
    punctuations = Punctuations()
    punctuations.schedule("a", 1, STREAM, print, None, -1)

    assert fire(punctuations, STREAM, 0, 1 << 61) == [("a", 0), ("a", 1 << 61)]
    assert punctuations.next_due_ms(STREAM) == (1 << 61) + 1


def test_timers_due_at_the_same_time_fire_as_scheduled_and_in_the_test_driver_as_in_kafka_streams():
    """Its heap moves the last to the place of the first that was taken."""
    for heap, expected in ((TimerHeap(), "abcabc"), (TIMERS, "acbcba")):
        punctuations = Punctuations(heap)
        for node in "abc":
            punctuations.schedule(node, 10, STREAM, print, None, -1)

        assert "".join(node for node, _ in fire(punctuations, STREAM, 0, 10)) == expected


def resumed(before, *schedules, **options):
    """Return the timers of a task that is opened again: (node, interval, kind) each."""
    punctuations = Punctuations()
    for node, interval, kind in schedules:
        punctuations.schedule(node, interval, kind, print, None, 1000)
    punctuations.resume(before, **options)
    return punctuations


def test_stream_time_goes_on_where_it_was():
    before = resumed({}, ("a", 10, STREAM))
    fire(before, STREAM, 3)

    again = resumed(before.carried(), ("a", 10, STREAM))

    assert fire(again, STREAM, 9, 10) == [("a", 10)]


def test_wall_clock_starts_anew_unless_it_is_asked_for():
    before = resumed({}, ("a", 10, WALL))

    assert resumed(before.carried(), ("a", 500, WALL)).next_due_ms(WALL) == 1500
    fire(before, WALL, 1010)
    assert resumed(before.carried(), ("a", 10, WALL)).next_due_ms(WALL) == 1010
    assert resumed(before.carried(), ("a", 10, WALL), with_wall_clock=True).next_due_ms(WALL) == 1020


def test_timer_of_another_kind_interval_or_place_starts_anew():
    before = resumed({}, ("a", 10, STREAM))
    fire(before, STREAM, 3)

    for other in (("b", 10, STREAM), ("a", 20, STREAM)):
        assert resumed(before.carried(), other).next_due_ms(STREAM) == 0
    assert resumed(before.carried(), ("a", 10, WALL), with_wall_clock=True).next_due_ms(WALL) == 1010


def test_timers_of_one_node_are_told_apart_by_their_order():
    before = resumed({}, ("a", 10, STREAM), ("a", 10, STREAM))
    (_, second) = before._carried.values()
    second.due_ms = 70
    carried = before.carried()

    again = resumed(carried, ("a", 10, STREAM), ("a", 10, STREAM))

    assert again.carried() == carried


def test_timers_due_at_the_same_time_fire_in_the_order_they_would_have():
    before = resumed({}, ("a", 10, STREAM), ("b", 20, STREAM))
    fire(before, STREAM, 0, 10)  # a was set to 20 after b.

    again = resumed(before.carried(), ("a", 10, STREAM), ("b", 20, STREAM))

    assert fire(again, STREAM, 20) == fire(before, STREAM, 20) == [("b", 20), ("a", 20)]


def test_cancelled_timer_comes_back_unless_the_run_goes_on():
    before = Punctuations()
    timer = before.schedule("a", 10, STREAM, print, None, -1)
    before.resume({})
    timer.cancel()

    assert list(before.carried().values()) == [CarriedTimer(STREAM, 10, None)]
    assert resumed(before.carried(), ("a", 10, STREAM)).next_due_ms(STREAM) == 0
    assert resumed(before.carried(), ("a", 10, STREAM), with_cancelled=True).next_due_ms(STREAM) is None


def test_timers_scheduled_later_are_named_as_long_as_they_live():
    punctuations = resumed({}, ("a", 10, STREAM))
    assert punctuations.uncarried() == []

    later = punctuations.schedule("b", 10, WALL, print, None, 0)

    assert punctuations.uncarried() == ["b"]
    assert [place.node for place in punctuations.carried()] == ["a"]
    later.cancel()
    assert punctuations.uncarried() == []
