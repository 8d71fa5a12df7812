"""Writes the page of metrics from the table in the code: ``python docs/metrics.py``."""

from collections.abc import Iterator
from pathlib import Path

from streams.core.metrics import SENSORS, MetricSpec, RecordingLevel, Scope, SensorSpec, Stat

PAGE = Path(__file__).parent / "reference" / "metrics.md"
TITLES = {
    Scope.CLIENT: "Instance",
    Scope.THREAD: "Thread",
    Scope.UPDATER: "Restores of a thread",
    Scope.TASK: "Task",
    Scope.INPUT: "Input partition of a task",
    Scope.NODE: "Node",
    Scope.DROPS: "Dropped records",
    Scope.TOPIC: "Topic",
    Scope.STORE: "Store",
    Scope.CACHE: "Record cache",
}


def _origin(spec: SensorSpec, metric: MetricSpec) -> str:
    return "ours" if not spec.origin or metric.stat in (Stat.P50, Stat.P99) else spec.origin


def _rows(specs: list[SensorSpec]) -> Iterator[str]:
    yield "| name | meaning | unit | level | from |"
    yield "|---|---|---|---|---|"
    for spec in specs:
        level = "always" if spec.level is RecordingLevel.OFF else spec.level.name.lower()
        for metric in spec.metrics:
            yield f"| `{metric.name}` | {metric.description} | {metric.unit} | {level} | {_origin(spec, metric)} |"


def page() -> str:
    """Return the page: one table per scope, in the order of the code."""
    lines = [
        "# Metrics",
        "",
        "`streams.metrics` has them in code, see [operating](../guide/operating.md#metrics). Names, groups and tags",
        "are those of Kafka Streams; *from* is the KIP that declares a metric there, or *ours*. Rates, averages,",
        "ratios, extremes and percentiles are over the last one to two sample windows (`metrics_sample_window_ms`).",
        "A metric is recorded if its level is not above `metrics_recording_level`.",
    ]
    for scope, title in TITLES.items():
        specs = [spec for spec in SENSORS if spec.scope is scope]
        if specs:
            tags = ", ".join(f"`{tag}`" for tag in scope.tags)
            lines += ["", f"## {title}", "", f"Group `{scope.group}`, tags {tags}.", "", *_rows(specs)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
