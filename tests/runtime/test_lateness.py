"""How far history is out of order, and what is above a limit."""

import random

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from streams import ConfigError
from streams.core.blocks.records import TaskId
from streams.core.metrics import Counter, late_bound
from streams.runtime.tasks.lateness import Disorder, DropLimit, Late, charts_of


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
        "to 23 h; sort it by time (`streams replay --order event-time`), or set grace to that"
    )
    assert str(late(1, 1000)) == (
        "by-hour: 1 of 1,000 records dropped as late (0.10%): their windows were already closed; increase grace"
    )
    assert str(late(30, 20)).startswith("by-hour: 30 records dropped as late")
    assert str(evolve(late(1, 1000, 3_600_000), is_sorted=True)) == (
        "by-hour: 1 of 1,000 records dropped as late (0.10%): rows of topic 'rows' came in a later run than rows that "
        "are newer by up to 1 h; sort them in with repair=True (--repair), or set grace to that"
    )


def test_late_records_are_told_with_the_grace_that_keeps_them():
    some = Late("by-hour", 10, 1000, by_grace=((1_000, 6), (60_000, 3), (3_600_000, 1)))

    assert str(some).endswith("increase grace (by 1 s keeps 60% of them, by 1 h all)")
    assert str(Late("by-hour", 1, 1000, by_grace=((1_000, 1),))).endswith("increase grace (by 1 s all)")
    rows = some.bars().rows
    assert [label for label, _, _ in rows][:6] == ["1 s", "5 s", "10 s", "30 s", "1 min", "5 min"]
    assert [count for _, count, _ in rows] == [6, 0, 0, 0, 3, 0, 0, 0, 1]
    assert [note for _, count, note in rows if count] == ["(keeps 60.0%)", "(keeps 90.0%)", "(keeps 100.0%)"]


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_a_lateness_is_below_its_bound_and_not_below_the_one_before(times: list[int]):
    bounds = sorted({late_bound(late_ms) for late_ms in times} | {late_bound(late_bound(late_ms)) for late_ms in times})
    for late_ms in times:
        assert late_ms < late_bound(late_ms)
        assert all(bound <= late_ms for bound in bounds if bound < late_bound(late_ms))


def test_charts_have_how_late_records_were_and_the_records_of_partitions():
    some = Late("by-hour", 10, 1000, by_grace=((1_000, 6), (5_000, 4)))
    charts = charts_of([some], {TaskId(0, 0): 90, TaskId(0, 1): 10, TaskId(1, 0): 5})

    assert str(charts).splitlines()[0] == "by-hour: 10 late records, by how much longer grace keeps them"
    assert str(charts).splitlines()[3] == "sub-topology 0: records by partition, the largest 1.8 times the average"
    assert len(str(charts).splitlines()) == 6
    assert charts.to_svg().count("<rect") == 4
    assert "no record was late" in str(charts_of([], {TaskId(0, 0): 90}))


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
