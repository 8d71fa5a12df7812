"""Each scenario goes as its transcript tells, to the letter, and ends with one owner for every partition."""

from pathlib import Path

import pytest

from tests.scenarios.stage import is_over, play

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_goes_as_told(path):
    told = path.read_text()

    transcript, stage = play(told)

    assert transcript == told
    assert is_over(stage)


def test_all_flows_are_told():
    assert {path.stem for path in SCENARIOS} == {
        "cooperative",
        "eager",
        "leader_lost_between_join_and_sync",
        "lost_and_reintegrated",
        "rewind_of_a_live_group",
        "static_member_replaced",
        "two_rebalances_crossing",
    }
