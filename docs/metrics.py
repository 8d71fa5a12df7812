"""Writes the page of metrics from the table in the code: ``python docs/metrics.py``."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from streams.core.metrics import SENSORS, DropReason, MetricSpec, RecordingLevel, Scope, SensorSpec, Stat

PAGE = Path(__file__).parent / "reference" / "metrics.md"
TITLES = {
    Scope.CLIENT: "Instance",
    Scope.THREAD: "Thread",
    Scope.UPDATER: "Restores of a thread",
    Scope.TASK: "Task",
    Scope.INPUT: "Input partition of a task",
    Scope.NODE: "Node",
    Scope.DROPS: "Dropped records",
    Scope.LATENESS: "Late records",
    Scope.TOPIC: "Topic",
    Scope.STORE: "Store",
    Scope.CACHE: "Record cache",
    Scope.FETCH: "Consumer",
    Scope.COORDINATOR: "Commits of a consumer",
    Scope.PRODUCER: "Producer",
}

#: The metrics of Kafka Streams 4.1.
KAFKA: Mapping[Scope, list[str]] = {
    Scope[name]: found for name, found in json.loads(PAGE.parents[1].joinpath("kafka_metrics.json").read_text()).items()
}
_NO_ITERATORS = "no iterator stays open between two reads"
#: Why metrics of Kafka Streams are not there, by scope and first letters of the name.
ABSENT: Mapping[tuple[Scope, str], str] = {
    (Scope.CLIENT, "commit-id"): "an installed release does not know its commit",
    (Scope.UPDATER, "idle-ratio"): "restores run on the stream threads; there is no state updater that could be idle",
    (Scope.UPDATER, "checkpoint-ratio"): "positions are written with the state, in the same batch",
    (Scope.NODE, "idempotent-update-skip"): "a table forwards an update with an equal value too, so none is skipped",
    (Scope.STORE, "record-e2e-latency"): "measured at sources and sinks",
    **{(Scope.STORE, name): _NO_ITERATORS for name in ("num-open-iterators", "iterator-duration", "oldest-iterator")},
    **{
        (Scope.STORE, name): "RocksDB's statistics, as text, have no minimum"
        for name in ("memtable-flush-time-min", "compaction-time-min")
    },
    (Scope.STORE, "number-open-files"): "RocksDB does not count closed files; Kafka Streams reports -1",
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


def _reasons() -> Iterator[str]:
    yield "| reason | the record |"
    yield "|---|---|"
    for reason in DropReason:
        yield f"| `{reason}` | {reason.meaning} |"
    yield ""
    yield "Records that a handler drops are counted by the class of the error too: `failed, ValueError`. `unjoined`,"
    yield "`null key` before a repartition topic, and rows that `group_by` of a table puts in no group are counted only"
    yield "here, not among the drops of the task, as Kafka Streams does not count them."


def absent() -> dict[tuple[Scope, str], str]:
    """Return the metrics of Kafka Streams that are not there, each with the reason, or "" if none is given."""
    declared = {(spec.scope, metric.name) for spec in SENSORS for metric in spec.metrics}
    return {
        (scope, name): next((why for (at, start), why in ABSENT.items() if at is scope and name.startswith(start)), "")
        for scope, names in KAFKA.items()
        for name in names
        if (scope, name) not in declared
    }


def _comparison() -> Iterator[str]:
    missing, total = absent(), sum(map(len, KAFKA.values()))
    yield from ("", "## Compared with Kafka Streams", "")
    yield f"Of the {total} metrics of Kafka Streams 4.1, {total - len(missing)} are there, in the same group."
    yield from ("The others:", "", "| group | not there | why |", "|---|---|---|")
    reasons: dict[tuple[Scope, str], list[str]] = {}
    for (scope, name), why in missing.items():
        reasons.setdefault((scope, why), []).append(f"`{name}`")
    for (scope, why), names in reasons.items():
        yield f"| `{scope.group}` | {', '.join(names)} | {why} |"
    yield ""
    yield "Of the metrics of consumers and producers (`kafka.consumer`, `kafka.producer`) there are those above, which"
    yield "dashboards of Kafka Streams show. Levels differ in one point: totals of a task (`process`, `restore`,"
    yield "`update`) are recorded at `info`, since they are counted per run."


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
        if scope is Scope.DROPS:
            lines += ["", *_reasons()]
    return "\n".join([*lines, *_comparison()]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
