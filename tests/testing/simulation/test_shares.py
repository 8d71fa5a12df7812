"""Share groups in a storm (KIP-932): no record has two holders, each is accepted once or given up, and none is lost."""

import pytest

from streams.broker.shares.partition import RecordState, SharePartition
from streams.clients.share_session import ClientShareSession
from streams.testing.simulation.report import InvariantViolationError
from tests.testing.simulation.hashes import printed_with_other_hashes
from tests.testing.simulation.share_world import ShareWorld

#: Worlds in which a deliberate bug must be found.
ENOUGH = 60
DIGEST = """
from tests.testing.simulation.share_world import ShareWorld
print([ShareWorld(seed).run() for seed in (3, 5)])
"""


def _expire_all(partition, now_ms, delivery_limit):
    locked = [run for run in partition.runs if run.state is RecordState.ACQUIRED]
    return partition._release(locked, delivery_limit)


#: Deliberate bugs, each with the name that is replaced, what replaces it, and the first seed that finds it.
BUGS = {
    "locks_end_with_any_other": (SharePartition, "expire", _expire_all, 1),
    "client_keeps_a_lost_session": (ClientShareSession, "on_failure", lambda *_: None, 1),
}


def is_violated(seed: int) -> bool:
    try:
        ShareWorld(seed).run()
    except InvariantViolationError:
        return True
    return False


def test_share_group_without_faults_is_soon_done():
    world = ShareWorld(0, is_calm=True)

    world.run()

    assert not world.storm.ended
    assert world.refused.keys() <= {"none", "INVALID_RECORD_STATE"}


@pytest.mark.parametrize("seed", range(60))
def test_share_group_has_done_everything_after_a_storm(seed):
    ShareWorld(seed).run()


def test_storms_of_share_groups_have_everything():
    """Each kind of fault, and acknowledgements that come too late or get lost."""
    worlds = [ShareWorld(seed) for seed in range(30)]
    for world in worlds:
        world.run()

    assert len({kind for world in worlds for kind in world.storm.faults}) == 10
    codes = {code for world in worlds for code in world.refused}
    assert codes >= {"none", "INVALID_RECORD_STATE", "NETWORK_EXCEPTION", "NOT_LEADER_OR_FOLLOWER"}
    assert any(world.late for world in worlds)
    assert any(count > 1 for world in worlds for count in world.deliveries.values())


@pytest.mark.parametrize("name", BUGS)
def test_deliberate_bug_is_found_by_share_consumers(name, monkeypatch):
    owner, method, bug, first = BUGS[name]
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, bug)
        found = next((seed for seed in (first, *range(ENOUGH)) if is_violated(seed)), None)

    assert found is not None
    assert not is_violated(found)


def test_seed_of_share_groups_decides_everything_in_any_process():
    """Also where strings hash differently."""
    printed = printed_with_other_hashes(DIGEST)

    assert printed[0] == printed[1]
