"""Worlds with faults of generated topologies with foreign-key joins: their final tables are those of a bounded run."""

import pytest

from streams.dsl.processing.joins import foreign_key_processor as foreign_key
from tests.testing.simulation.cyclic import differences, from_files, topology_of

#: Worlds of several topologies, with both guarantees.
WORLDS = (0, 11, 22, 33, 55, 66, 154)
#: Worlds in which a deliberate bug must be found.
ENOUGH = 20


@pytest.mark.case
@pytest.mark.seeds("world", WORLDS)
def test_final_tables_of_foreign_key_joins_are_those_of_files_in_a_storm(world: int) -> None:
    topology = topology_of(world)

    assert differences(topology, from_files(topology), world) == ""


@pytest.mark.world
def test_answers_to_an_old_row_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response counts only for the left row for which it was asked."""
    for world in range(ENOUGH):
        topology = topology_of(world)
        expected = from_files(topology)
        with monkeypatch.context() as patched:
            patched.setattr(foreign_key, "_hash_of", lambda serde: lambda value: None if value is None else b"same")
            if differences(topology, expected, world):
                return
    raise AssertionError("no world has found it")
