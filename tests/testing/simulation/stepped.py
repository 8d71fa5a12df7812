"""Generated topologies behind repartition topics, whose results depend on the order of all records that they read.

Topology ``number`` reads a backlog that is out of order and unevenly spread, filters it, changes its keys once or
several times, and has operators behind the repartition topics, whose results are those of a bounded run only if each
record comes at its place.  Each result has the name of its operator in its key, so that the records of a key come from
one task, and have one order.

With at-least-once, records may be processed again, which no state forgives.  So the topology has no operators there,
and each record is unique: without their repetitions, the records of a key have the order of the bounded run.
"""

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from attrs import define, evolve

from streams import (
    CalendarWindows,
    CountWindows,
    EmitStrategy,
    JoinWindows,
    Serde,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topic,
)
from streams.protocol.wire.framing import MAX_FRAME_BYTES
from streams.testing.simulation.conditions import Conditions, Row, Scenario, in_order_of_topics
from streams.testing.simulation.oracle import bounded_rows
from streams.testing.simulation.outcome import Expectation, KeyRows, Outcome, OutputPlace
from streams.testing.simulation.world import World
from tests.testing.simulation.combined import number_of
from tests.testing.simulation.worlds import openings

MS = timedelta(milliseconds=1)

events = Topic("events", key=str, value=str)
others = Topic("others", key=str, value=str)
results = Topic("results", key=str, value=str)
PARTITIONS = 3
LETTERS = "letters"
OUTPUTS = tuple(OutputPlace("topic", name) for name in (results.name, LETTERS))
RECORDS = 110
SEEDS_OF_TOPOLOGY = 10
#: One of so many worlds has no faults and little patience, but tasks that are slow and write little.
CALM = 5
GUARANTEES = ("exactly_once_v2", "at_least_once")


def rows(number: int) -> list[Row]:
    """Return the inputs of a topology: half of the records have one key, and up to a third are out of order."""
    rng = Random(f"rows {number}")
    disorder = rng.choice(((0,), (0, 0, 400), (0, 0, 0, 500, 6_000)))
    made: list[Row] = []
    for index in range(RECORDS):
        time_ms = 10_000 + index * 150 - rng.choice(disorder)
        made.append((events, rng.choice(("k0", rng.choice("abcdefgh"))), f"e{index}", time_ms))
        if index % 3 == 0:
            made.append((others, rng.choice("abcdefgh"), f"o{index}", 10_000 + index * 150 - rng.choice(disorder)))
    return in_order_of_topics(made)


def _read(data: bytes) -> str:
    text = data.decode()
    if text[0] in "eo" and text[1:].isdecimal() and number_of(text) % 9 == 0:
        raise ValueError(text)
    return text


#: A ninth of the values cannot be deserialized: their records become dead letters, at their places.
FRAGILE = Serde("fragile", str.encode, _read, is_immutable=True)


@define(eq=False)
class Stepped:
    """Topology ``number``, a function of the builder."""

    number: int
    guarantee: str = GUARANTEES[0]

    def __call__(self, builder: StreamsBuilder) -> None:
        """Add all steps to the topology."""
        rng = Random(f"stepped {self.number}")
        stream: Any = builder.stream(events)
        side: Any = builder.stream(others)
        if rng.random() < 0.3:
            stream = stream.merge(side)
        levels = rng.randint(1, 3)
        for level in range(levels):
            partitions = rng.choice((2, PARTITIONS))
            value = FRAGILE if level == levels - 1 and rng.random() < 0.5 else str
            stream, groups = self._regrouped(rng, stream, partitions, value)
            if self.guarantee == GUARANTEES[0]:
                for name in rng.sample(sorted(OPERATORS), 2):
                    self._show(f"{level} {name}", OPERATORS[name](self, rng, stream, f"{level}-{name}"))
                if rng.random() < 0.5:
                    side, _ = self._regrouped(rng, side, partitions, str, groups)
                    self._show(f"{level} join", self._joined(rng, stream, side, f"{level}-join"))
        self._show("rest", stream)

    def _regrouped(
        self, rng: Random, stream: Any, partitions: int, value: Any, groups: int | None = None
    ) -> tuple[Any, int]:
        """Return a part of the records, with other keys, and the number of keys."""
        salt, divisor, count = str(rng.random()), rng.choice((2, 5, 20)), groups or rng.choice((2, 5))
        is_rare = rng.random() < 0.3

        def is_kept(key: str, value: str) -> bool:
            return (number_of(salt + value) % divisor == 0) is is_rare

        keyed = stream.filter(is_kept).select_key(lambda key, value: f"g{number_of(value + salt) % count}")
        return keyed.repartition(partitions=partitions, key=str, value=value), count

    def _show(self, name: str, stream: Any) -> None:
        stream.map(lambda key, value: (f"{name} {key}", value)).to(results)

    # --- operators whose results depend on the order -------------------------------------------

    def chain(self, rng: Random, stream: Any, name: str) -> Any:
        """Each result depends on all records of the key."""
        table = stream.group_by_key().reduce(lambda one, other: f"{number_of(one + other)}", name)
        return table.to_stream()

    def windows(self, rng: Random, stream: Any, name: str) -> Any:
        """Which records are late depends on the order among all keys."""
        grace = rng.choice((0, 300)) * MS
        windows: TimeWindows | CalendarWindows = TimeWindows.of(1_000 * MS, grace=grace)
        # Drawn apart, so that it changes nothing in the other topologies.
        if Random(f"calendar windows {self.number} {name}").random() < 0.3:
            windows = CalendarWindows.openings("UTC", openings(0, 30), grace=grace)
        windowed = stream.group_by_key().windowed_by(windows)
        counted = windowed.count(name).to_stream().map(lambda key, count: (key.key, f"{key.window.start_ms} {count}"))
        late = windowed.late(f"{name}-late").map_values(lambda value: f"late {value}")
        self._show(f"{name} late", late)
        return counted

    def sessions(self, rng: Random, stream: Any, name: str) -> Any:
        windowed = stream.group_by_key().windowed_by(SessionWindows.of(400 * MS, grace=rng.choice((0, 300)) * MS))
        counted = windowed.count(name).to_stream(tombstones=False)
        return counted.map(lambda key, count: (key.key, f"{key.window.start_ms} {count}"))

    def count_windows(self, rng: Random, stream: Any, name: str) -> Any:
        windowed = stream.group_by_key().windowed_by(CountWindows.of(3)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        table = windowed.reduce(lambda one, other: f"{one}/{other}", name)
        return table.to_stream().map(lambda key, value: (key.key, value))

    def deduplicate(self, rng: Random, stream: Any, name: str) -> Any:
        return stream.deduplicate(lambda _, value: number_of(value) % 7, within=1_500 * MS, store=name)

    def _joined(self, rng: Random, stream: Any, side: Any, name: str) -> Any:
        """Two repartition topics are the inputs of one task."""
        if rng.random() < 0.5:
            table = side.to_table(store=f"{name}-table")
            return stream.left_join(table, lambda one, other: f"{one}/{other}")
        windows = JoinWindows.of(600 * MS, grace=rng.choice((0, 300)) * MS)
        return stream.left_join(side, lambda one, other: f"{one}/{other}", windows, store=name)


OPERATORS: dict[str, Callable[[Stepped, Random, Any, str], Any]] = {
    "chain": Stepped.chain,
    "windows": Stepped.windows,
    "sessions": Stepped.sessions,
    "count-windows": Stepped.count_windows,
    "deduplicate": Stepped.deduplicate,
}


def scenario_of(topology: Stepped, **settings: Any) -> Scenario:
    """Return the scenario of a topology, whose inputs are there before it starts."""
    settings = {"deserialization_handler": "continue", "errors_dead_letter_queue_topic_name": LETTERS, **settings}
    is_exactly_once = topology.guarantee == GUARANTEES[0]
    counts = dict.fromkeys(("events", "others", results.name), PARTITIONS)
    inputs = rows(topology.number)
    return Scenario(topology, inputs, settings, counts, 20_000, is_exactly_once, is_backlog=True)


def from_files(topology: Stepped) -> dict[OutputPlace, KeyRows]:
    """Return the outputs of the bounded run."""
    return bounded_rows(scenario_of(topology), PARTITIONS, [place.name for place in OUTPUTS])


def differences(topology: Stepped, expected: dict[OutputPlace, KeyRows], seed: int, **settings: Any) -> str:
    """Run a world with faults of a topology, and return its difference from the bounded run, or ""."""
    rng = Random(f"stepped {seed}")
    # So few bytes that a task waits for the others after a handful of records.
    settings = {"repartition_buffer_bytes": rng.choice((60, 400, 1 << 20)), **settings}
    is_calm = seed % CALM == CALM - 1
    if is_calm:
        settings |= {"repartition_patience_ms": 4_000, "repartition_buffer_bytes": 60}
    scenario = scenario_of(topology, **settings)
    conditions = Conditions.drawn(seed, scenario)
    if is_calm:
        slow = {"max_poll_records": 1, "num_stream_threads": 2}
        conditions = evolve(Conditions.undisturbed(0, scenario), machines=3, settings=slow, paces_ms=(20, 300))
    world = World(seed, scenario, evolve(conditions, max_request_bytes=rng.choice((150, MAX_FRAME_BYTES))))
    outcome, violation = world.run()
    if violation is not None:
        return violation
    metrics = [each for machine in world.machines.values() for each in machine.past]
    if any(each.get("repartition-wait-ended-total") for each in metrics):
        return "a wait for a task has ended, though the task moves"
    if not scenario.is_exactly_once:
        outcome = Outcome(rows={place: _without_repetitions(own) for place, own in outcome.rows.items()})
    return Expectation(Outcome(), rows=expected).difference_from_files(outcome) or ""


def _without_repetitions(rows: KeyRows) -> KeyRows:
    return {key: list(dict.fromkeys(own)) for key, own in rows.items()}


def topology_of(world: int) -> Stepped:
    """Return the topology of a world: one for each ten, of which every third is run with at-least-once."""
    number = world // SEEDS_OF_TOPOLOGY
    return Stepped(number, GUARANTEES[number % 3 == 2])
