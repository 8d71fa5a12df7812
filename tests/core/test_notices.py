"""One warning per cause and minute: the first time at once, the others counted, the end of what lasts."""

import logging

import pytest

from streams.core.notices import Notices

log = logging.getLogger("streams.tried")


@pytest.fixture
def notices():
    return Notices()


def test_the_first_time_is_told_at_once_and_the_others_when_the_minute_is_over(notices, caplog):
    for second in range(130):
        notices.warn(log, "disk", second * 1_000, "disk full")
    notices.warn(log, "other", 129_000, lambda count: f"{count} others", 3)
    notices.look(None)

    assert caplog.messages == [
        "disk full",
        "disk full (59 times within a minute)",
        "disk full (60 times within a minute)",
        "3 others",
        "disk full (10 times within a minute)",
    ]


def test_what_has_not_come_again_within_a_minute_is_told_at_once_when_it_comes(notices, caplog):
    for now_ms in (0, 60_000, 200_000):
        notices.warn(log, "disk", now_ms, "disk full")

    assert caplog.messages == ["disk full"] * 3


def test_what_is_usual_now_and_then_is_told_if_it_comes_often_within_a_minute(notices, caplog):
    for second in (0, 50, 100, 101, 102, 103, 104):
        notices.warn(log, "rebalance", second * 1_000, "rebalanced", least=4)

    assert caplog.messages == ["rebalanced (4 times within a minute)"]


def test_the_end_of_what_lasts_is_told_once_with_its_time(notices, caplog):
    notices.last(log, "broker", 1_000, "no broker")
    notices.last(log, "broker", 12_000, "no broker")

    assert [notices.end(log, "broker", 100_000, "connected again") for _ in range(2)] == [True, False]
    assert caplog.messages == ["no broker", "no broker", "connected again, after 99 s"]


def test_what_comes_and_goes_is_told_once_a_minute_with_its_state(notices, caplog):
    for second in range(0, 50, 10):
        notices.last(log, "disk", second * 1_000, "disk full")
        notices.end(log, "disk", second * 1_000 + 2_000, "written again")
    notices.look(60_000)

    assert caplog.messages == [
        "disk full",
        "written again, after 2 s",
        "disk full (4 times within a minute); written again, after 2 s",
    ]


def test_counts_go_on_where_nothing_is_logged(caplog):
    Notices(is_logged=False).warn(log, "disk", 0, "disk full")

    assert not caplog.messages
