"""What applications did in simulated worlds with faults is done again, record for record."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pytest

from streams import StreamsBuilder, StreamsConfig, TimeWindows, Topic
from streams.broker.driver import Driver
from streams.capsule import Reproduction, capture
from streams.testing.simulation.conditions import Conditions, Row, Scenario
from streams.testing.simulation.world import World

clicks = Topic("clicks", key=str, value=str)
users = Topic("users", key=str, value=str)
joined = Topic("joined", key=str, value=str)
counted = Topic("counted", key=str, value=int)
TOPICS = {"clicks": 3, "users": 3, "joined": 3, "counted": 3}
STORM_MS = 10_000


def topology(builder: StreamsBuilder) -> None:
    """A re-key, a join with a table, a count and windows of it."""
    names = builder.table(users, name="names")
    rekeyed = builder.stream(clicks).select_key(lambda _, value: value[:2])
    rekeyed.join(names, lambda value, name: f"{value} by {name}").to(joined)
    grouped = rekeyed.group_by_key()
    grouped.count("counts").to_stream().to(counted)
    grouped.windowed_by(TimeWindows.of(timedelta(seconds=1))).count("windows")


def rows(seed: int) -> Sequence[Row]:
    rng = Random(seed)
    found: list[Row] = []
    for time_ms in range(0, 6_000, 40):
        user = f"{rng.randrange(20):02}"
        found.append((users, user, f"name {time_ms}", time_ms))
        found.append((clicks, f"k{rng.randrange(13)}", f"{user} {time_ms}", time_ms))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.seeds("seed", range(12))
def test_a_simulated_storm_is_reproduced_record_for_record(seed: int, guarantee: str) -> None:
    settings = {
        "flight_recorder": True,
        "processing_guarantee": guarantee,
        "num_stream_threads": 3,
        "cache_max_bytes": 0 if seed % 2 else 20_000,
    }
    scenario = Scenario(topology, rows(seed), settings, TOPICS, STORM_MS, guarantee == "exactly_once_v2")
    world = World(seed, scenario, Conditions.drawn(seed, scenario))
    _, violation = world.run()
    assert violation is None

    machine = world.broker.machine
    known = {name: len(topic.logs) for name, topic in machine.topics.by_name.items()}
    config = StreamsConfig.of(application_id="sim", **settings)
    capsule = capture(Driver(machine, world.scheduler.clock, "sim"), world.topology, config, known)
    found = Reproduction(capsule, world.topology, config).compare()

    assert found.is_same, str(found)
    assert not capsule.notes
    assert found.inputs >= 2 * len(scenario.rows) * 0.75
    assert found.commits > 10
