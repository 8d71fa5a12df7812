"""Topologies with history, to be run in every way there is: the examples, and what examples do not show.

Each subject has inputs of a few hundred records over three partitions, the same ones each time.
"""

import importlib.util
import json
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import field, frozen

from streams import (
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    Topic,
    build_topology,
)
from streams.core.blocks.partitioning import partition_for
from streams.files import open_input
from streams.replay.calls.work import declared_topic
from tests.examples.conftest import synthetic_log
from tests.replay.outcomes import Inputs, Row
from topology_examples.nexmark import Nexmark

_EXAMPLES = Path(__file__).resolve().parents[2] / "topology_examples"
PARTITIONS = 3
#: Examples whose topics have their schemas in a registry, which a replay would have to reach.
_NEED_SERVERS = {"15_web_service"}


@frozen
class Subject:
    """A topology, its history as rows of its topics, and its settings; examples have files too."""

    name: str
    topology: Any
    inputs: Inputs
    settings: Mapping[str, Any] = field(factory=dict)
    files: Mapping[str, Path] = field(factory=dict)


# --- examples -----------------------------------------------------------------------------


def example_names() -> list[str]:
    """Return the names of the examples that are topologies and need no server."""
    return sorted(
        path.stem
        for path in _EXAMPLES.glob("[0-9]*.py")
        if "\ndef topology(" in path.read_text() and path.stem not in _NEED_SERVERS
    )


def example(name: str, folder: Path) -> Subject:
    """Return an example with history in files, and the rows that a live run reads of them."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = importlib.util.spec_from_file_location(f"example_{name}", _EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    topology = build_topology(module.topology)
    files = _WRITERS[name](module, folder)
    inputs = {topic: _rows(declared_topic(topology, topic), file) for topic, file in files.items()}
    return Subject(name, module.topology, inputs, {}, files)


def _rows(topic: Topic[Any, Any], file: Path) -> list[Row]:
    blocks = [found for batch in open_input(topic, file, needs_time="a replay")(PARTITIONS, 0) for found in batch]
    return [
        Row(number, key, value, time, headers)
        for number, block in blocks
        for _, key, value, time, headers in block.rows()
    ]


def _lines(path: Path, rows: Iterable[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def _word_count(module: ModuleType, folder: Path) -> dict[str, Path]:
    rng = random.Random(1)
    words = ["all", "streams", "lead", "to", "kafka", "hello", "join", "summit"]
    rows = [
        {"value": " ".join(rng.choices(words, k=4)), "timestamp": 1000 * n - rng.randrange(900)} for n in range(1, 90)
    ]
    return {"lines": _lines(folder / "lines.records.jsonl", rows)}


def _access_log(module: ModuleType, folder: Path) -> dict[str, Path]:
    return {"access": _lines(folder / "access.log", synthetic_log(400, seed=3))}


def _weather(module: ModuleType, folder: Path) -> dict[str, Path]:
    rng = random.Random(4)
    start = datetime(2025, 12, 28, tzinfo=UTC)
    files = {}
    for origin in ("EWR", "JFK", "LGA"):
        times = [start + timedelta(hours=hour) for hour in range(24 * 6) if rng.random() < 0.9]
        rows = [f"{origin},{rng.uniform(10, 60):.2f},{time:%Y-%m-%dT%H:%M:%SZ}" for time in times]
        files[origin.lower()] = _lines(folder / f"{origin}.csv", ["origin,temp,time_hour", *rows])
    return files


def _orders(module: ModuleType, folder: Path) -> dict[str, Path]:
    rng = random.Random(5)
    start = datetime(2026, 3, 1, tzinfo=UTC)

    def at(minutes: int) -> str:
        return (start + timedelta(minutes=minutes)).isoformat()

    people = [
        {"id": f"c{rng.randrange(12)}", "name": f"n{n}", "city": rng.choice("XYZ"), "since": at(n * 40)}
        for n in range(40)
    ]
    orders = [
        {"number": n, "customer": f"c{rng.randrange(15)}", "cents": rng.randrange(-50, 900), "at": at(n * 8)}
        for n in range(200)
    ]
    return {
        "customers": _lines(folder / "customers.jsonl", people),
        "orders": _lines(folder / "orders.jsonl", orders),
    }


def _timer(module: ModuleType, folder: Path) -> dict[str, Path]:
    rng = random.Random(6)
    rows = [
        {"key": f"d{rng.randrange(9)}", "value": rng.random(), "timestamp": n * 50_000 - rng.randrange(90_000) + 90_000}
        for n in range(200)
    ]
    return {"readings": _lines(folder / "readings.records.jsonl", rows)}


def _git_activity(module: ModuleType, folder: Path) -> dict[str, Path]:
    rng = random.Random(8)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = []
    for number in range(150):
        time = start + timedelta(minutes=number * 50 + rng.randrange(-200, 200))
        changes = [
            {"path": f"{rng.choice('abc')}/f.py", "added": rng.randrange(50), "deleted": rng.randrange(9)}
            for _ in range(rng.randrange(3))
        ]
        rows.append({"id": str(number), "author": rng.choice("ABC"), "time": time.isoformat(), "changes": changes})
    return {"commits": _lines(folder / "commits.jsonl", rows)}


def _nexmark(module: ModuleType, folder: Path) -> dict[str, Path]:
    # Slow, so that some auctions come to their end.
    return {path.name.partition(".")[0]: path for path in Nexmark(rate=20).write(folder, 900)}


def _replay(module: ModuleType, folder: Path) -> dict[str, Path]:
    module.write(folder / "orders.jsonl", module.history(250))
    return {"orders": folder / "orders.jsonl"}


def _calendar(module: ModuleType, folder: Path) -> dict[str, Path]:
    day = datetime(2026, 3, 29, tzinfo=UTC)
    rows = [{"place": tick.place, "time": tick.time.isoformat()} for place in module.CALENDARS
            for tick in module.ticks_around(place, day)]  # fmt: skip
    return {"ticks": _lines(folder / "ticks.jsonl", sorted(rows, key=lambda row: row["time"]))}


_WRITERS: dict[str, Callable[[ModuleType, Path], dict[str, Path]]] = {
    "01_word_count": _word_count,
    "02_sessions": _access_log,
    "03_status": _access_log,
    "04_weather": _weather,
    "05_orders": _orders,
    "06_timer": _timer,
    "07_top_n": _access_log,
    "08_git_activity": _git_activity,
    "09_nexmark": _nexmark,
    "14_replay": _replay,
    "16_calendar": _calendar,
}


# --- what examples do not show ---------------------------------------------------------------

_events = Topic("events", key=str, value=int)
_more = Topic("more", key=str, value=int)
_mid = Topic("mid", key=str, value=int)
_out = Topic("out", key=str, value=int)
_DEAD = "dead"


def _fails_for_sevens(value: int) -> int:
    if value % 7 == 0:
        raise ValueError(f"{value} is divisible by seven")
    return value + 1


def _through(builder: StreamsBuilder) -> None:
    """A topic that is written by several tasks and read again, and has an input of its own."""
    builder.stream(_events).select_key(lambda _, value: f"m{value % 5}").to(_mid)
    builder.stream(_more).map_values(lambda value: -value).to(_mid)
    builder.stream(_mid).group_by_key().count("per-mid").to_stream().to(_out)


def _skipping(builder: StreamsBuilder) -> None:
    """What fails is skipped, before and behind a repartition, and counted on."""
    stream = builder.stream(_events)
    kept = stream.map_values(_fails_for_sevens).select_key(lambda _, value: f"k{value % 4}").repartition("by-value")
    kept.map_values(lambda value: _fails_for_sevens(value * 3)).group_by_key().count("good").to_stream().to(_out)


def _chosen_topics(builder: StreamsBuilder) -> None:
    """Each record says which topic it goes to."""
    stream = builder.stream(_events).merge(builder.stream(_more))
    stream.repartition("all").to(lambda key, value, context: f"out-{(value or 0) % 3}", key=str, value=int)


def _windows(builder: StreamsBuilder) -> None:
    """Two aggregates of windows, joined, with final results only."""
    left, right = builder.stream(_events), builder.stream(_more)
    sessions = SessionWindows.of(timedelta(milliseconds=40), grace=timedelta(milliseconds=60))
    sliding = SlidingWindows.of(timedelta(milliseconds=30), grace=timedelta(milliseconds=90))
    first = left.group_by(lambda _, value: f"g{value % 3}").windowed_by(sessions).count("in-sessions")
    (
        first.suppress(Suppressed.until_window_closes())
        .to_stream(lambda key, _: key.key)
        .repartition("closed", key=str, value=int)
        .join(
            right.select_key(lambda _, value: f"g{value % 3}").repartition("others"),
            lambda count, value: count * 1000 + value,
            JoinWindows.of(timedelta(milliseconds=100), grace=timedelta(milliseconds=100)),
        )
        .to(_out)
    )
    right.group_by_key().windowed_by(sliding).count("in-sliding").to_stream(lambda key, _: key.key).to(_mid)


def _rows_of(seed: int, count: int) -> list[Row]:
    rng = random.Random(seed)
    keys = [f"k{number}" for number in range(8)]
    rows = []
    for number in range(count):
        key = rng.choice(keys).encode()
        time = 1000 + number * 9 - rng.choice([0, 0, 0, 5, 40, 200])
        # One in twenty has a value that cannot be read.
        value = b"bad" if rng.random() < 0.05 else rng.randrange(100).to_bytes(8, "big")
        rows.append(Row(partition_for(key, PARTITIONS), key, value, time))
    return rows


def written_subjects() -> list[Subject]:
    """Return topologies that are read and written in other ways than the examples."""
    one, two, three = _rows_of(1, 150), _rows_of(2, 120), _rows_of(3, 30)
    skips = {"deserialization_handler": "continue", "errors_dead_letter_queue_topic_name": _DEAD}
    return [
        Subject("through", _through, {"events": one, "more": two, "mid": three}, skips),
        Subject("skipping", _skipping, {"events": one}, {**skips, "processing_handler": "continue"}),
        Subject("chosen_topics", _chosen_topics, {"events": one, "more": two}, skips),
        Subject("windows", _windows, {"events": one, "more": two}, skips),
    ]
