"""Fetches that are done leave nothing behind, and those that wait are bounded."""

from streams.broker.fetches import PendingFetch, WaitingFetches
from streams.core.blocks.records import TopicPartition
from streams.protocol.messages import Fetch


def fetch_of(partitions, topic="words"):
    return PendingFetch(Fetch({TopicPartition(topic, number): 0 for number in range(partitions)}), print)


def test_fetches_that_are_done_are_cleared_away_behind_one_that_waits():
    """The one with the earliest deadline stays in front of them all."""
    fetches = WaitingFetches()
    fetches.add(fetch_of(1), deadline_ms=1)

    for number in range(1_000):
        fetches.finish(fetches.add(fetch_of(5), deadline_ms=1_000_000 + number))

    assert len(fetches) == 1
    assert fetches.size < 100


def test_a_fetch_that_is_done_keeps_nothing_of_what_was_asked():
    fetches = WaitingFetches()
    fetch = fetches.add(fetch_of(5), deadline_ms=1)

    (asked,) = fetches.finish(fetch)

    assert len(asked.request.positions) == 5
    assert fetch.asked is None
    assert fetches.finish(fetch) == ()


def test_above_the_bound_those_that_wait_for_most_are_taken_out():
    fetches = WaitingFetches(max_places=10)
    for count in (2, 6, 3):
        fetches.add(fetch_of(count), deadline_ms=count)

    surplus = fetches.take_surplus()

    assert [len(asked.request.positions) for asked in surplus] == [6]
    assert len(fetches) == 2
    assert [len(asked.request.positions) for asked in fetches.take_due(10)] == [2, 3]
