"""Applications among faults: what must hold in every world does, and what is broken is found.

`make test-rest` tries a few seeds of each world, `make test-all SEEDS=35` two thousand in all.
"""

import gc
import importlib
import random
import re
import time
import uuid
from collections import Counter
from datetime import timedelta

import pytest
from attrs import evolve

from streams import ConfigError, Processor, Producer, StreamsBuilder, TimeWindows, TopologyError
from streams.core.concurrency.virtual_loop import VirtualLoop
from streams.testing import AnomalyKind, SimulationError, SimulationReport, simulate
from streams.testing.simulation.conditions import Arrival, Conditions, Scenario, in_order_of_topics
from streams.testing.simulation.faults import Fault
from streams.testing.simulation.network import Weather
from streams.testing.simulation.outcome import OutputPlace
from streams.testing.simulation.states import STATES
from streams.testing.simulation.world import World
from tests.testing.simulation import first_seeds, many, mutations
from tests.testing.simulation.hashes import printed_with_other_hashes
from tests.testing.simulation.worlds import (
    FOREIGN,
    ONE,
    REST_MS,
    WORLDS,
    counts,
    final_windows,
    foreign_key_join,
    forgetful,
    others,
    pairs,
    storm,
    window_counts,
    word_count,
    words,
)

#: The first seed of worlds that no other test tries.
OTHER_SEEDS = 2_000
GUARANTEES = ("at_least_once", "exactly_once_v2")
#: Worlds in which a deliberate bug must be found.
ENOUGH = 200
#: So many worlds that also the rare must happen.
MANY = 50
#: Worlds of one application and guarantee for each seed of ``--seeds``.
FEW = 1
#: What fifty worlds must have seen, or the weather has become too fair; the simulation itself requires the rarer events
#: in four times as many worlds.
STORM = (
    *(
        "crashes",
        "stalls",
        "cuts",
        "broker_restarts",
        "clean_restarts",
        "pauses",
        "rebalances",
        "evictions",
        "restores",
    ),
    *("resets", "idle_closes", "late_requests", "refused_requests", "drops", "delays", "fencings", "reprocessed"),
)
#: Worlds that are right with exactly-once only: a word that is counted twice moves the windows and results after it.
EXACT = {"calendar windows", "count windows", "early results", "own windows"}
#: Worlds that are also right with at-least-once.
EITHER = [name for name in WORLDS if name not in REST_MS.keys() | EXACT]
CASES = [(world, guarantee) for world in EITHER for guarantee in GUARANTEES] + [
    (world, "exactly_once_v2") for world in sorted(EXACT)
]


@pytest.mark.world
def test_idle_windows_close_once_in_a_storm_and_nothing_is_lost(seeds):
    """Windows are those of undisturbed worlds, and add up to the input; only idle inputs close the last ones."""
    report = storm("windows behind gaps", range(2 * seeds), "exactly_once_v2")

    assert report.seeds == 2 * seeds


@pytest.mark.case
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_counts_are_right_in_a_few_worlds(guarantee):
    report = simulate(word_count, ONE, seeds=range(OTHER_SEEDS, OTHER_SEEDS + 2), processing_guarantee=guarantee)

    assert report.seeds == 2


@pytest.mark.world
def test_standby_replicas_are_in_another_zone_than_their_tasks():
    """Each machine has a zone; the simulation checks every stable generation."""
    assert storm("zones", range(2), "exactly_once_v2").tagged_standbys > 0


@pytest.mark.world
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_members_of_a_streams_group_bear_a_storm(guarantee):
    """KIP-1071: no active task has two owners, no member that was removed commits, and results are as ever."""
    topology, inputs = WORLDS["zones"]
    report = simulate(topology, inputs, seeds=range(4), group_protocol="streams", processing_guarantee=guarantee)

    assert report.rebalances > 0
    assert report.crashes > 0


@pytest.mark.exhaustive
def test_many_members_of_streams_groups_see_each_kind_of_fault():
    """Moved coordinators and sessions that time out too, and the broker waits between assignments in some worlds."""
    topology, inputs = WORLDS["zones"]
    report = simulate(topology, inputs, seeds=range(4 * MANY), group_protocol="streams")

    assert report.evictions > 0
    assert report.coordinator_moves > 0


@pytest.mark.world
@pytest.mark.parametrize(("world", "guarantee"), CASES, ids=lambda value: str(value).replace(" ", "-"))
def test_application_bears_a_storm(world, guarantee, seeds):
    """Each topology with both guarantees where it is right with both; each pair has seeds of its own."""
    first = FEW * seeds * CASES.index((world, guarantee))
    report = storm(world, range(first, first + FEW * seeds), guarantee)

    assert report.seeds == FEW * seeds


@pytest.mark.exhaustive
@pytest.mark.timeout(7_200)
def test_thousand_worlds_reach_every_state():
    assert storm("word count", range(1_000), "exactly_once_v2").states.keys() == STATES.keys()


def test_states_that_many_worlds_have_not_reached_are_named():
    report = SimulationReport(states=Counter(dict.fromkeys(STATES, 2)))
    assert many.unreached(report.states, ["state", "exactly once", "steps"]) == []
    assert "crash in a restore 2" in report.summary()
    del report.states["crash in a restore"]
    assert many.unreached(report.states, ["state"]) == ["crash in a restore"]
    assert many.unreached(report.states, ["exactly once"]) == []


def test_thousand_worlds_that_have_not_reached_a_state_fail(monkeypatch, capsys):
    states = Counter(dict.fromkeys(STATES, 1))
    monkeypatch.setattr(
        many, "storm", lambda world, seeds, guarantee: SimulationReport(states=states, seeds=len(seeds))
    )

    assert many.main(["word count", "--seeds", "1000"]) == 0
    del states["crash in a restore"]
    assert many.main(["word count", "--seeds", "1000"]) == 1
    assert many.main(["word count", "--seeds", "999"]) == 0
    assert "never reached in 1000 worlds: crash in a restore" in capsys.readouterr().out


@pytest.mark.world
def test_fault_that_waits_for_a_restore_occurs_in_it():
    """A machine without a disk restores all state when it is there again."""
    rows = [(words, key, value, time_ms) for key, value, time_ms in ONE[words]]
    scenario = Scenario(word_count, rows, {}, {"words": 2, "counts": 2}, 20_000, is_exactly_once=True)
    faults = [Fault(10_000, "crash", "m1", 100), Fault(10_000, "crash", "m1", 100, is_in_restore=True)]
    conditions = Conditions(faults, Weather(), machines=1, without_disk=frozenset({"m1"}), fetched_records=1)
    world = World(1, scenario, conditions)

    assert world.run()[1] is None
    assert world.states.counts["crash in a restore"] == 1
    assert world.counters.crashes == 2
    assert "in the next restore from then on" in str(faults[1])


def test_guide_has_every_state_with_what_it_needs():
    rows = re.findall(r"^\| (.+?) \| (.*?) ?\|$", first_seeds.GUIDE.read_text(), re.MULTILINE)
    told = {state: re.sub(r"\[(.+)\].*", r"\1", need) or "nothing" for state, need in rows if state in STATES}

    assert told == STATES


#: Deliberate bugs that the history shows when nothing else is looked at, with the kind and a seed.
SHOWN = {
    "repetitions_are_appended": (AnomalyKind.DUPLICATE, "word count", "at_least_once", 1),
    "aborted_records_are_read": (AnomalyKind.ABORTED_READ, "word count", "exactly_once_v2", 1),
}


@pytest.mark.world
@pytest.mark.parametrize("name", SHOWN)
def test_history_of_the_clients_shows_a_deliberate_bug(name):
    kind, world, guarantee, seed = SHOWN[name]
    topology, inputs = WORLDS[world]
    rows = [(topic, *row) for topic, own in inputs.items() for row in own]
    names = {topic.name: 2 for topic in inputs} | {"counts": 2}
    scenario = Scenario(topology, rows, {}, names, 20_000, is_exactly_once=guarantee == "exactly_once_v2")
    simulated = World(seed, scenario, Conditions.drawn(seed, scenario))
    with mutations.ALL[name]():
        simulated.run()

        assert kind in {anomaly.kind for anomaly in simulated.anomalies()}


@pytest.mark.slow
def test_fifty_worlds_have_seen_every_fault_and_feature():
    report = storm("word count", range(MANY), "at_least_once")

    assert [name for name in STORM if not getattr(report, name)] == []


@pytest.mark.slow
def test_call_repeated_after_a_crash_counts_as_reprocessed():
    """Its result may have been sent before the crash, which at-least-once allows; no source record is read again."""
    topology, inputs = WORLDS["async calls"]

    report = simulate(topology, inputs, seeds=[29], processing_guarantee="at_least_once")

    assert report.reprocessed > 0


@pytest.mark.world
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_results_that_may_depend_on_the_order_of_arrival_are_named_and_not_compared(guarantee):
    """A foreign-key join sends a record for every change of either side, so their number depends on the order."""
    report = simulate(
        foreign_key_join, FOREIGN, seeds=range(5), processing_guarantee=guarantee, may_depend_on_order=[pairs]
    )

    assert report.order_dependent == ("topic 'pairs'",)
    assert "not compared, for the order decides: topic 'pairs'" in report.summary()
    assert len(report.out_of_step) == 2
    assert all("intermediate results are not promised" in reason for reason in report.out_of_step.values())
    assert f"not in step: {', '.join(report.out_of_step)}" in report.summary()


@pytest.mark.world
def test_results_that_depend_on_the_order_of_arrival_fail_where_that_was_not_said():
    with pytest.raises(SimulationError, match="results depend on the order") as caught:
        simulate(foreign_key_join, FOREIGN, seeds=[1])

    assert "topic 'pairs' (key b'" in caught.value.invariant
    assert "may_depend_on_order=['pairs']" in caught.value.invariant
    assert "faults that are needed" not in str(caught.value)


def test_what_may_depend_on_the_order_is_something_that_the_topology_has():
    with pytest.raises(TopologyError, match=r"no output topic or store 'cuonts'; did you mean 'counts'\?"):
        simulate(word_count, ONE, seeds=[1], may_depend_on_order=["cuonts"])


def first_of_its_kind() -> bool:
    seen: set[str] = set()
    return lambda _, word: not (word in seen or seen.add(word))


IMPURE = {
    "a random value": lambda builder: builder.stream(words).map_values(lambda _: str(random.random())).to("out"),
    "a random filter": lambda builder: builder.stream(words).filter(lambda *_: random.random() < 0.5).to("out"),
    "a seed of its own": lambda builder: builder.stream(words).filter(lambda *_: DRAWN.random() < 0.5).to("out"),
    "a new id": lambda builder: builder.stream(words).map_values(lambda _: str(uuid.uuid4())).to("out"),
    "the time": lambda builder: builder.stream(words).map_values(lambda _: str(time.time_ns())).to("out"),
    "a shared set": lambda builder: builder.stream(words).filter(NEW).to("out"),
    "a random key before a grouping": lambda builder: (
        builder.stream(words).group_by(lambda *_: str(random.random())).count("counts")
    ),
    "a random timestamp": lambda builder: builder.stream(words).process(Late).to("out"),
}
DRAWN = random.Random(7)
NEW = first_of_its_kind()


class Late(Processor):
    def process(self, record):
        self.context.forward(record.key, record.value, timestamp_ms=record.timestamp_ms + random.randrange(1_000_000))


@pytest.mark.case(4)
@pytest.mark.parametrize("name", IMPURE)
def test_topology_that_is_random_or_impure_fails_and_is_told_the_first_difference(name):
    with pytest.raises(SimulationError, match="the topology is not deterministic: the same world") as caught:
        simulate(IMPURE[name], ONE, seeds=[1])

    topic = "sim-counts-" if "grouping" in name else "out'"
    assert f"the first difference in '{topic}" in caught.value.invariant
    assert "record " in caught.value.invariant


@pytest.mark.slow
def test_processor_that_keeps_its_state_in_an_attribute_is_caught_each_time_with_the_same_story():
    stories = []
    for _ in range(2):
        with pytest.raises(SimulationError, match="exactly once: topic 'counts'") as caught:
            simulate(forgetful, ONE, seeds=range(20), processing_guarantee="exactly_once_v2")
        assert "faults that are needed for it:" in str(caught.value)
        assert f"seeds=[{caught.value.seed}]" in str(caught.value)
        stories.append((caught.value.seed, caught.value.invariant, caught.value.schedule, caught.value.history))

    assert stories[0] == stories[1]


@pytest.mark.world
@pytest.mark.seeds("name", mutations.FOUND, 3)
def test_deliberate_bug_is_found(name, monkeypatch):
    """By the seed that is known, or where the code has changed since by another of the first ones.

    Worlds without faults do not show it: what failed there would say nothing about the storm.
    """
    world, guarantee, known = mutations.FOUND[name]
    # Which faults are needed is of no interest here, and takes up to forty more worlds.
    monkeypatch.setattr(importlib.import_module("streams.testing.simulation.simulate"), "_SHRINK_RUNS", 0)

    with mutations.ALL[name](), pytest.raises(SimulationError) as caught:
        storm(world, [known, *range(ENOUGH)], guarantee)

    assert caught.value.seed >= 0, str(caught.value)


def test_guide_names_the_seed_of_each_deliberate_bug():
    """``python -m tests.testing.simulation.first_seeds --write`` makes the table true again."""
    told = [line for line in first_seeds.GUIDE.read_text().splitlines() if re.fullmatch(r"\| .+ \| \d+ \|", line)]

    assert told == first_seeds.table()


DIGEST = """
from streams.testing import simulate
from tests.testing.simulation.worlds import ONE, word_count
print([simulate(word_count, ONE, seeds=[seed], processing_guarantee="exactly_once_v2").digest for seed in (3, 14)])
"""


@pytest.mark.world
def test_seed_decides_everything_in_any_process():
    """Also where strings hash differently."""
    printed = printed_with_other_hashes(DIGEST)

    assert printed[0] == printed[1]
    assert printed[0].count("'") == 4


@pytest.mark.parametrize("bursts", [0, 3])
def test_results_that_come_with_time_are_there_after_a_rest(bursts):
    """Whether the inputs come evenly or with gaps; without a rest the last window of each key is still open."""
    rows = [(words, key, value, time_ms) for key, value, time_ms in ONE[words]]
    windows = {}
    for rest_ms in (0, 20_000):
        scenario = Scenario(
            final_windows, rows, {}, {"words": 2, "window-counts": 2}, 20_000, is_exactly_once=True, rest_ms=rest_ms
        )
        world = World(-1, scenario, evolve(Conditions.undisturbed(0, scenario), bursts=bursts))
        outcome, violation = world.run()
        assert violation is None
        windows[rest_ms] = len(outcome.finals[OutputPlace("topic", "window-counts")])

    assert windows == {0: 3 * 7, 20_000: 4 * 7}


async def echoed(word: str) -> str:
    return word


def beside_another(builder: StreamsBuilder) -> None:
    """Two operators that call async functions; the second one has room for two records at most."""
    stream = builder.stream(words)
    stream.map_values_async(echoed, name="wide", concurrency=10, order="partition").to(pairs)
    few = stream.filter(lambda _, word: int(word[1:]) < 2)
    few.map_values_async(echoed, name="narrow", concurrency=1).to(pairs)


def test_results_for_which_another_node_had_no_room_do_not_wait_for_the_next_record():
    """No call is left that could wake the thread, which has committed in the same iteration of its loop."""
    rows = [(words, "k", f"w{number}", number) for number in range(8)]
    settings = {"commit_interval_ms": 1}
    scenario = Scenario(beside_another, rows, settings, {"words": 1, "pairs": 1}, 2_000, is_exactly_once=False)

    outcome, violation = World(-1, scenario, Conditions.undisturbed(0, scenario)).run()

    assert violation is None
    assert outcome.counts[OutputPlace("topic", "pairs")] == {b"k": 8 + 2}


def test_records_of_a_topic_are_written_in_the_given_order():
    """The third record is two windows late."""
    rows = [(words, "k", "w", time_ms) for time_ms in (0, 12_000, 1_000)] + [(others, "k", "o", 500)]

    assert [row[3] for row in in_order_of_topics(rows)] == [0, 500, 12_000, 1_000]


def final_counts(builder: StreamsBuilder) -> None:
    windowed = builder.stream(words).group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=5)))
    windowed.count("late-counts").to_stream().to(window_counts)
    windowed.late().map_values(lambda word: 1).to(counts)


@pytest.mark.parametrize("arrival", Arrival)
def test_record_that_is_given_late_is_late(arrival):
    rows = in_order_of_topics([(words, "k", "w", time_ms) for time_ms in (0, 12_000, 1_000)])
    scenario = Scenario(final_counts, rows, {}, {"words": 1, "counts": 1, "window-counts": 1}, 1_000, True)

    outcome, violation = World(-1, scenario, evolve(Conditions.undisturbed(0, scenario), arrival=arrival)).run()

    assert violation is None
    assert outcome.counts[OutputPlace("topic", "counts")] == {b"k": 1}


@pytest.mark.world
def test_worlds_that_are_over_leave_nothing_behind():
    """Hundreds of them in one process grew to a gigabyte, for a finalizer of their producers kept them."""

    def parts() -> list[object]:
        gc.collect()
        return [one for one in gc.get_objects() if type(one) in (World, Producer, VirtualLoop)]

    # Those of other tests in this process.
    before = parts()
    rows = [(words, "k", f"w{number}", number) for number in range(8)]
    scenario = Scenario(beside_another, rows, {}, {"words": 1, "pairs": 1}, 2_000, is_exactly_once=True)
    assert World(7, scenario, Conditions.drawn(7, scenario)).run()[1] is None

    assert [one for one in parts() if not any(one is known for known in before)] == []


@pytest.mark.world
def test_many_seeds_in_which_nothing_happens_prove_nothing():
    """One record and a storm of 10 ms: nothing is restored, and the error says so."""
    with pytest.raises(SimulationError, match=r"50 seeds, but never: .*restores"):
        simulate(word_count, {words: [("k", "w", 0)]}, seeds=range(50), storm_ms=10)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seeds": ["a"]}, r"a seed of simulate\(\) must be an int of at least 0, not 'a'"),
        ({"seeds": [1, -1]}, r"a seed of simulate\(\) must be an int of at least 0, not -1"),
        ({"seeds": [1.5]}, r"a seed of simulate\(\) must be an int of at least 0, not 1.5"),
        ({"partitions": 0}, "partitions must be an int of at least 1, not 0"),
        ({"storm_ms": 0}, "storm_ms must be an int of at least 1, not 0"),
        ({"storm_ms": "x"}, "storm_ms must be an int of at least 1, not 'x'"),
        ({"rest_ms": -1}, "rest_ms must be an int of at least 0, not -1"),
    ],
)
def test_numbers_of_a_simulation_that_cannot_be_are_refused_before_it_begins(given, message):
    with pytest.raises(ConfigError, match=message):
        simulate(word_count, ONE, **({"seeds": [1]} | given))


def test_simulation_needs_seeds_and_inputs():
    with pytest.raises(ConfigError, match="no seeds"):
        simulate(word_count, ONE, seeds=[])
    with pytest.raises(ConfigError, match="no inputs"):
        simulate(word_count, {words: []}, seeds=[1])
    with pytest.raises(
        ConfigError, match=r"seeds of simulate\(\) must be numbers, such as range\(100\) or \[7\], not 7"
    ):
        simulate(word_count, ONE, seeds=7)
    with pytest.raises(ConfigError, match=r"simulate\(\) got \('k', 'w'\) without a time for topic 'words'"):
        simulate(word_count, {words: [("k", "w")]}, seeds=[1])
    with pytest.raises(
        ConfigError, match=r"timestamp_ms of simulate\(\) must be an int of epoch milliseconds, not 1.5"
    ):
        simulate(word_count, {words: [("k", "w", 1.5)]}, seeds=[1])
