"""Timers: KIP-138 and KIP-1146."""

from streams import PunctuationType
from streams.runtime.punctuation import Punctuations

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


def fire(punctuations, kind, *times):
    fired = []
    for time in times:
        punctuations.fire(kind, time, lambda timer, now_ms: fired.append((timer.node, now_ms)))
    return fired


def test_stream_time_is_due_with_the_first_record_and_then_aligned_to_the_epoch():
    punctuations = Punctuations()
    punctuations.schedule("a", 10, STREAM, print, None, -1)

    assert fire(punctuations, STREAM, 3, 9, 10, 19, 20) == [("a", 3), ("a", 10), ("a", 20)]


def test_wall_clock_is_due_one_interval_from_now():
    punctuations = Punctuations()
    punctuations.schedule("a", 10, WALL, print, None, 5)

    assert fire(punctuations, WALL, 14, 15, 16, 25) == [("a", 15), ("a", 25)]


def test_jump_over_many_intervals_fires_once():
    """A timestamp of the far future must not hang the task."""
    punctuations = Punctuations()
    punctuations.schedule("a", 1, STREAM, print, None, -1)

    assert fire(punctuations, STREAM, 0, 1 << 61) == [("a", 0), ("a", 1 << 61)]
    assert punctuations.next_due_ms(STREAM) == (1 << 61) + 1


def test_start_time_aligns_and_one_in_the_past_moves_to_the_next_in_line():
    punctuations = Punctuations()
    punctuations.schedule("a", 10, WALL, print, 3, 25)

    assert punctuations.next_due_ms(WALL) == 33


def test_cancelled_timer_never_fires_again():
    punctuations = Punctuations()
    timer = punctuations.schedule("a", 10, WALL, print, None, 0)
    timer.cancel()

    assert fire(punctuations, WALL, 100) == []
    assert punctuations.next_due_ms(WALL) is None


def test_timer_cancelled_by_its_own_call_does_not_come_back():
    punctuations = Punctuations()
    timer = punctuations.schedule("a", 10, WALL, print, None, 0)

    punctuations.fire(WALL, 10, lambda timer, now_ms: timer.cancel())

    assert timer.is_cancelled
    assert punctuations.next_due_ms(WALL) is None
