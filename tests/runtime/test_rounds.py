"""Records that go round a cycle of topics without end are told, where a run must end."""

from functools import partial

import pytest

from streams import StreamsBuilder, Topic
from streams.core.errors import TopologyError
from streams.runtime.tasks.rounds import Rounds
from streams.testing import TopologyTestDriver
from tests.runtime.bounded_runs import started, written

NUMBERS = Topic("numbers", key=str, value=int)


def counting_down(builder: StreamsBuilder) -> None:
    builder.stream(NUMBERS).filter(lambda _, value: value > 0).map_values(lambda value: value - 1).to(NUMBERS)


def endless(builder: StreamsBuilder) -> None:
    builder.stream(NUMBERS).map_values(lambda value: value + 1).to(NUMBERS)


def test_records_that_stop_by_themselves_may_go_round_within_the_limit():
    with started(counting_down, {"numbers": [("a", 30, 0), ("b", 5, 1)]}, max_cycle_rounds=60) as run:
        values = [value for rows in written(run, "numbers").values() for _, value, _ in rows]

    assert sorted(values) == sorted([*range(31), *range(6)])


def test_a_bounded_run_fails_where_records_go_round_without_end():
    with pytest.raises(TopologyError, match=r"reads what it writes to 'numbers'.*after 25 rounds 2 records are left"):
        started(endless, {"numbers": [("a", 1, 0), ("b", 1, 0)]}, max_cycle_rounds=25)


def test_the_test_driver_fails_where_records_go_round_without_end():
    driver = TopologyTestDriver(endless, max_cycle_rounds=25)

    with pytest.raises(TopologyError, match="does not end"):
        driver.pipe(NUMBERS, 1, key="a", timestamp_ms=0)


def test_rounds_count_only_while_the_inputs_of_the_cycle_have_ended():
    rounds = Rounds(limit=2)

    for _ in range(100):
        rounds.note(1, lambda: 0, set)
    rounds.note(1, lambda: 1, set)
    rounds.note(1, lambda: 1, set)

    with pytest.raises(TopologyError):
        rounds.note(1, lambda: 1, set)


def test_records_that_become_ever_more_end_long_before_the_limit():
    rounds = Rounds(limit=10_000)

    with pytest.raises(TopologyError, match="131,072 records are left, more in each round"):
        for doublings in range(100):
            rounds.note(1 << doublings, partial(int, 1 << doublings), set)


def test_without_a_limit_nothing_is_counted():
    rounds = Rounds(limit=0)

    for _ in range(100_000):
        rounds.note(1, lambda: 1, set)

    assert rounds.count == 0
