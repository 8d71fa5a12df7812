"""``simulate`` runs a topology in many simulated worlds with faults, and compares them with worlds without faults."""

import copy
import gc
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Unpack

from attrs import evolve, frozen

from streams.core.arguments import InputRow, checked_count, checked_row, checked_time
from streams.core.blocks.records import NO_TIMESTAMP, TopicPartition
from streams.core.errors import ConfigError, TopologyError
from streams.core.nearest import meant
from streams.core.settings.config import StreamsConfig, setting_name
from streams.core.settings.settings import Settings
from streams.core.topic import Topic, TopicLike, topic_names, typed_topic
from streams.dsl import TopologySource, build_topology
from streams.runtime import out_of_step, steps, tuned_collector
from streams.testing.simulation.conditions import Conditions, Row, Scenario, in_order_of_topics, tagged
from streams.testing.simulation.faults import Fault
from streams.testing.simulation.oracle import bounded_rows
from streams.testing.simulation.outcome import Expectation, OrderDependenceError, Outcome
from streams.testing.simulation.report import SimulationError, SimulationReport, Verdict
from streams.testing.simulation.world import LoggedRecord, World
from streams.topology import Topology, copartitions, reader_of, resolve_partitions, sub_topologies

#: Number of seeds from which on every kind of event must have occurred at least once.
_MANY = 50
#: The same for events with preconditions: removing a thread requires a second thread, and a warm-up replica requires
#: much state.
_VERY_MANY = 200
#: Number of worlds without faults that determine the expected outcome.
_UNDISTURBED = 6
#: Descriptions of the message faults of ``Weather``, for the schedule of a failed seed.
_MESSAGE_FAULTS = {
    "resets": "resets of connections",
    "silences": "silently lost connections",
    "slowness": "slow messages",
}
#: Maximum number of worlds run to shrink a failure.
_SHRINK_RUNS = 40


@frozen
class _Simulation:
    """The parameters that the worlds of all seeds have in common."""

    scenario: Scenario
    expectation: Expectation
    #: The repartition topics that are not read in step, each with the reason.
    out_of_step: dict[str, str]
    has_state: bool
    grows: bool
    repeat: str

    def run(self, seed: int, conditions: Conditions) -> Verdict:
        """Run the world of a seed under the given conditions, and return its result; ``conditions`` is not changed."""
        fresh = evolve(conditions, weather=copy.copy(conditions.weather))
        return World(seed, self.scenario, fresh).verdict(self.expectation)

    def conditions(self, seed: int) -> Conditions:
        """Draw the conditions of the world of a seed."""
        return Conditions.drawn(seed, self.scenario)


def simulate(
    topology: TopologySource,
    inputs: Mapping[Topic[Any, Any], Iterable[InputRow[Any, Any]]],
    *,
    seeds: Iterable[int],
    partitions: int = 2,
    storm_ms: int = 20_000,
    rest_ms: int = 0,
    backlog: bool = False,
    may_depend_on_order: Iterable[TopicLike] = (),
    **settings: Unpack[Settings],
) -> SimulationReport:
    """Run a topology in many simulated worlds with faults, and check its results.

    Each seed is a separate world in virtual time: one or two brokers, three machines that run the application, and a
    producer that writes the ``inputs``, by topic. Connections are slow, reset, and silently lost; machines crash
    (synced data survives), stall, restart and are cut off by network partitions; threads are added and removed,
    processing is paused, partitions are added, leaders and coordinators move, the metadata of brokers is stale, and
    brokers crash. After ``storm_ms`` ms of virtual time the faults stop, and the group must become stable.

    An input is a row of (key, value, timestamp_ms).  In (key, value) the time is that of ``Topic(timestamp=...)``, and
    in (value,) the key is that of ``Topic(key_from=...)``, if any, as well.

    At every step, the simulation checks that a partition has one owner per generation, that committed offsets never
    decrease, that removed members cannot commit, that partitions stay in their partition groups, and that no thread
    busy-loops: polls without waiting, although no message arrives or is processed. At the end, it checks that the log
    contains each acknowledged record once and in order. With exactly_once_v2, the results (read with
    read_committed) and stores must equal those of an undisturbed world in the number of records and the final value
    of each key. With at_least_once, no record may be missing.

    Worlds without faults are run first. Running the same world twice must write the same records; otherwise the
    topology is not deterministic or keeps state outside of its stores. Worlds with other orders of input must have the
    same results, except for what ``may_depend_on_order`` names: checked only for missing keys, listed in the report.

    The inputs are written within 90 % of ``storm_ms``, in some worlds with gaps, in which inputs are idle. Records of
    one topic and key are written in the given order, so that a record with an earlier timestamp is late. Before the
    results are compared, ``rest_ms`` milliseconds of virtual time pass without inputs, for results that depend on
    time, not on records.

    With ``backlog``, all inputs are in their topics before the application starts, and threads process them at
    different speeds. Then the order is that of event time, as in files: the records of each output topic and key are
    compared, in their order, with those of a bounded run (with at_least_once in worlds in which nothing was processed
    again). No promise is made of topics behind a cycle, such as those of foreign-key joins, nor of results that
    depend on the time of day: name them in ``may_depend_on_order``.

    ``partitions`` is the partition count of topics that do not declare one. ``settings`` are those of
    ``StreamsConfig``; of the tags in ``rack_aware_assignment_tags``, those that ``client_tags`` leaves out differ
    between the machines.

    Raises:
        SimulationError: a seed failed, a kind of event did not occur in many seeds, or the topology is not
            deterministic, or depends on the order of arrival outside of ``may_depend_on_order``.
        ConfigError: there are no seeds or no inputs, a seed or another number is out of range, or an input is no such
            row, or its time is left out and its topic declares none, or with ``backlog`` its key is None.
        SerializationError: ``key_from`` of a topic failed.
        InvalidTimestampError: ``timestamp`` of a topic failed, or there is no value for it.
        TopologyError: an input is not a ``Topic`` or is not read by the topology, or a name in ``may_depend_on_order``
            is unknown.
    """
    chosen = _seeds(seeds)
    checked_count(partitions, "simulate(): partitions", ConfigError)
    checked_count(storm_ms, "simulate(): storm_ms", ConfigError)
    checked_count(rest_ms, "simulate(): rest_ms", ConfigError, minimum=0)
    named = topic_names(may_depend_on_order, "may_depend_on_order", TopologyError)
    with tuned_collector():
        simulation = _prepared(topology, inputs, partitions, storm_ms, rest_ms, named, settings, is_backlog=backlog)
        report = _report(simulation, chosen)
    if report.seeds >= _MANY:
        _check_exercised(simulation, report)
    return report


def _seeds(seeds: Iterable[int]) -> list[int]:
    if not isinstance(seeds, Iterable):
        raise ConfigError(f"seeds of simulate() must be numbers, such as range(100) or [{seeds!r}], not {seeds!r}")
    # A generator of random numbers takes others too, and gives -1 the world of 1.
    chosen = [checked_count(seed, "a seed of simulate()", ConfigError, minimum=0) for seed in seeds]
    if not chosen:
        raise ConfigError("simulate() got no seeds; pass for example seeds=range(100)")
    return chosen


def _report(simulation: _Simulation, seeds: Iterable[int]) -> SimulationReport:
    expectation = simulation.expectation
    report = SimulationReport(order_dependent=expectation.order_dependent(), out_of_step=simulation.out_of_step)
    for seed in seeds:
        conditions = simulation.conditions(seed)
        verdict = simulation.run(seed, conditions)
        if verdict.violation is not None:
            raise _explained(simulation, seed, conditions, verdict)
        report.add(verdict.counters)
        report.seeds += 1
        report.virtual_seconds += verdict.virtual_ms / 1000
        report.records += verdict.records
        report.digest = verdict.digest
        # The objects of a world refer to each other, and are collected at once.
        gc.collect()
    return report


def _written(topic: Topic[Any, Any], row: object) -> Row:
    """Return a row as it is written, with the key and the time that the topic declares where it leaves them out."""
    key, value, time_ms = checked_row(row, "simulate()", ConfigError)
    if time_ms is None:
        if topic.event_time is None:
            raise ConfigError(
                f"simulate() got {row!r:.100} without a time for topic {topic.name!r}, which declares none; give "
                "(key, value, timestamp_ms), or Topic(timestamp=...)"
            )
        time_ms = topic.event_time.one(topic.key_of(value, key), value, NO_TIMESTAMP, NO_TIMESTAMP)
        checked_time(time_ms, f"timestamp of topic {topic.name!r}", ConfigError)
    return topic, topic.key_of(value, key), value, time_ms


def _prepared(
    topology: TopologySource,
    inputs: Mapping[Topic[Any, Any], Iterable[InputRow[Any, Any]]],
    partitions: int,
    storm_ms: int,
    rest_ms: int,
    may_depend_on_order: Collection[str],
    options: Settings,
    *,
    is_backlog: bool,
) -> _Simulation:
    for topic in inputs:
        typed_topic(topic, "an input of simulate()")
    rows = [_written(topic, row) for topic, records in inputs.items() for row in records]
    if not rows:
        raise ConfigError(
            "simulate() got no inputs; pass for example inputs={topic: [(key, value, timestamp_ms), ...]}"
        )
    rows = in_order_of_topics(rows)
    settings = {setting_name(name): value for name, value in options.items()}
    config = StreamsConfig.of(application_id="sim", **tagged(settings, 1))
    built = build_topology(topology, config)
    counts: dict[str, int] = {}
    for sub in sub_topologies(built, {topic.name: 1 for topic in inputs}):
        for name in (*sub.source_topics, *sub.sink_topics):
            if name not in built.internal_topics:
                declared = built.topics.get(name)
                counts[name] = (declared.partitions if declared is not None else None) or partitions
    sources = built.all_sources()
    read = {name for source in sources for name in source.topics}
    for topic in inputs:
        if reader_of(topic.name, sources) is None:
            raise TopologyError(f"the topology does not read topic {topic.name!r}; {meant(topic.name, read)}")
        counts.setdefault(topic.name, topic.partitions or partitions)
    # What no world could run is said once, before the worlds.
    resolve_partitions(built, sub_topologies(built, counts), counts)
    # The broker of a streams group refuses to assign tasks when inputs of state have grown.
    may_grow = _may_grow(built) and config.group_protocol == "classic" and not is_backlog
    growing = [topic.name for topic in inputs] if may_grow else []
    scenario = Scenario(
        topology, rows, dict(settings), counts, storm_ms, config.is_exactly_once, growing, rest_ms, is_backlog
    )
    _check_named(may_depend_on_order, built)
    repeat = f'simulate(topology, inputs, seeds=[{{}}], processing_guarantee="{config.processing_guarantee}")'
    expectation = _expectation(scenario, may_depend_on_order, partitions)
    if growing and expectation.violation_of_exactly_once(
        _undisturbed(scenario, _UNDISTURBED, Conditions.growing(scenario))[0]
    ):
        # The results depend on the partition count, so no fault may change it.
        scenario = evolve(scenario, growing=())
    has_state = any(spec.has_changelog for spec in built.stores.values())
    unordered = out_of_step(steps(built, config))
    return _Simulation(scenario, expectation, unordered, has_state, bool(scenario.growing), repeat)


def _check_named(names: Collection[str], topology: Topology) -> None:
    """Check that the topology has these topics and stores.

    Raises:
        TopologyError: a name is unknown.
    """
    outputs = {sink.topic for sink in topology.sinks() if sink.topic is not None} - set(topology.internal_topics)
    outputs |= set(topology.stores)
    for name in names:
        if name not in outputs and all(sink.topic_for is None for sink in topology.sinks()):
            raise TopologyError(
                f"may_depend_on_order: the topology has no output topic or store {name!r}; {meant(name, outputs)}"
            )


def _expectation(scenario: Scenario, may_depend_on_order: Collection[str], partitions: int) -> Expectation:
    """Run worlds without faults, and return the expected outcome of worlds with faults.

    Raises:
        SimulationError: the same world has two results, a world fails, results depend on the order of arrival, or a
            world with a backlog has others than a bounded run.
    """
    outcomes = []
    for number in range(_UNDISTURBED):
        outcome, records = _undisturbed(scenario, number, Conditions.undisturbed(number, scenario))
        if number == 0:
            _, again = _undisturbed(scenario, number, Conditions.undisturbed(number, scenario))
            _check_deterministic(records, again)
        outcomes.append(outcome)
    topics = [place.name for place in outcomes[0].finals if place.kind == "topic"]
    rows = bounded_rows(scenario, partitions, topics) if scenario.is_backlog else {}
    try:
        expectation = Expectation.of(outcomes, may_depend_on_order, rows)
    except OrderDependenceError as dependence:
        raise SimulationError(-1, str(dependence), [], [], "the same call") from None
    for number, outcome in enumerate(outcomes):
        if (difference := expectation.difference_from_files(outcome)) is not None:
            raise SimulationError(-1 - number, f"without faults: {difference}", [], [], "the same call")
    return expectation


def _check_deterministic(
    records: Mapping[TopicPartition, Sequence[LoggedRecord]], again: Mapping[TopicPartition, Sequence[LoggedRecord]]
) -> None:
    """Check that two runs of the same world have written the same records.

    Raises:
        SimulationError: the records differ.
    """
    for partition, rows in records.items():
        if rows == again[partition]:
            continue
        for offset, (one, other) in enumerate(zip_longest(rows, again[partition])):
            if one != other:
                raise SimulationError(
                    -1,
                    "the topology is not deterministic: the same world without faults, run twice, wrote different "
                    f"records; the first difference in {partition.topic!r} is in partition {partition.partition}, "
                    f"record {offset}: {_record(one)}, then {_record(other)}. Something in it is random, asks for "
                    "the time, or keeps state outside of its stores (in a variable that is shared, say)",
                    [],
                    [],
                    "the same call",
                )


def _record(record: LoggedRecord | None) -> str:
    if record is None:
        return "none"
    key, value, time_ms, headers = record
    shown = f"key {reprlib.repr(key)}, value {reprlib.repr(value)}, timestamp {time_ms}"
    return f"{shown}, headers {headers!r}" if headers else shown


def _undisturbed(
    scenario: Scenario, number: int, conditions: Conditions
) -> tuple[Outcome, dict[TopicPartition, list[LoggedRecord]]]:
    """Run a world without faults, and return its results and all written records.

    Raises:
        SimulationError: the world fails.
    """
    world = World(-1 - number, scenario, conditions)
    outcome, violation = world.run()
    if violation is not None:
        raise SimulationError(-1 - number, f"without faults: {violation}", [], world.history.last(), "the same call")
    return outcome, world.records()


def _explained(simulation: _Simulation, seed: int, conditions: Conditions, verdict: Verdict) -> SimulationError:
    """Return a failure as an error with the last events and the smallest set of faults found that causes it."""
    smallest, verdict = _shrunk(simulation, seed, conditions, verdict)
    schedule = [str(fault) for fault in smallest.faults]
    weather = smallest.weather
    for name, words in _MESSAGE_FAULTS.items():
        share = getattr(weather, name)
        if share:
            schedule.append(f"{words}: {share:.1%} of all messages")
    schedule += [f"{name}={value}" for name, value in smallest.settings.items()]
    assert verdict.violation is not None
    return SimulationError(seed, verdict.violation, schedule, verdict.history, simulation.repeat.format(seed))


def _shrunk(simulation: _Simulation, seed: int, conditions: Conditions, verdict: Verdict) -> tuple[Conditions, Verdict]:
    """Remove faults as long as the seed still fails; return the remaining faults and the result with them."""
    best, told = conditions, verdict
    runs = 0

    def fails(candidate: Conditions) -> bool:
        nonlocal best, told, runs
        if runs >= _SHRINK_RUNS:
            return False
        runs += 1
        again = simulation.run(seed, candidate)
        if again.violation is None:
            return False
        best, told = candidate, again
        return True

    for name in _MESSAGE_FAULTS:
        if getattr(best.weather, name):
            calmer = copy.copy(best.weather)
            setattr(calmer, name, 0.0)
            fails(evolve(best, weather=calmer))
    size = max(1, len(best.faults) // 2)
    while size:
        index = 0
        while index < len(best.faults):
            remaining: Sequence[Fault] = [*best.faults[:index], *best.faults[index + size :]]
            if not fails(evolve(best, faults=remaining)):
                index += size
        size //= 2
    return best, told


def _check_exercised(simulation: _Simulation, report: SimulationReport) -> None:
    """Check that every expected kind of event has occurred in at least one world.

    Raises:
        SimulationError: a kind of event has never occurred.
    """
    names = {"crashes", "stalls", "cuts", "broker_restarts", "clean_restarts", "static_restarts"}
    names |= {"added_threads", "pauses", "rebalances", "evictions", "drops", "delays", "resets", "idle_closes"}
    names |= {"leader_moves", "coordinator_moves", "refusals"}
    if simulation.has_state:
        names.add("restores")
    if simulation.scenario.is_exactly_once:
        names.add("fencings")
    if report.seeds >= _VERY_MANY:
        names |= {"removed_threads", "refused_requests", "late_requests"}
        if simulation.grows:
            names.add("added_partitions")
        if simulation.has_state:
            names.add("standby_takeovers")
            if simulation.scenario.settings.get("group_protocol") != "streams":
                # As in Kafka 4.4, the broker of a streams group assigns no warm-up tasks.
                names.add("warmups")
    missing = sorted(name for name in names if not getattr(report, name))
    if missing:
        raise SimulationError(
            -1,
            f"{report.seeds} seeds, but never: {', '.join(missing)}; faults that never occur are not tested",
            [],
            [report.summary()],
            "the same call with other seeds, or more of them",
        )


def _may_grow(topology: Topology) -> bool:
    """Return whether partitions may be added to topics; co-partitioned topics would have to be expanded together."""
    names = [topic for source in topology.sources() for topic in source.topics]
    shared = (group.topics(topology, names) for group in copartitions(topology))
    return all(len(topics) <= 1 for topics in shared) and not topology.global_stores
