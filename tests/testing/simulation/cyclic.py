"""Generated topologies with foreign-key joins, whose final tables are those of a bounded run.

The tasks of such a join are a cycle, inside of which nothing is waited for: intermediate results depend on the speed of
tasks, the last value of each key does not.
"""

from random import Random
from typing import Any

from attrs import define

from streams import StreamsBuilder
from streams.testing.simulation.conditions import Conditions, Scenario
from streams.testing.simulation.oracle import bounded_rows
from streams.testing.simulation.outcome import KeyRows, OutputPlace
from streams.testing.simulation.world import World
from tests.testing.simulation.combined import number_of
from tests.testing.simulation.stepped import GUARANTEES, PARTITIONS, events, others, results, rows

SEEDS_OF_TOPOLOGY = 10
PLACE = OutputPlace("topic", results.name)
Tables = dict[bytes | None, bytes]


@define(eq=False)
class Cyclic:
    """Topology ``number``, a function of the builder.

    With at-least-once, tables are read from topics and joined, and nothing is aggregated: a record that is processed
    again is forgiven there.
    """

    number: int
    guarantee: str

    def __call__(self, builder: StreamsBuilder) -> None:
        """Add one or two foreign-key joins and, behind them, a table that is grouped again."""
        rng = Random(f"cyclic {self.number}")
        is_exactly_once = self.guarantee == GUARANTEES[0]
        table = self._left(rng, builder) if is_exactly_once else builder.table(events, name="left")
        right = builder.table(others, name="right")
        for level in range(rng.randint(1, 2)):
            table = self._joined(rng, table, right)
            self._show(f"{level} join", table)
        if is_exactly_once and rng.random() < 0.5:
            grouped = table.group_by(lambda _, value: (f"g{number_of(value) % 3}", value), value=str)
            # The sum does not depend on the order of additions and subtractions.
            total = grouped.aggregate(
                lambda: 0,
                lambda _, value, total: total + number_of(value),
                lambda _, value, total: total - number_of(value),
                name="total",
                value=int,
            )
            # A group that has had rows for some time only is 0 or, if that time was too short to be seen, nothing.
            self._show("total", total.filter(lambda _, total: total > 0).map_values(str))

    def _left(self, rng: Random, builder: StreamsBuilder) -> Any:
        """Return a table of a topic, or one behind a repartition topic, which depends on the order of its records."""
        if rng.random() < 0.3:
            return builder.table(events, name="left")
        salt = str(rng.random())
        keyed = builder.stream(events).select_key(lambda _, value: f"k{number_of(value + salt) % 12}")
        if rng.random() < 0.5:
            return keyed.repartition(partitions=2, key=str, value=str).to_table(store="left")
        grouped = keyed.group_by_key(key=str, value=str)
        return grouped.reduce(lambda one, other: f"{number_of(one + other)}", name="left")

    def _joined(self, rng: Random, table: Any, right: Any) -> Any:
        """Some rows have no partner, some no foreign key, and some are deleted."""
        salt = str(rng.random())
        if rng.random() < 0.5:
            table = table.filter(lambda _, value: number_of(value + salt) % 4 > 0)

        def foreign_key(_: str, value: str) -> str | None:
            letter = "abcdefghij-"[number_of(salt + value) % 11]
            return None if letter == "-" else letter

        join = table.left_join if rng.random() < 0.5 else table.join
        return join(right, lambda one, other: f"{one}/{other}", foreign_key=foreign_key)

    def _show(self, name: str, table: Any) -> None:
        table.to_stream().map(lambda key, value: (f"{name} {key}", value)).to(results)


def topology_of(world: int) -> Cyclic:
    """Return the topology of a world: one for each ten, of which every third is run with at-least-once."""
    number = world // SEEDS_OF_TOPOLOGY
    return Cyclic(number, GUARANTEES[number % 3 == 2])


def scenario_of(topology: Cyclic) -> Scenario:
    """Return the scenario of a topology, whose inputs are there before it starts."""
    counts = dict.fromkeys((events.name, others.name, results.name), PARTITIONS)
    is_exactly_once = topology.guarantee == GUARANTEES[0]
    return Scenario(topology, rows(topology.number), {}, counts, 20_000, is_exactly_once, is_backlog=True)


def from_files(topology: Cyclic) -> Tables:
    """Return the final tables of the bounded run."""
    return _last(bounded_rows(scenario_of(topology), PARTITIONS, [results.name])[PLACE])


def differences(topology: Cyclic, expected: Tables, seed: int) -> str:
    """Run a world with faults of a topology, and return its difference from the bounded run, or ""."""
    scenario = scenario_of(topology)
    outcome, violation = World(seed, scenario, Conditions.drawn(seed, scenario)).run()
    if violation is not None:
        return violation
    tables = _last(outcome.rows[PLACE])
    differing = sorted(key for key in {**expected, **tables} if expected.get(key) != tables.get(key))
    if not differing:
        return ""
    key = differing[0]
    return f"the last value of key {key!r} is {tables.get(key)!r}, in a bounded run {expected.get(key)!r}"


def _last(rows: KeyRows) -> Tables:
    """Return the last value of each key that is not deleted."""
    return {key: value for key, own in rows.items() if (value := own[-1][0]) is not None}
