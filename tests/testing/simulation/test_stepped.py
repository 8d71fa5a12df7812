"""Worlds with faults of generated topologies behind repartition topics: they write what a bounded run writes."""

import gc

import pytest

from streams import ConfigError, StreamsBuilder
from streams.runtime.tasks.lane_queue import PartitionLanes
from streams.testing import SimulationError, simulate
from tests.testing.simulation import order_mutations
from tests.testing.simulation.stepped import GUARANTEES, differences, from_files, topology_of
from tests.testing.simulation.worlds import FOREIGN, ONE, foreign_key_join, pairs, two_tables, words

#: Worlds of several topologies, with both guarantees, calm and with faults.
WORLDS = (2, 14, 24, 33, 48, 59, 61, 76, 83, 99, 150, 159)
#: Worlds in which a deliberate bug must be found.
ENOUGH = 40


@pytest.mark.case
@pytest.mark.seeds("world", WORLDS, 2)
def test_live_results_are_those_of_files_in_a_storm(world: int) -> None:
    """Machines crash, stall, are cut off and come back; threads process at different speeds."""
    topology = topology_of(world)

    assert differences(topology, from_files(topology), world) == ""


@pytest.mark.world
@pytest.mark.seeds("name", order_mutations.FOUND, 2)
def test_deliberate_bug_of_the_order_is_found(name: str) -> None:
    """By the world that is known, or where the code has changed since by another of the first ones.

    Other outputs count, and what the world says of the product: an error, or that it does not come to rest.  An error
    of the lines of the bug itself says nothing of either.
    """
    for world in (order_mutations.FOUND[name], *range(ENOUGH)):
        topology = topology_of(world)
        expected = from_files(topology)
        with order_mutations.ALL[name]():
            difference = differences(topology, expected, world)
        gc.collect()
        assert_not_broken()
        if difference:
            return
    raise AssertionError(f"{name} is not found")


@pytest.mark.parametrize("name", order_mutations.ELSEWHERE)
def test_deliberate_bug_that_no_world_shows_is_found_by_the_rule_itself(name: str) -> None:
    with order_mutations.ALL[name](), pytest.raises(AssertionError):
        order_mutations.ELSEWHERE[name]()
    assert_not_broken()


def test_an_error_of_a_deliberate_bug_itself_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of what it calls is one of the product."""
    monkeypatch.setattr(order_mutations, "BROKEN", [])

    with order_mutations.drops_when_fetched():
        with pytest.raises(AttributeError):
            PartitionLanes(frozenset()).add(None)
        assert len(order_mutations.BROKEN) == 1
    with order_mutations.places_are_timestamps(), pytest.raises(AttributeError):
        PartitionLanes(frozenset()).add(None)
    assert len(order_mutations.BROKEN) == 1


def assert_not_broken() -> None:
    broken = list(order_mutations.BROKEN)
    order_mutations.BROKEN.clear()
    assert broken == []


@pytest.mark.case
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_backlog_is_compared_with_a_bounded_run(guarantee: str) -> None:
    report = simulate(two_tables, ONE, seeds=range(2), backlog=True, processing_guarantee=guarantee)

    assert report.seeds == 2


@pytest.mark.world
def test_results_behind_a_cycle_are_named_where_they_may_differ() -> None:
    """Intermediate results of a foreign-key join are not promised."""
    report = simulate(foreign_key_join, FOREIGN, seeds=[1], backlog=True, may_depend_on_order=[pairs])

    assert report.order_dependent == ("topic 'pairs'",)


@pytest.mark.world
def test_result_that_is_not_in_step_is_told_with_its_first_difference() -> None:
    """Without patience the order is that of arrival."""

    def chained(builder: StreamsBuilder) -> None:
        grouped = builder.stream(words).group_by(lambda _, word: word[:1])
        grouped.reduce(lambda one, other: f"{len(one)}{other}", name="chain").to_stream().to(pairs)

    with pytest.raises(SimulationError) as caught:
        simulate(chained, ONE, seeds=range(20), backlog=True, repartition_patience_ms=0)

    assert "topic 'pairs'" in caught.value.invariant


def test_backlog_needs_keys() -> None:
    """The partition of a record without a key is not certain."""
    with pytest.raises(ConfigError, match=r"simulate\(backlog=True\) got a record of topic 'words' without a key"):
        simulate(two_tables, {words: [(None, "w", 0)]}, seeds=[1], backlog=True)
