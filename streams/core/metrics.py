"""Counters by task, node and name.

The thread that runs a task owns the counters of the task and increments them without a lock; readers see recent
values. The names are the same as in Kafka Streams: ``process-total``, ``dropped-records``, ``commit-total``,
``punctuate-total``, ``restore-total`` and others. Imports no other module of the package.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from attrs import define, field, frozen

#: Records dropped at a node: in total, or for one reason if a colon and the reason are appended to the name.
DROPPED = "dropped-records"


class MetricKey(NamedTuple):
    """Identity of a counter; ``task`` and ``node`` are None for counters of a whole thread or task."""

    task: Any
    node: str | None
    name: str


@define(eq=False)
class Counter:
    """A counter; its owner may increment ``value`` directly."""

    value: int = 0

    def add(self, count: int = 1) -> None:
        """Increment the counter."""
        self.value += count


@define(eq=False)
class Metrics:
    """All counters of an instance.

    >>> metrics = Metrics()
    >>> metrics.counter("dropped-records", task="0_0", node="filter").add(2)
    >>> metrics.counter("dropped-records", task="0_1", node="filter").value += 1
    >>> metrics.get("dropped-records", task="0_0", node="filter"), metrics.sum("dropped-records")
    (2, 3)
    """

    _counters: dict[MetricKey, Counter] = field(factory=dict)
    _examples: dict[MetricKey, str] = field(factory=dict)
    #: Called with task, node, reason and example of every drop, on the thread of the task; None if nothing observes.
    on_drop: Callable[[Any, str, str, str], None] | None = None

    def counter(self, name: str, *, task: Any = None, node: str | None = None) -> Counter:
        """Return the counter, which is created on first use. Look it up once and keep the reference."""
        key = MetricKey(task, node, name)
        found = self._counters.get(key)
        # setdefault is atomic, in case two threads create the counter.
        return found if found is not None else self._counters.setdefault(key, Counter())

    def drop(self, reason: str, count: int = 1, *, task: Any, node: str, example: str = "") -> None:
        """Count dropped records; ``example`` describes a record, and only the first example is kept."""
        self.counter(DROPPED, task=task, node=node).value += count
        name = f"{DROPPED}:{reason}"
        self.counter(name, task=task, node=node).value += count
        if example:
            self._examples.setdefault(MetricKey(task, node, name), example)
        if self.on_drop is not None:
            self.on_drop(task, node, reason, example)

    def examples(self) -> dict[tuple[str, str], str]:
        """Return the example of the first dropped record for each counter, by counter name and node."""
        return {(key.name, key.node or ""): text for key, text in reversed(list(self._examples.items()))}

    def drops(self) -> "list[Dropped]":
        """Return the dropped records by node and reason."""
        counts = [(key.name, key.node or "", count) for key, count in self.snapshot().items()]
        return dropped(counts, self.examples())

    def get(self, name: str, *, task: Any = None, node: str | None = None) -> int:
        """Return the value of a counter, which is 0 if the counter was never incremented."""
        found = self._counters.get(MetricKey(task, node, name))
        return 0 if found is None else found.value

    def sum(self, name: str, *, task: Any = None, node: str | None = None) -> int:
        """Return the sum over all counters with a name, optionally restricted to one task or node."""
        return sum(
            counter.value
            for key, counter in list(self._counters.items())
            if key.name == name and (task is None or key.task == task) and (node is None or key.node == node)
        )

    def snapshot(self) -> dict[MetricKey, int]:
        """Return all current values."""
        return {key: counter.value for key, counter in list(self._counters.items())}


@frozen
class Dropped:
    """Records dropped at one node for one reason; ``example`` describes the first, if known."""

    node: str
    reason: str
    count: int
    example: str = ""

    def __str__(self) -> str:
        records = "record was" if self.count == 1 else "records were"
        first = f" ({'' if self.count == 1 else 'the first: '}{self.example})" if self.example else ""
        return f"{self.count:,} {records} dropped at {self.node}: {self.reason}{first}"


def dropped(
    counters: Iterable[tuple[str, str, int]], examples: Mapping[tuple[str, str], str] | None = None
) -> list[Dropped]:
    """Return dropped records by node and reason, from counters (name, node, count) and examples by (name, node)."""
    found: dict[tuple[str, str], int] = {}
    for name, node, count in counters:
        if count and name.startswith(f"{DROPPED}:"):
            found[name, node] = found.get((name, node), 0) + count
    return [
        Dropped(node or "unknown node", name.partition(":")[2], count, (examples or {}).get((name, node), ""))
        for (name, node), count in found.items()
    ]
