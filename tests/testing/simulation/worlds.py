"""Topologies and inputs that the simulation's own tests run."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from streams import (
    CalendarWindows,
    CountWindows,
    EmitStrategy,
    JoinWindows,
    Processor,
    Record,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topic,
    Window,
    Windower,
    key_value_store,
    session_windowed,
    time_windowed,
)
from streams.core.settings.settings import Settings
from streams.testing import SimulationReport, simulate

SECOND = timedelta(seconds=1)

words = Topic("words", key=str, value=str)
others = Topic("others", key=str, value=str)
counts = Topic("counts", key=str, value=int)
window_counts = Topic("window-counts", key=time_windowed(str, 5 * SECOND), value=int)
opening_counts = Topic("opening-counts", key=session_windowed(str), value=int)
deletable = Topic("deletable", key=str, value=int | None)
pairs = Topic("pairs", key=str, value=str)

ONE = {words: [(f"k{index % 7}", f"w{index % 11}", index * 100) for index in range(200)]}
TWO = {
    words: [(f"k{index % 7}", f"w{index % 5}", index * 150) for index in range(110)],
    others: [(f"k{index % 7}", f"o{index % 5}", index * 150) for index in range(110)],
}
FOREIGN = {
    words: [(f"k{index % 9}", f"o{index % 5}", index * 150) for index in range(110)],
    others: [(f"o{index % 5}", f"v{index % 3}", index * 150) for index in range(110)],
}


def word_count(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by(lambda _, word: word).count("counts-store").to_stream().to(counts)


def two_tables(builder: StreamsBuilder) -> None:
    """A table that is grouped again: two repartitions, subtractions, three stores."""
    (
        builder.stream(words)
        .map_values(lambda word: word + "!")
        .group_by(lambda _, word: word)
        .count("words-store")
        .group_by(lambda word, count: (word[-2:], count))
        .reduce(lambda total, count: total + count, lambda total, count: total - count, name="totals-store")
        .to_stream()
        .to(counts)
    )


def windows(builder: StreamsBuilder) -> None:
    counted = builder.stream(words).group_by_key()
    counted.windowed_by(TimeWindows.of(5 * SECOND, grace=100 * SECOND)).count("windows").to_stream().to(window_counts)
    sessions = counted.windowed_by(SessionWindows.of(SECOND, grace=100 * SECOND)).count("sessions")
    sessions.to_stream(lambda windowed, _: windowed.key).to(counts)


def final_windows(builder: StreamsBuilder) -> None:
    """The last windows close with time: longer than the gaps of the inputs and the outages, shorter than a rest."""
    counted = builder.stream(words, idle_close=15 * SECOND).group_by_key().windowed_by(TimeWindows.of(5 * SECOND))
    counted.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("final").to_stream().to(window_counts)


def windowed_join(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of(2 * SECOND, grace=100 * SECOND)
    builder.stream(words).join(builder.stream(others), lambda left, right: left + right, windows).to(pairs)


def foreign_key_join(builder: StreamsBuilder) -> None:
    left, right = builder.table(words, name="left"), builder.table(others, name="right")
    left.join(right, lambda one, other: f"{one}/{other}", foreign_key=lambda _, word: word).to_stream().to(pairs)


class Numbering(Processor[str, str, str, int]):
    """Counts the records of each key, in a store as it should."""

    numbers = key_value_store(str, int)

    def process(self, record: Record[str, str]) -> None:
        number = (self.numbers.get(record.key) or 0) + 1
        self.numbers.put(record.key, number)
        self.context.forward(record.key, number)


class Forgetful(Processor[str, str, str, int]):
    """Counts in an attribute: right until its process dies."""

    def init(self, context) -> None:
        super().init(context)
        self.numbers: dict[str, int] = {}

    def process(self, record: Record[str, str]) -> None:
        self.numbers[record.key] = self.numbers.get(record.key, 0) + 1
        self.context.forward(record.key, self.numbers[record.key])


def numbering(builder: StreamsBuilder) -> None:
    builder.stream(words).process(Numbering).to(counts)


def forgetful(builder: StreamsBuilder) -> None:
    builder.stream(words).process(Forgetful).to(counts)


REPEATED = {words: [(f"k{index % 7}", f"w{index // 7 % 5}#{index}", index * 100) for index in range(200)]}


class Remembering(Processor[str, str, str, int]):
    """Forwards the earlier values of a key with each record: one that its store has lost is missing."""

    passed = key_value_store(str, str)

    def process(self, record: Record[str, str]) -> None:
        before = self.passed.get(record.key) or ""
        for value in before.split():
            self.context.forward(value, 1)
        self.passed.put(record.key, f"{before} {record.value}")


#: A single key, so that all tasks see the words, and stream time, in one order.
RARE = {words: [("k", f"w{index // 5 if index % 4 else index % 16}", index * 100) for index in range(200)]}


def deduplicated(builder: StreamsBuilder) -> None:
    """Each word of a key comes every 3.5 s: of three, two are duplicates."""
    passed = builder.stream(words).deduplicate(lambda _, word: word.split("#")[0], within=7 * SECOND, store="seen")
    passed.process(Remembering).to(counts)


def routed(builder: StreamsBuilder) -> None:
    """Each second of event time has a topic of its own: its partitions are looked up while a batch is sent.

    The topic depends on the word's own time.  The time of a count depends on the state: with at-least-once, a word
    that is processed again after its state was saved gives a later count, which belongs in a later topic.
    """
    spoken = builder.stream(words)
    spoken.to(lambda key, word, record: f"second-{record.timestamp_ms // 1000}")
    spoken.group_by_key().count("routed-store").to_stream().to(counts)


async def weighed(word: str, count: int) -> int:
    """A call that lasts longer for some words; the simulation delays it further."""
    await asyncio.sleep(len(word) * count % 7 / 50)
    return count * 10


async def marked(key: str, word: str) -> list[tuple[str, str]]:
    await asyncio.sleep(0.05)
    return [(word, f"{key}{number}") for number in range(1 + len(word) % 2)]


def async_calls(builder: StreamsBuilder) -> None:
    """Calls upstream of a repartition, and calls of counts: a lost or repeated record shows in all later counts."""
    (
        builder.stream(words)
        .flat_map_async(marked, concurrency=5, order="partition")
        .group_by_key()
        .count("counts-store")
        .to_stream()
        .map_values_async(weighed, concurrency=10)
        .to(counts)
    )


def doubled(pairs: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(key, 2 * count + number) for key, count in pairs for number in (0, 1)]


def batches(builder: StreamsBuilder) -> None:
    """Batches upstream of a repartition, and batches of counts: a lost or repeated record shows in all later counts."""
    (
        builder.stream(words)
        .map_values_batches(lambda batch: [word.upper() for word in batch], max_records=7, max_wait=0.3 * SECOND)
        .group_by(lambda _, word: word)
        .count("counts-store")
        .to_stream()
        .flat_map_batches(doubled, max_records=5, max_wait=0.2 * SECOND)
        .to(counts)
    )


IDLE = {words: [(f"k{index % 5}", "w", index * 100) for index in range(60)]}
settled = Topic("settled", key=str, value=int)


def idle_windows(builder: StreamsBuilder, grace: timedelta = 10 * SECOND) -> None:
    """Closed windows and late records add up to the input, once; only idle inputs close the last windows."""
    grouped = builder.stream(words, idle_close=5 * SECOND).group_by_key()
    windowed = grouped.windowed_by(TimeWindows.of(SECOND, grace=grace))
    closed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("closed").to_stream(tombstones=False)
    late = windowed.late("late").map_values(lambda word: 1)
    parts = closed.map(lambda key, count: (key.key, count)).merge(late)
    total = parts.group_by(lambda key, count: "all", key=str, value=int).reduce(
        lambda one, two: one + two, name="total"
    )
    total.to_stream().filter(lambda key, count: count == len(IDLE[words])).to(settled)


def windows_behind_gaps(builder: StreamsBuilder) -> None:
    """As ``idle_windows``, with a grace period for records that a gap of the producer, up to 6 s, keeps back."""
    idle_windows(builder, 12 * SECOND)


#: Virtual time without inputs before the results are compared, by world.
REST_MS = {"idle windows": 60_000, "closed windows": 60_000, "windows behind gaps": 60_000}
#: Stores that may differ from those of undisturbed worlds: where faults keep the producer from writing for longer than
#: the grace period, the records that follow are late for their windows.  The same topology is also in "closed windows",
#: for seeds without such faults.
MAY_DIFFER = {"idle windows": ("closed",)}


def expiring(builder: StreamsBuilder) -> None:
    """Counts that end two seconds after the last record of their word."""
    builder.stream(words).group_by(lambda _, word: word).count("expiring", ttl=2 * SECOND).to_stream().to(deletable)


#: A single key, so that there is one order; every third record is out of order by 250 ms.
SIDES = {
    words: [("k", f"{'lr'[index % 5 % 2]}{index}", index * 100 - index % 3 // 2 * 250 + 250) for index in range(200)]
}


def latest(builder: StreamsBuilder) -> None:
    stream = builder.stream(words)
    left, right = stream.filter(lambda _, word: word[0] == "l"), stream.filter(lambda _, word: word[0] == "r")
    times = {"tolerance": SECOND, "grace": SECOND / 2}
    left.left_join_latest(right, lambda one, other: f"{one}/{other}", **times).to(pairs)


def early_results(builder: StreamsBuilder) -> None:
    """Early and final results of windows, which a table downstream adds up: it must subtract each early result."""
    windowed = builder.stream(words).group_by_key().windowed_by(TimeWindows.of(SECOND, grace=SECOND / 2))
    early = windowed.emit(early_every=SECOND / 4).count("early")
    early.to_stream(lambda windowed, count: str(windowed.window.start_ms)).to(deletable)
    totals = early.group_by(lambda windowed, count: (windowed.key, count), key=str, value=int)
    totals.reduce(lambda total, count: total + count, lambda total, count: total - count, name="totals").to_stream().to(
        counts
    )


def count_windows(builder: StreamsBuilder) -> None:
    """Windows of records by number: a record that is lost or repeated moves the bounds of all later windows."""
    windowed = builder.stream(words).group_by_key().windowed_by(CountWindows.of(4, advance=2))
    closed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    closed.reduce(lambda one, two: one + two, name="closed").to_stream(lambda window, _: str(window.window)).to(pairs)
    windowed.emit(early_every=3).count("early").to_stream(lambda window, _: str(window.window.start_ms)).to(deletable)


def openings(start_s: int, end_s: int) -> list[tuple[datetime, datetime]]:
    """Openings of one and of three seconds that follow each other, and a second between them, from and to a time."""
    bounds = [at + step for at in range(start_s, end_s, 5) for step in (0, 1, 1, 4)]
    times = [datetime.fromtimestamp(at, UTC) for at in bounds]
    return list(zip(times[::2], times[1::2], strict=True))


def calendar_windows(builder: StreamsBuilder) -> None:
    """Openings, final and at once: a record that is repeated after a restart counts twice, or is between openings."""
    windows = CalendarWindows.openings("UTC", openings(0, 25), grace=SECOND / 2)
    windowed = builder.stream(words).group_by_key().windowed_by(windows)
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("closed").to_stream().to(opening_counts)
    windowed.count("open").to_stream(lambda window, _: str(window.window.start_ms)).to(deletable)
    windowed.late().map_values(lambda word: 1).to(counts)


async def weight_of(word: str) -> int | None:
    """A call that lasts longer for some words; every third word has no weight."""
    await asyncio.sleep(len(word) / 50)
    return None if int(word[1:]) % 3 == 0 else len(word)


def digits_of(word: str) -> int:
    return int(word[1:])


def look_ups(builder: StreamsBuilder) -> None:
    """Answers that age and are evicted, upstream and downstream of a count, in which a lost record shows."""
    times = {"ttl": 2 * SECOND, "stale": SECOND, "negative": SECOND, "concurrency": 5}
    found = builder.stream(words).look_up(weight_of, by=lambda _, word: word, cache=4, order="partition", **times)
    weighed = found.map_pairs(lambda word, weight: f"{word}{weight or ''}", name="weighed")
    counted = weighed.group_by(lambda _, word: word).count("counts-store").to_stream()
    counted.look_up(digits_of, **times).map_pairs(lambda count, digits: count * 1_000 + digits).to(counts)


class Bursts(Windower[str, str]):
    """Windows that grow while records come, with a gap that depends on the value."""

    retention = 60 * SECOND

    def assign(self, key: str, value: str, timestamp_ms: int, windows: Sequence[Window]) -> list[Window]:
        return [Window(timestamp_ms, timestamp_ms + len(value) * 100)]

    def merge(self, windows: Sequence[Window]) -> list[Window]:
        merged: list[Window] = []
        for window in windows:
            last = merged.pop() if merged and window.start_ms <= merged[-1].end_ms else window
            merged.append(Window(last.start_ms, max(last.end_ms, window.end_ms)))
        return merged

    def close(self, window: Window) -> int:
        return window.end_ms + 500


def own_windows(builder: StreamsBuilder) -> None:
    """Windows of a windower, final and at once: a window that a restart forgets is not closed, or not merged."""
    windowed = builder.stream(words).group_by(lambda _, word: word[:2], key=str).windowed_by(Bursts())
    closed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("closed")
    closed.to_stream(lambda window, _: str(window.window)).to(deletable)


WORLDS = {
    "own windows": (own_windows, SIDES),
    "count windows": (count_windows, SIDES),
    "calendar windows": (calendar_windows, SIDES),
    "early results": (early_results, SIDES),
    "async calls": (async_calls, ONE),
    "look-ups": (look_ups, ONE),
    "batches": (batches, ONE),
    "word count": (word_count, ONE),
    "two tables": (two_tables, ONE),
    "windows": (windows, ONE),
    "windowed join": (windowed_join, TWO),
    "numbering": (numbering, ONE),
    "routed": (routed, ONE),
    "latest": (latest, SIDES),
    "expiring": (expiring, RARE),
    "deduplicated": (deduplicated, REPEATED),
    "idle windows": (idle_windows, IDLE),
    "closed windows": (idle_windows, IDLE),
    "windows behind gaps": (windows_behind_gaps, IDLE),
    "zones": (two_tables, ONE),
}
#: Settings of a world, where the guarantee is not all.
OWN_SETTINGS: dict[str, Settings] = {
    "zones": {"rack_aware_assignment_tags": "zone", "num_standby_replicas": 1},
}


def storm(world: str, seeds: Iterable[int], guarantee: str) -> SimulationReport:
    """Simulate a world with faults."""
    topology, inputs = WORLDS[world]
    return simulate(
        topology,
        inputs,
        seeds=seeds,
        rest_ms=REST_MS.get(world, 0),
        may_depend_on_order=MAY_DIFFER.get(world, ()),
        **{"processing_guarantee": guarantee, **OWN_SETTINGS.get(world, {})},
    )
