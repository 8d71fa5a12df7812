"""Worlds with faults of generated topologies that use many operators at once: exact, and each operator has its part.

What is compared: every result of every operator, as a multiset, with those of the test driver; of windows that idle
inputs close the sum, for which of them has a record depends on the wall clock.
"""

from collections import Counter

import pytest

from streams.testing import TopologyTestDriver
from streams.testing.simulation.conditions import Conditions, Scenario, in_order_of_topics
from streams.testing.simulation.outcome import OutputPlace
from streams.testing.simulation.world import World
from tests.testing.simulation import mutations
from tests.testing.simulation.combined import INPUTS, REST_MS, USED, Combined, pulses, results, settled, words

ROWS = in_order_of_topics([(topic, *row) for topic, rows in INPUTS.items() for row in rows])
PARTITIONS = {words.name: 2, pulses.name: 1, results.name: 2, settled.name: 2}
#: Worlds in which a deliberate bug must be found.
ENOUGH = 60
#: Bugs of one operator each, with the first world that finds it.
BUGS = {
    "waiting_records_are_not_loaded": 0,
    "open_windows_are_not_loaded": 0,
    "numbers_are_not_restored": 5,
    "windows_of_a_windower_are_not_loaded": 0,
    "restored_rows_do_not_expire": 0,
    "batches_do_not_end_with_a_commit": 0,
    "records_that_wait_are_not_loaded": 0,
    "calls_in_flight_are_not_stored": 0,
}


def driven(topology: Combined) -> Counter[str]:
    """Return how often each result comes, as the test driver has it."""
    with TopologyTestDriver(topology, partitions=PARTITIONS[words.name]) as driver:
        for topic, key, value, time_ms in ROWS:
            driver.pipe(topic, value, key=key, timestamp_ms=time_ms)
        driver.advance_wall_clock(REST_MS)
        assert driver.read(settled) == [("p", len(INPUTS[pulses]))]
        return Counter(key for key, _ in driver.read(results))


def differences(topology: Combined, expected: Counter[str], seed: int) -> str:
    """Run a world with faults of a topology, and return what is wrong with it, or ""."""
    topology.uses.clear()
    scenario = Scenario(
        topology, ROWS, {}, PARTITIONS, 20_000, is_exactly_once=True, growing=["words"], rest_ms=REST_MS
    )
    outcome, violation = World(seed, scenario, Conditions.drawn(seed, scenario)).run()
    if violation is not None:
        return violation
    found = Counter({key.decode(): n for key, n in outcome.counts[OutputPlace("topic", results.name)].items() if key})
    if outcome.counts[OutputPlace("topic", settled.name)] != {b"p": 1}:
        return "the records of windows that idle inputs close do not add up"
    if unused := [name for name in USED if not topology.uses[name]]:
        return f"no record at {unused}"
    return f"missing {expected - found}, too many {found - expected}" if found != expected else ""


def faults_of(world: int) -> str:
    """Return what is wrong with a world whose topology has the same number as its seed."""
    return differences(Combined(world), driven(Combined(world)), world)


@pytest.mark.parametrize("world", range(48))
def test_results_of_all_operators_are_exact_in_a_storm(world):
    assert faults_of(world) == ""


@pytest.mark.parametrize("name", BUGS)
def test_bug_of_one_operator_is_found_among_the_others(name):
    with mutations.ALL[name]():
        found = next((world for world in (BUGS[name], *range(ENOUGH)) if faults_of(world)), None)

    assert found is not None
    assert faults_of(found) == ""
