"""Groups of plain consumers in a storm, of the classic and of the new protocol (KIP-848).

Nothing is lost, no commit is of a member that was fenced, and the group becomes stable again.
"""

import pytest

from streams.group.client.consumer_heartbeats import ConsumerHeartbeats
from streams.group.client.consumer_member import ConsumerMembership
from streams.group.client.epoch_member import EpochMember
from streams.group.epochs.epoch_groups import EpochGroups
from streams.group.state.consumer_group import ConsumerGroup
from streams.protocol.error_codes import ErrorCode
from streams.testing.simulation.report import InvariantViolationError
from tests.testing.simulation.consumer_world import ConsumerWorld
from tests.testing.simulation.hashes import printed_with_other_hashes

#: Worlds in which a deliberate bug must be found.
ENOUGH = 60
#: Deliberate bugs, each with the name that is replaced, what replaces it, and the first seed that finds it.
BUGS = {
    "commits_of_any_epoch": (EpochGroups, "check_commit", lambda *_: ErrorCode.NONE, 1),
    "assigned_before_it_was_revoked": (ConsumerGroup, "is_free_for", lambda *_: lambda place: True, 1),
    "member_ignores_that_it_is_fenced": (EpochMember, "_reset", lambda *_: None, 1),
    "removed_member_keeps_its_partitions": (ConsumerHeartbeats, "lose", lambda *_: [], 1),
    "removed_member_of_the_classic_protocol_keeps_its_partitions": (ConsumerMembership, "lost", lambda *_: [], 35),
}
DIGEST = """
from tests.testing.simulation.consumer_world import ConsumerWorld
print([ConsumerWorld(seed).run() for seed in (3, 5)])
"""


def is_violated(seed: int) -> bool:
    try:
        ConsumerWorld(seed).run()
    except InvariantViolationError:
        return True
    return False


def test_consumers_without_faults_are_soon_stable():
    world = ConsumerWorld(0, is_calm=True)

    world.run()

    assert not world.refused["MemberFencedError"]


@pytest.mark.case(3)
@pytest.mark.seeds("seed", range(60), 4)
def test_group_of_consumers_is_stable_after_a_storm(seed):
    ConsumerWorld(seed).run()


@pytest.mark.world
def test_storms_of_consumers_have_everything():
    """Each kind of fault, commits that are refused, both protocols, and listeners that are told of both ends."""
    worlds = [ConsumerWorld(seed) for seed in range(30)]
    for world in worlds:
        world.run()

    kinds = {kind for world in worlds for kind in world.storm.faults}
    lines = "\n".join(line for world in worlds for line in world.storm.history.lines)
    assert len(kinds) == 11
    assert "starts with protocol classic" in lines
    assert "starts with protocol consumer" in lines
    assert "MemberFencedError" in lines
    assert sum(world.revoked for world in worlds) > 0
    assert sum(world.lost for world in worlds) > 0
    assert {reader.is_automatic for world in worlds for reader in world.readers} == {False, True}
    assert {is_by_broker for world in worlds for is_by_broker in world.matched} == {False, True}


@pytest.mark.world
@pytest.mark.parametrize("name", BUGS)
def test_deliberate_bug_is_found_by_consumers(name, monkeypatch):
    owner, method, bug, first = BUGS[name]
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, bug)
        found = next((seed for seed in (first, *range(ENOUGH)) if is_violated(seed)), None)

    assert found is not None
    assert not is_violated(found)


@pytest.mark.world
def test_seed_of_consumers_decides_everything_in_any_process():
    """Also where strings hash differently."""
    printed = printed_with_other_hashes(DIGEST)

    assert printed[0] == printed[1]
