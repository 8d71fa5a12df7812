"""Generated topologies that use many operators at once, so that one simulated world covers all of them.

Topology ``number`` is a fan of chains over one stream of a single key, whose records are out of order: operators that
remember take each other's results, in the first task or behind a repartition topic, where there are twelve keys;
operators whose results come later end a chain, or are upstream of the repartition topic.  Each result becomes the key
of a record in ``results``, so that the comparison with undisturbed worlds is of every result, and exact.  Windows that
idle inputs close are in tasks of their own: which window has a record then depends on the wall clock; the sum of
closed windows and late records does not, and is exact.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any
from zlib import crc32

from attrs import define, field

from streams import (
    CountWindows,
    EmitStrategy,
    StreamsBuilder,
    TimeWindows,
    Topic,
    Window,
    Windowed,
    Windower,
)
from streams.testing import TopologyTestDriver
from streams.testing.simulation.conditions import Conditions, Scenario, in_order_of_topics
from streams.testing.simulation.outcome import OutputPlace
from streams.testing.simulation.world import World

MS = timedelta(milliseconds=1)

words = Topic("words", key=str, value=str)
pulses = Topic("pulses", key=str, value=str, partitions=1)
results = Topic("results", key=str, value=int)
settled = Topic("settled", key=str, value=int)

#: Every third word is out of order by up to 400 ms, every eleventh by 2 s.
INPUTS = {
    words: [
        ("k", f"w{index}", 2_000 + index * 150 - (2_000 if index % 11 == 10 else index % 3 // 2 * 400))
        for index in range(110)
    ],
    pulses: [("p", "v", index * 400 - index % 7 // 6 * 1_500 + 1_500) for index in range(40)],
}
#: Virtual time after which the last windows of ``pulses`` have been closed.
REST_MS = 15_000
ROWS = in_order_of_topics([(topic, *row) for topic, rows in INPUTS.items() for row in rows])
PARTITIONS = {words.name: 2, pulses.name: 1, results.name: 2, settled.name: 2}


def number_of(word: str) -> int:
    """Return a number that is the same in all processes."""
    return crc32(word.encode())


class Bursts(Windower[str, str]):
    """Windows that grow while records come, with a gap that depends on the value."""

    retention = timedelta(minutes=1)

    def __init__(self, uses: "Counter[str]", gap_ms: int) -> None:
        self.uses, self.gap_ms = uses, gap_ms

    def assign(self, key: str, value: str, timestamp_ms: int, windows: Sequence[Window]) -> list[Window]:
        self.uses["own windows"] += 1
        return [Window(timestamp_ms, timestamp_ms + self.gap_ms + number_of(value) % 150)]

    def merge(self, windows: Sequence[Window]) -> list[Window]:
        merged: list[Window] = []
        for window in windows:
            last = merged.pop() if merged and window.start_ms <= merged[-1].end_ms else window
            merged.append(Window(last.start_ms, max(last.end_ms, window.end_ms)))
        return merged

    def close(self, window: Window) -> int:
        return window.end_ms + 300


def _shown(window: Windowed[str], value: object) -> tuple[str, str]:
    return f"{window.key}@{window.window.start_ms}", str(value)


@define(eq=False)
class Combined:
    """Topology ``number``, a function of the builder; ``uses`` counts the calls of the functions of each operator."""

    number: int
    uses: "Counter[str]" = field(factory=Counter)

    def __call__(self, builder: StreamsBuilder) -> None:
        """Add all operators to the topology."""
        rng = Random(f"combined {self.number}")
        # Expiry needs keys that come again.  The stores of as-of joins and early results have the offsets of records,
        # and those of repartition topics depend on the number of transactions.
        remembering = ["deduplicate", "count windows", "own windows"]
        rng.shuffle(remembering)
        cut = rng.randint(1, len(remembering) - 1)
        upper = ["latest", "early", *remembering[:cut]]
        rng.shuffle(upper)
        streams = self._fan(rng, builder.stream(words), upper)
        later = [*LATER]
        rng.shuffle(later)
        bridge = rng.choice((None, *later))
        upstream = rng.choice(streams)
        for name in later:
            made = LATER[name](self, rng, upstream if name == bridge else rng.choice(streams))
            upstream = made if name == bridge else upstream
            self._show(name, made)
        keyed = upstream.select_key(lambda key, word: f"g{number_of(word) % 12}").repartition(key=str, value=str)
        self._fan(rng, keyed, ["ttl", *remembering[cut:]])
        self._idle(builder)

    def _fan(self, rng: Random, source: Any, names: Sequence[str]) -> list[Any]:
        """Add operators that each take the source or the results of one before; return the source and all results."""
        streams = [source]
        for name in names:
            made, is_final = REMEMBERING[name](self, rng, rng.choice(streams)), name in WINDOWS
            self._show(name, made)
            if not is_final:
                streams.append(made)
        return streams

    def _show(self, name: str, stream: Any) -> None:
        stream.map(lambda key, value: (f"{name} {key} {value}", 1)).to(results)

    def _lately(self, word: str) -> str:
        self.uses["late"] += 1
        return word

    # --- operators that remember --------------------------------------------------------------

    def deduplicate(self, rng: Random, stream: Any) -> Any:
        ids, within = rng.choice((7, 15)), rng.choice((1_500, 4_000)) * MS

        def word_id(key: str, word: str) -> int:
            self.uses["deduplicate"] += 1
            return number_of(word) % ids

        once = stream.deduplicate(word_id, within=within, store="deduplicate")
        self._show("duplicate", once.dropped())
        return once

    def ttl(self, rng: Random, stream: Any) -> Any:
        def counted(key: str, word: str, count: int) -> int:
            self.uses["ttl"] += 1
            return count + 1

        table = stream.group_by_key().aggregate(
            lambda: 0, counted, name="ttl", value=int, ttl=rng.choice((700, 1_200)) * MS
        )
        return table.to_stream().map_values(lambda count: f"ttl {count}")

    def early(self, rng: Random, stream: Any) -> Any:
        def added(key: str, word: str, total: int) -> int:
            self.uses["early"] += 1
            return (total * 31 + number_of(word)) % 9_973

        windows = TimeWindows.of(1_500 * MS, grace=rng.choice((0, 300)) * MS)
        windowed = stream.group_by_key().windowed_by(windows).emit(early_every=rng.choice((2, 500 * MS)))
        early = windowed.aggregate(lambda: 0, added, name="early", value=int)
        self._show("late", windowed.late().map_values(self._lately))
        return early.to_stream().map(_shown)

    def latest(self, rng: Random, stream: Any) -> Any:
        def joined(one: str, other: str | None) -> str:
            self.uses["latest"] += 1
            return f"{number_of(one) % 997}/{None if other is None else number_of(other) % 997}"

        left = stream.filter(lambda key, word: number_of(word) % 5 % 2 == 0)
        right = stream.filter(lambda key, word: number_of(word) % 5 % 2 == 1)
        both = left.left_join_latest(
            right,
            joined,
            name="latest",
            tolerance=rng.choice((600, 1_500)) * MS,
            grace=rng.choice((0, 450)) * MS,
            direction=rng.choice(("backward", "forward")),
        )
        self._show("late", both.late().map_values(self._lately))
        return both

    def count_windows(self, rng: Random, stream: Any) -> Any:
        def followed(one: str, other: str) -> str:
            self.uses["count windows"] += 1
            return f"{number_of(one + other) % 9_973}"

        windows = CountWindows.of(*rng.choice(((3, 3), (4, 2))))
        windowed = stream.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        return windowed.reduce(followed, name="count-windows").to_stream().map(_shown)

    def own_windows(self, rng: Random, stream: Any) -> Any:
        windowed = stream.group_by_key().windowed_by(Bursts(self.uses, rng.choice((100, 250))))
        closed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("own-windows")
        return closed.to_stream().map(_shown)

    # --- operators whose results come later -----------------------------------------------------

    def batches(self, rng: Random, stream: Any) -> Any:
        def marked(batch: list[str]) -> list[str]:
            self.uses["batches"] += 1
            return [f"{number_of(word) % 9_973}" for word in batch]

        return stream.map_values_batches(marked, max_records=rng.choice((3, 8)), max_wait=300 * MS, value=str)

    def calls(self, rng: Random, stream: Any) -> Any:
        async def weighed(word: str) -> str:
            self.uses["async"] += 1
            await asyncio.sleep(number_of(word) % 7 / 50)
            return f"{number_of(word) % 4_999}"

        if rng.random() < 0.5:
            return stream.map_values_async(weighed, concurrency=10, order="partition")
        # One after another: all records have the same key.
        rare = stream.filter(lambda key, word: number_of(word) % 4 == 0)
        return rare.map_values_async(weighed, concurrency=2)

    def look_up(self, rng: Random, stream: Any) -> Any:
        async def color_of(number: int) -> str | None:
            self.uses["look-up"] += 1
            await asyncio.sleep(number % 5 / 50)
            return None if number % 3 == 0 else f"c{number}"

        def asked(key: str, word: str) -> int:
            return number_of(word) % 9

        times = {"ttl": rng.choice((700, 2_000)) * MS, "stale": 500 * MS, "negative": 500 * MS}
        found = stream.look_up(color_of, by=asked, cache=rng.choice((4, 20)), order="partition", concurrency=5, **times)
        return found.map_pairs(lambda word, color: f"{color} {number_of(word) % 997}")

    # --- windows that idle inputs close ---------------------------------------------------------

    def _idle(self, builder: StreamsBuilder) -> None:
        def counted(key: str, value: str, count: int) -> int:
            self.uses["idle close"] += 1
            return count + 1

        grouped = builder.stream(pulses, idle_close=3_000 * MS).group_by_key()
        windowed = grouped.windowed_by(TimeWindows.of(1_000 * MS, grace=4_000 * MS))
        closed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        counts = closed.aggregate(lambda: 0, counted, name="idle-windows", value=int).to_stream(tombstones=False)
        late = windowed.late().map_values(lambda value: 1)
        parts = counts.map(lambda window, count: (window.key, count)).merge(late)
        total = parts.group_by_key(key=str, value=int).reduce(lambda one, other: one + other, name="idle-total")
        total.to_stream().filter(lambda key, count: count == len(INPUTS[pulses])).to(settled)


Operator = Callable[[Combined, Random, Any], Any]
#: Operators whose results depend on the records before.
REMEMBERING: dict[str, Operator] = {
    "deduplicate": Combined.deduplicate,
    "ttl": Combined.ttl,
    "early": Combined.early,
    "latest": Combined.latest,
    "count windows": Combined.count_windows,
    "own windows": Combined.own_windows,
}
#: Those whose results have a window as their key: no operator of the same task takes them.
WINDOWS = {"early", "count windows", "own windows"}
#: Operators whose results come after a call or with a batch.
LATER: dict[str, Operator] = {
    "batches": Combined.batches,
    "async": Combined.calls,
    "look-up": Combined.look_up,
}
#: What each world must have used.
USED = (*REMEMBERING, *LATER, "idle close")


def driven(topology: Combined) -> Counter[str]:
    """Return how often each result comes, as the test driver has it."""
    with TopologyTestDriver(topology, partitions=PARTITIONS[words.name]) as driver:
        for topic, key, value, time_ms in ROWS:
            driver.pipe(topic, value, key=key, timestamp_ms=time_ms)
        driver.advance_wall_clock(REST_MS)
        assert driver.read(settled) == [("p", len(INPUTS[pulses]))]
        return Counter(key for key, _ in driver.read(results))


def differences(topology: Combined, expected: Counter[str], seed: int) -> str:
    """Run a world with faults of a topology, and return what is wrong with it, or "".

    In two of the first 48 topologies no record is late: those that would be are filtered before, or duplicates.
    """
    topology.uses.clear()
    scenario = Scenario(
        topology, ROWS, {}, PARTITIONS, 20_000, is_exactly_once=True, growing=["words"], rest_ms=REST_MS
    )
    outcome, violation = World(seed, scenario, Conditions.drawn(seed, scenario)).run()
    if violation is not None:
        return violation
    found = Counter({key.decode(): n for key, n in outcome.counts[OutputPlace("topic", results.name)].items() if key})
    if outcome.counts[OutputPlace("topic", settled.name)] != {b"p": 1}:
        return "the records of windows that idle inputs close do not add up"
    must_be_late = any(result.startswith("late ") for result in expected)
    if unused := [name for name in (*USED, *["late"] * must_be_late) if not topology.uses[name]]:
        return f"no record at {unused}"
    return f"missing {expected - found}, too many {found - expected}" if found != expected else ""


def faults_of(world: int) -> str:
    """Return what is wrong with a world whose topology has the same number as its seed."""
    return differences(Combined(world), driven(Combined(world)), world)
