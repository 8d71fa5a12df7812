"""How far history is out of order, and what is above a limit."""

import random

import pytest

from streams import ConfigError
from streams.core.metrics import Counter
from streams.runtime.tasks.lateness import Disorder, DropLimit, Late


def by_records(times: list[int]) -> int:
    """The same, record by record."""
    highest, most = -1, 0
    for time in times:
        most = max(most, highest - time)
        highest = max(highest, time)
    return most


@pytest.mark.parametrize("seed", range(30))
def test_disorder_is_the_most_by_which_a_record_is_older_than_one_before_it(seed: int):
    chance = random.Random(seed)
    spread = chance.choice([0, 3, 100, 10_000])
    times = [max(0, number * 10 + chance.randint(-spread, spread)) for number in range(chance.randrange(1, 300))]
    disorder = Disorder(Counter())
    start = 0
    while start < len(times):
        size = chance.randrange(1, 50)
        disorder.observe(times[start : start + size])
        start += size

    assert disorder.counter.value == by_records(times)


def test_partitions_share_a_counter_and_keep_what_is_worst():
    counter = Counter()
    one, two = Disorder(counter), Disorder(counter, 1_000)
    one.observe([10, 5])
    two.observe([990])
    one.observe([])

    assert counter.value == 10


def late(count: int, read: int, disorder_ms: int = 0) -> Late:
    return Late("by-hour", count, read, "rows" if disorder_ms else "", disorder_ms)


def test_late_records_are_told_with_share_and_cause():
    assert str(late(2_729_494, 2_850_465, 82_800_000)) == (
        "by-hour: 2,729,494 of 2,850,465 records dropped as late (96%): history of topic 'rows' is out of order by up "
        "to 23 h; sort it by time (order event_time of a replay), or set grace to that"
    )
    assert str(late(1, 1000)) == (
        "by-hour: 1 of 1,000 records dropped as late (0.10%): their windows were already closed; increase grace"
    )
    assert str(late(30, 20)).startswith("by-hour: 30 records dropped as late")


@pytest.mark.parametrize(
    ("limit", "count", "is_above"),
    [("1%", 10, False), ("1%", 11, True), ("0", 1, True), (10, 10, False), ("10", 11, True), ("0.5%", 6, True)],
)
def test_limit_is_a_share_of_what_a_node_gets_or_a_count(limit: str | int, count: int, is_above: bool):
    assert bool(DropLimit.of(limit).exceeded([late(count, 1000)])) == is_above


@pytest.mark.parametrize("limit", ["few", "-1", "-1%", "nan%", "1.5", "%", "", True])
def test_other_limits_are_refused(limit: str):
    with pytest.raises(ConfigError, match="give a share such as 1%, or a number of records"):
        DropLimit.of(limit)
