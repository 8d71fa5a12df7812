"""Counters of what happened, by task, node and name.

A counter has one owner, the thread that runs the task, and is raised without a lock; whoever
reads sees a recent value.  Names are Kafka Streams' own: ``process-total``, ``dropped-records``,
``commit-total``, ``punctuate-total``, ``restore-total`` ...  Imports nothing of ours.
"""

from typing import Any, NamedTuple

from attrs import define, field


class MetricKey(NamedTuple):
    """Identity of a counter; ``task`` and ``node`` are None for those of a whole thread or task."""

    task: Any
    node: str | None
    name: str


@define(eq=False)
class Counter:
    """One number; its owner may raise ``value`` directly."""

    value: int = 0

    def add(self, count: int = 1) -> None:
        """Raise it."""
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

    def counter(self, name: str, *, task: Any = None, node: str | None = None) -> Counter:
        """Return the counter, made at first use; take it out once and keep it."""
        key = MetricKey(task, node, name)
        found = self._counters.get(key)
        # setdefault is atomic, should two threads meet here.
        return found if found is not None else self._counters.setdefault(key, Counter())

    def get(self, name: str, *, task: Any = None, node: str | None = None) -> int:
        """Return the value of exactly this counter; 0 if it was never raised."""
        found = self._counters.get(MetricKey(task, node, name))
        return 0 if found is None else found.value

    def sum(self, name: str, *, task: Any = None, node: str | None = None) -> int:
        """Return the sum over all counters of a name, of one task or node if given."""
        return sum(
            counter.value
            for key, counter in list(self._counters.items())
            if key.name == name and (task is None or key.task == task) and (node is None or key.node == node)
        )

    def snapshot(self) -> dict[MetricKey, int]:
        """Return all values as they are now."""
        return {key: counter.value for key, counter in list(self._counters.items())}

    def drop_task(self, task: Any) -> None:
        """Forget the counters of a task that has moved away."""
        for key in [key for key in list(self._counters) if key.task == task]:
            self._counters.pop(key, None)
