"""Worlds with faults of generated topologies that use many operators at once: exact, and each operator has its part.

What is compared: every result of every operator, as a multiset, with those of the test driver; of windows that idle
inputs close the sum, for which of them has a record depends on the wall clock.
"""

import pytest

from tests.testing.simulation import mutations
from tests.testing.simulation.combined import faults_of

#: Worlds in which a deliberate bug must be found.
ENOUGH = 60
#: Bugs of one operator each, with the first world that finds it.
BUGS = {
    "waiting_records_are_not_loaded": 0,
    "open_windows_are_not_loaded": 0,
    "numbers_are_not_restored": 5,
    "windows_of_a_windower_are_not_loaded": 0,
    "restored_rows_do_not_expire": 10,
    "batches_do_not_end_with_a_commit": 0,
    "records_that_wait_are_not_loaded": 0,
    "calls_in_flight_are_not_stored": 0,
}


@pytest.mark.case
@pytest.mark.seeds("world", range(48), 2)
def test_results_of_all_operators_are_exact_in_a_storm(world):
    assert faults_of(world) == ""


@pytest.mark.world
@pytest.mark.seeds("name", BUGS, 3)
def test_bug_of_one_operator_is_found_among_the_others(name):
    with mutations.ALL[name]():
        found = next((world for world in (BUGS[name], *range(ENOUGH)) if faults_of(world)), None)

    assert found is not None
    assert faults_of(found) == ""
