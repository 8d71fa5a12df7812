"""The report of ``streams takeover``, as text and as JSON."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import attrs

from streams.comparison import Finding, Level
from streams.core.event_time.time_texts import time_text
from streams.core.settings.config import KAFKA_STREAMS_CACHE_BYTES
from streams.takeover.examine import Report, Shadow
from streams.takeover.readings import Reading
from streams.takeover.shadow import OutputDifference

_WIDTH = 110
_LEVELS = {Level.CANNOT: "cannot", Level.BUT: "but", Level.NOTE: "note"}
#: What Java needs when it gets the application back.
_FOR_JAVA = (
    "start it with the same application.id and processing.guarantee, the serdes that the stores have here, and an "
    "empty state directory (state.dir): what it kept there before is older than the changelogs"
)


def verdict(report: Report) -> str:
    """Return the result as one line."""
    direction = "Java can go on" if report.gives_back else "can go on here"
    if report.level is Level.CANNOT:
        count = sum(finding.level is Level.CANNOT for finding in report.findings)
        return f"cannot: {'1 reason' if count == 1 else f'{count} reasons'} below"
    if report.level is Level.BUT:
        count = sum(finding.level is Level.BUT for finding in report.findings)
        return f"{direction}, but {'1 thing' if count == 1 else f'{count} things'} must be checked"
    return direction


def as_text(report: Report) -> str:
    """Return the report as text."""
    lines = [f"{report.application_id}: {verdict(report)}", "", *_facts(report)]
    if report.stores:
        lines += ["", "STORES", *(f"  {_reading(reading)}" for reading in report.stores)]
    if report.topics:
        lines += ["", "INTERNAL TOPICS, NOT PROCESSED YET", *(f"  {_reading(reading)}" for reading in report.topics)]
    if report.shadow is not None:
        lines += ["", "SHADOW", *_shadow(report.shadow)]
    if report.findings:
        lines += ["", "FINDINGS", *(line for finding in report.findings for line in _finding(finding))]
    if report.gives_back:
        lines += ["", "JAVA", *_wrapped(_FOR_JAVA)]
    return "\n".join(lines)


def _facts(report: Report) -> Iterator[str]:
    yield f"  group: {report.state}"
    yield f"  committed offsets: {report.offsets}, {report.known_offsets} with times of Kafka Streams"
    for store, time_ms in report.emitted.items():
        yield f"  windows of {store} were emitted up to {time_text(time_ms)}"
    yield f"  topology: {_topology(report)}"
    if not report.gives_back:
        yield f"  record cache: {_cache(report.cache_max_bytes)}"


def _topology(report: Report) -> str:
    if report.differences is None:
        return "not compared, the broker has none; give what Topology.describe() prints in Java (--topology FILE)"
    if not report.differences:
        return "the same in Java"
    return f"{'1 difference' if report.differences == 1 else f'{report.differences} differences'} from that in Java"


def _cache(size: int) -> str:
    if not size:
        return "none (cache_max_bytes=0)"
    is_default = size == KAFKA_STREAMS_CACHE_BYTES
    return f"{size:,} bytes{', as in Java unless it was set there (--set cache_max_bytes=N)' if is_default else ''}"


def _reading(reading: Reading) -> str:
    what = f"{reading.store}: " if reading.store is not None else f"{reading.topic}: "
    where = f"{reading.partitions} partition{'s' * (reading.partitions != 1)}"
    deletions = f", {reading.deletions:,} deletions" if reading.deletions else ""
    bad = f", {reading.unreadable:,} unreadable" if reading.unreadable else ""
    return f"{what}{where}, {reading.entries:,} entries read{deletions}{bad}"


def _shadow(shadow: Shadow) -> Iterator[str]:
    yield f"  {shadow.inputs:,} input records, processed in memory"
    for item in shadow.outputs:
        yield f"  {item.topic}: {item.had:,} results, {item.has:,} here; {_key_counts_text(item)}"


def _key_counts_text(item: OutputDifference) -> str:
    if item.equal == item.keys:
        return f"all {item.keys:,} keys equal"
    words = {
        "equal": "equal",
        "fewer": "with fewer results on one side, as a cache gives",
        "others": "with other results before the same last one",
        "last": "with another last result",
        "only_there": "not written here",
        "only_here": "only written here",
    }
    counts = [f"{count:,} {word}" for name, word in words.items() if (count := getattr(item, name))]
    return f"of {item.keys:,} keys {', '.join(counts)}"


def _finding(finding: Finding) -> Iterator[str]:
    do = f"; {finding.do}" if finding.do else ""
    yield from _wrapped(f"{_LEVELS[finding.level]}: {finding.subject}: {finding.says}{do}")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def as_json(report: Report) -> str:
    """Return the report as JSON."""
    row: dict[str, Any] = {
        "application_id": report.application_id,
        "direction": "give-back" if report.gives_back else "takeover",
        "verdict": verdict(report),
        "fits": report.fits,
        "group": report.state,
        "offsets": {"committed": report.offsets, "with_times": report.known_offsets, "emitted": dict(report.emitted)},
        "topology_differences": report.differences,
        "cache_max_bytes": report.cache_max_bytes,
        "stores": [_reading_row(reading) for reading in report.stores],
        "internal_topics": [_reading_row(reading) for reading in report.topics],
        "shadow": None
        if report.shadow is None
        else {
            "inputs": report.shadow.inputs,
            "outputs": [attrs.asdict(item) for item in report.shadow.outputs],
        },
        "findings": [
            {"level": _LEVELS[item.level], "subject": item.subject, "says": item.says, "do": item.do}
            for item in report.findings
        ],
    }
    return json.dumps(row, indent=2, ensure_ascii=False)


def _reading_row(reading: Reading) -> dict[str, Any]:
    row = attrs.asdict(reading, recurse=False)
    return row | {name: None if row[name] is None else str(row[name]) for name in ("first", "example")}
