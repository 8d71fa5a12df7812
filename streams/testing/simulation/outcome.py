"""Outcomes of simulated worlds: their output topics and stores, compared with those of worlds without faults."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest

from attrs import define, field, frozen

from streams.core.blocks.records import TopicPartition
from streams.testing.simulation.brokers import SimBroker
from streams.testing.simulation.processes import Machine

#: A serialized key.
Key = bytes | None
#: Value and timestamp of the records of each key, in their order.
KeyRows = dict[Key, list[tuple[bytes | None, int]]]


@frozen
class OutputPlace:
    """The kind and name of an output topic or state store, by which an outcome is divided."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


@define
class Outcome:
    """The results of a simulated world: record count and last value by key, for each output topic and store.

    A store has one record per key.
    """

    counts: dict[OutputPlace, dict[Key, int]] = field(factory=dict)
    finals: dict[OutputPlace, dict[Key, bytes | None]] = field(factory=dict)
    #: The records of the output topics.
    rows: dict[OutputPlace, KeyRows] = field(factory=dict)

    def add(self, place: OutputPlace, key: Key, value: bytes | None) -> None:
        """Add a record of an output topic or store; it replaces the last value of its key."""
        counts = self.counts.setdefault(place, {})
        counts[key] = counts.get(key, 0) + 1
        self.finals.setdefault(place, {})[key] = value


def collect(
    broker: SimBroker,
    machines: Iterable[Machine],
    topics: Iterable[str],
    stores: Mapping[str, int],
    *,
    committed_only: bool,
) -> Outcome:
    """Read output topics and stores of a world whose processing is complete.

    ``stores`` has, for each store, the length of the sequence number at the end of its keys (0 if it has none): it
    distinguishes duplicates and differs between runs, so it is removed.
    """
    outcome = Outcome()
    for topic in topics:
        place = OutputPlace("topic", topic)
        outcome.counts[place], outcome.finals[place] = {}, {}
        for number in range(len(broker.machine.topics.by_name[topic].logs)):
            for block in broker.read(TopicPartition(topic, number), committed_only=committed_only):
                for key, value, time_ms in zip(block.keys, block.values, block.timestamps, strict=True):
                    outcome.add(place, key, value)
                    outcome.rows.setdefault(place, {}).setdefault(key, []).append((value, time_ms))
    for machine in machines:
        for task in machine.tasks():
            for name, suffix in stores.items():
                if name not in task.stores:
                    continue
                for block in task.stores[name].snapshot_blocks():
                    for key, value in zip(block.keys, block.values, strict=True):
                        outcome.add(OutputPlace("store", name), key[:-suffix] if suffix and key else key, value)
    return outcome


class OrderDependenceError(Exception):
    """Raised if worlds without faults that differ in the order of their inputs have different results."""

    def __init__(self, places: Sequence[OutputPlace], difference: str) -> None:
        shown = ", ".join(map(str, places))
        names = list(dict.fromkeys(place.name for place in places))
        super().__init__(
            f"results depend on the order in which records of different partitions arrive: {shown} "
            f"({difference}); where that is meant, say so with may_depend_on_order={names!r}: "
            "these are only checked for missing keys then"
        )


@define
class Expectation:
    """The expected outcome of worlds with faults: the common result of the undisturbed worlds, which have none.

    If some key of a topic or store differs between these worlds, its content depends on the order in which records of
    several partitions arrive.  It is then only checked that there is at least one record for each key that all
    undisturbed worlds have.  ``rows`` has what a bounded run gives, if all inputs are there before the application
    starts: the same records of each key, in the same order.
    """

    outcome: Outcome
    unsettled: frozenset[OutputPlace] = frozenset()
    #: Keys that all undisturbed worlds have.
    common: dict[OutputPlace, set[Key]] = field(factory=dict)
    rows: dict[OutputPlace, KeyRows] = field(factory=dict)

    @classmethod
    def of(
        cls,
        outcomes: Sequence[Outcome],
        may_differ: Collection[str] = (),
        rows: Mapping[OutputPlace, KeyRows] | None = None,
    ) -> "Expectation":
        """Compare undisturbed worlds with each other; topics and stores in ``may_differ`` count as order-dependent.

        Raises:
            OrderDependenceError: a topic or store not in ``may_differ`` differs.
        """
        first = outcomes[0]
        places = dict.fromkeys(place for outcome in outcomes for place in outcome.finals)
        differing = {
            place: _first_difference(first, other, place)
            for place in places
            for other in outcomes[1:]
            if _differing(first, other, place)
        }
        unnamed = sorted((place for place in differing if place.name not in may_differ), key=str)
        if unnamed:
            raise OrderDependenceError(unnamed, differing[unnamed[0]])
        unsettled = frozenset(place for place in places if place in differing or place.name in may_differ)
        common = {
            place: set.intersection(*(set(outcome.finals.get(place, {})) for outcome in outcomes))
            for place in unsettled
            if place.kind == "topic"
        }
        return cls(first, unsettled, common, dict(rows or {}))

    def order_dependent(self) -> tuple[str, ...]:
        """Return the topics and stores that are not compared record by record."""
        return tuple(sorted(str(place) for place in self.unsettled))

    def violation_of_exactly_once(self, outcome: Outcome) -> str | None:
        """Return a description of the first difference from the expected outcome, or None."""
        if (difference := self.difference_from_files(outcome)) is not None:
            return difference
        for place in {**self.outcome.finals, **outcome.finals}:
            if place in self.unsettled:
                continue
            for key in sorted(_differing(self.outcome, outcome, place), key=_order):
                return (
                    f"exactly once: {place}, key {key!r} has {_shown(outcome, place, key)}, "
                    f"undisturbed {_shown(self.outcome, place, key)}"
                )
        return self._missing(outcome)

    def difference_from_files(self, outcome: Outcome) -> str | None:
        """Return a description of the first difference from the bounded run, or None."""
        for place, expected in self.rows.items():
            if place in self.unsettled:
                continue
            there = outcome.rows.get(place, {})
            for key in sorted({**expected, **there}, key=_order):
                for index, (one, other) in enumerate(zip_longest(expected.get(key, ()), there.get(key, ()))):
                    if one != other:
                        return (
                            f"in step: {place}, record {index} of key {key!r} is {_row(other)}, in a bounded run "
                            f"{_row(one)}"
                        )
        return None

    def violation_of_at_least_once(self, outcome: Outcome, reprocessed: int) -> str | None:
        """Return a description of the first violation of at-least-once, or None.

        If no record was reprocessed and no call repeated, the outcome must pass the exactly-once check.  Otherwise only
        missing records are violations, and stores are not compared, because reprocessing may change their contents.
        """
        if not reprocessed:
            return self.violation_of_exactly_once(outcome)
        for place, counts in self.outcome.counts.items():
            if place in self.unsettled or place.kind == "store":
                continue
            for key in sorted(counts, key=_order):
                there = outcome.counts.get(place, {}).get(key, 0)
                if there < counts[key]:
                    return f"at least once: {place}, key {key!r} has {there} records, undisturbed {counts[key]}"
        return self._missing(outcome)

    def _missing(self, outcome: Outcome) -> str | None:
        for place, keys in self.common.items():
            for key in sorted(keys - outcome.finals.get(place, {}).keys(), key=_order):
                return f"{place} has no record of key {key!r}"
        return None


def _differing(one: Outcome, other: Outcome, place: OutputPlace) -> set[Key]:
    keys = {**one.finals.get(place, {}), **other.finals.get(place, {})}
    return {
        key
        for key in keys
        if one.counts.get(place, {}).get(key) != other.counts.get(place, {}).get(key)
        or one.finals.get(place, {}).get(key) != other.finals.get(place, {}).get(key)
    }


def _first_difference(one: Outcome, other: Outcome, place: OutputPlace) -> str:
    key = min(_differing(one, other, place), key=_order)
    return f"key {key!r} of {place} has {_shown(one, place, key)}, or {_shown(other, place, key)}"


def _shown(outcome: Outcome, place: OutputPlace, key: Key) -> str:
    count = outcome.counts.get(place, {}).get(key, 0)
    return f"{count} records, the last {outcome.finals.get(place, {}).get(key)!r}" if count else "none"


def _row(row: tuple[bytes | None, int] | None) -> str:
    return "missing" if row is None else f"{row[0]!r} at {row[1]}"


def _order(key: Key) -> tuple[bool, bytes]:
    return (key is not None, key or b"")
