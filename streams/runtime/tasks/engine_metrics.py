"""Sensors for the storage engine of one store, fed from RocksDB's statistics (KIP-471).

The statistics count from the opening of the database. The thread that owns the task reads them at each commit, and
records the increase since the last commit.
"""

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from streams.core.metrics import Metrics, table
from streams.state import Statistic

_NONE = Statistic(0)


@define(eq=False)
class EngineMetrics:
    """The sensors of one storage engine; ``_place`` has the metric tags: task, store and store type."""

    _metrics: Metrics
    _place: Mapping[str, Any]
    _last: Mapping[str, Statistic] = field(factory=dict)

    def note(self, now: Mapping[str, Statistic]) -> None:
        """Record the increase of the statistics since the last call, or since the database was opened again."""
        metrics, place = self._metrics, self._place
        for name, spec in table.COUNTED_STATISTICS.items():
            metrics.counter(spec, **place).value += self._since(now, name).count
        for name, spec in table.HIT_STATISTICS.items():
            hits = self._since(now, f"{name}.hit").count
            misses = self._since(now, f"{name}.miss").count
            if hits + misses:
                metrics.amounts(spec, **place).record(hits, hits + misses)
        for name, spec in table.TIME_STATISTICS.items():
            sensor = metrics.amounts(spec, **place)
            grown = self._since(now, name)
            if grown.count:
                average = grown.total // grown.count
                # The largest time is known only since the database was opened.
                highest = int(grown.highest) if grown.highest > self._last.get(name, _NONE).highest else average
                sensor.record_spread(grown.total * 1000, grown.count, average * 1000, highest * 1000)
        self._last = now

    def _since(self, now: Mapping[str, Statistic], name: str) -> Statistic:
        found = now.get(name, _NONE)
        last = self._last.get(name, _NONE)
        if found.count < last.count:
            return found
        return Statistic(found.count - last.count, found.total - last.total, found.highest)
