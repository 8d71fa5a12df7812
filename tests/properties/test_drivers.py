"""The same tasks give the same under all four drivers: test driver, bounded run, replay and live thread.

Bounded runs and replays agree record for record.  The test driver is given the records of all topics in the
order of their times; where no two ways lead to a topic, so that none of its records have the same time, it
agrees with them to the order.  In a live run the order in which records meet depends on the speed of tasks, so
only keys and values are compared, of topologies that do not depend on it.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    EmbeddedBroker,
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    Streams,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    TopicPartition,
)
from streams.core.blocks.partitioning import partition_for
from streams.core.errors import TopologyError
from streams.testing import TopologyTestDriver
from tests.properties.functions import Gaps
from tests.properties.profile import examples
from tests.replay.outcomes import (
    APPLICATION,
    Inputs,
    Outcome,
    Row,
    archived,
    drive,
    lived,
    quick_folder,
    replayed_outcome,
    result_of,
    rows_of_blocks,
    session_of,
)


async def plus_one_later(key: str, value: int) -> int:
    """Take the longer the smaller the value."""
    await asyncio.sleep((9 - value % 10) / 1000)
    return value + 1


async def weight_of(key: str) -> int | None:
    """Return something for each key but one."""
    await asyncio.sleep(len(key) / 1000)
    return None if key.startswith("q") else len(key)


TOPICS = {name: Topic(name, key=str, value=int) for name in "abcde"}
#: What a part of a topology does to records on their way from one topic to the next, or round to the same one.
STEPS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda stream: stream,
    "by value": lambda stream: stream.select_key(lambda key, value: f"v{value % 5}"),
    "twice": lambda stream: stream.flat_map(lambda key, value: [(key, value), (f"t{value % 3}", value + 1)]),
    "counted": lambda stream: stream.group_by(lambda key, value: f"c{value % 4}").count().to_stream(),
    "some": lambda stream: stream.filter(lambda key, value: value % 3 > 0),
    "mixed": lambda stream: stream.group_by(lambda key, value: "m").reduce(lambda m, n: (m * 31 + n) % 997).to_stream(),
    "once": lambda stream: stream.deduplicate(by=lambda key, value: value % 5, within=timedelta(milliseconds=4)),
    "called": lambda stream: stream.map_values_async(plus_one_later, concurrency=3),
    "looked up": lambda stream: stream.look_up(weight_of, cache=3, ttl=None, negative=None, answer=int).map_pairs(
        lambda value, weight: value + (weight or 0)
    ),
    "in batches": lambda stream: stream.map_values_batches(
        lambda values: [value + 1 for value in values], max_records=3
    ),
    "about": lambda stream: stream.filter(lambda key, value: value > 1).map(
        lambda key, value: (f"r{value}", value // 2)
    ),
    "round": lambda stream: stream.filter(lambda key, value: value > 1).map_values(lambda value: value // 2),
}
#: Results depend on the order of all records.
ORDERED = {"mixed", "joined", "once"}
#: Results come when calls have ended or a batch is full, so that downstream streams meet in another order.
DELAYED = {"called", "looked up", "in batches"}
#: A task downstream of a repartition writes the results. If these go round, what they become has the same time, and
#: comes from another task of lower number, which is first among records of one time.
MOVED = {"counted", "mixed"}
#: Goes round between partitions.
CROSSING = {"about"}
Parts = Sequence[tuple[str, str, str]]


def _part(start: str, step: str, hops: int) -> tuple[str, str, str]:
    """Return from, how, to: on to a later topic; what goes round becomes less each time."""
    later = "abcd"[min("abcd".index(start) + hops, 3)]
    return start, step, start if step == "round" else later


def _parts(steps: set[str], *, most: int) -> st.SearchStrategy[list[tuple[str, str, str]]]:
    return st.lists(
        st.builds(_part, st.sampled_from("abc"), st.sampled_from(sorted(steps)), st.integers(1, 3)),
        min_size=1,
        max_size=most,
    )


PLAIN = STEPS.keys() - ORDERED - CROSSING - DELAYED
PARTS = _parts(PLAIN, most=4)
DELAYED_PARTS = st.tuples(_parts(DELAYED, most=2), _parts(PLAIN | DELAYED, most=3)).map(
    lambda drawn: [*drawn[0], *drawn[1]]
)
ONE_WAY = st.tuples(
    *(
        st.tuples(
            st.sampled_from("abcd"[:number]),
            st.sampled_from(sorted(ORDERED | STEPS.keys() - CROSSING - DELAYED - {"twice", "round"})),
        )
        for number in (1, 2, 3)
    ),
    st.sampled_from(["", "a", "b", "c"]),
).map(
    lambda drawn: [
        *((start, step, target) for (start, step), target in zip(drawn[:3], "bcd", strict=True)),
        *((name, "round", name) for name in drawn[3] if name == "a" or drawn["bc".index(name)][1] not in MOVED),
    ]
)
#: Topic, key and value; each is a millisecond later than the one before.
ROWS = st.lists(st.tuples(st.sampled_from("abce"), st.sampled_from("pqrs"), st.integers(0, 30)), max_size=16)


class Subject(Protocol):
    """What is run: a topology and its input, each row a millisecond later than the one before."""

    @property
    def rows(self) -> Sequence[tuple[str, str, int]]: ...
    @property
    def partitions(self) -> int: ...
    @property
    def read(self) -> list[str]: ...
    @property
    def written(self) -> list[str]: ...
    def build(self, builder: StreamsBuilder) -> None: ...


@frozen
class Example:
    """Parts of a topology, which lead from topics to others or round, and their input."""

    parts: Parts
    rows: Sequence[tuple[str, str, int]]
    partitions: int

    def build(self, builder: StreamsBuilder) -> None:
        """Write the topology."""
        table = builder.table(TOPICS["e"]) if "e" in self.read else None
        sources = {name: builder.stream(TOPICS[name]) for name, _, _ in self.parts}
        for name, step, target in self.parts:
            if step == "joined":
                changed = sources[name].left_join(table, lambda value, other: (value + 7 * (other or 0)) % 97)
            else:
                changed = STEPS[step](sources[name])
            changed.to(TOPICS[target])

    @property
    def read(self) -> list[str]:
        """Topics that the topology reads."""
        return sorted(
            {"e" if step == "joined" else name for name, step, _ in self.parts} | {part[0] for part in self.parts}
        )

    @property
    def written(self) -> list[str]:
        """Topics that it writes."""
        return sorted({target for _, _, target in self.parts})


def inputs_of(example: Subject) -> Inputs:
    """Return the rows of each topic that is read."""
    found: dict[str, list[Row]] = {name: [] for name in example.read}
    for time_ms, (name, key, value) in enumerate(example.rows):
        if name in found:
            raw = TOPICS[name].key_serde.serialize(key)
            assert raw is not None
            row = Row(partition_for(raw, example.partitions), raw, TOPICS[name].value_serde.serialize(value), time_ms)
            found[name].append(row)
    return found


def driven(example: Subject, *, rest_ms: int = 0, **settings: Any) -> Mapping[str, Mapping[int, Sequence[Any]]]:
    """Return what the test driver writes, without the input: (key, value, time) by topic and partition."""
    result: dict[str, dict[int, list[Any]]] = {}
    piped: Counter[Any] = Counter()
    options = {"application_id": APPLICATION, **settings}
    with TopologyTestDriver(example.build, partitions=example.partitions, **options) as driver:
        for time_ms, (name, key, value) in enumerate(example.rows):
            if name in example.read:
                driver.pipe(TOPICS[name], value, key=key, timestamp_ms=time_ms)
                piped[name, key, value, time_ms] += 1
        if rest_ms:
            driver.advance_wall_clock(rest_ms)
        for name in example.written:
            for record in driver.read_records(TOPICS[name]):
                row = (name, record.key, record.value, record.timestamp_ms)
                if piped[row]:
                    piped[row] -= 1
                    continue
                number = partition_for((record.key or "").encode(), example.partitions)
                result.setdefault(name, {}).setdefault(number, []).append(row[1:])
    return result


def live(example: Subject, expected: int) -> Mapping[str, Mapping[int, Sequence[Any]]]:
    """Return what an application that goes on writes, once it has written so many records, as ``driven`` does."""
    result: dict[str, dict[int, list[Any]]] = {}
    with EmbeddedBroker() as broker:
        for name in {*example.read, *example.written}:
            broker.create_topic(name, example.partitions)
        given_count = Counter[tuple[str, int]]()
        for name, rows in inputs_of(example).items():
            for number, block in rows_of_blocks(rows):
                broker.append(TopicPartition(name, number), block)
                given_count[name, number] = len(block)
        places = [TopicPartition(name, number) for name in example.written for number in range(example.partitions)]

        def written() -> int:
            return sum(broker.end_offset(place) - given_count[place] for place in places)

        settings: dict[str, Any] = {"poll_ms": 2, "default_store": "in_memory"}
        failed = threading.Event()
        with Streams(example.build, application_id=APPLICATION, broker=broker, **settings) as streams:
            while written() < expected and not failed.is_set():
                if streams.wait(2):
                    failed.set()
        assert streams.failure is None
        for place in places:
            topic = TOPICS[place.topic]
            for block in broker.read(place, given_count[place]) if written() else []:
                read = zip(block.keys, block.values, block.timestamps, strict=True)
                result.setdefault(place.topic, {}).setdefault(place.partition, []).extend(
                    (topic.key_serde.deserialize(key), topic.value_serde.deserialize(value), time_ms)
                    for key, value, time_ms in read
                )
    return result


def replayed(example: Subject, **options: Any) -> Outcome:
    """Return the outcome of a replay in two slices."""
    with quick_folder() as folder:
        archives = archived(folder, inputs_of(example), dict.fromkeys(example.read, example.partitions))
        settings: dict[str, Any] = {"partitions": example.partitions, "slices": 2, **options}
        session = session_of(example.build, archives, folder / "replay", **settings)
        drive(session)
        return replayed_outcome(result_of(session))


def rows_of(outcome: Outcome) -> dict[str, dict[int, list[Any]]]:
    """Return what was written as (key, value, time)."""
    return {
        name: {
            number: [
                (TOPICS[name].key_serde.deserialize(key), TOPICS[name].value_serde.deserialize(value), time_ms)
                for _, key, value, time_ms, _ in records
            ]
            for number, records in partitions.items()
        }
        for name, partitions in outcome.outputs.items()
    }


@examples(25)
@given(PARTS, ROWS, st.sampled_from([1, 3]))
def test_the_same_tasks_give_the_same_under_all_four_drivers(
    parts: Parts, rows: Sequence[tuple[str, str, int]], partitions: int
) -> None:
    example = Example(parts, rows, partitions)
    bounded = lived(example.build, inputs_of(example), partitions=partitions)
    found = rows_of(bounded)

    assert bounded.difference(replayed(example)) is None
    assert _sorted(driven(example)) == _sorted(found)
    assert _pairs(live(example, _total(found))) == _pairs(found)


@pytest.mark.world
@examples(10)
@given(DELAYED_PARTS, ROWS, st.sampled_from([1, 3]))
def test_calls_and_batches_give_the_same_under_all_four_drivers(
    parts: Parts, rows: Sequence[tuple[str, str, int]], partitions: int
) -> None:
    """When their results come, among those of other streams, is that of a driver: keys and values are compared."""
    example = Example(parts, rows, partitions)
    found = rows_of(lived(example.build, inputs_of(example), partitions=partitions))

    assert _pairs(rows_of(replayed(example))) == _pairs(found)
    assert _pairs(driven(example)) == _pairs(found)
    assert _pairs(live(example, _total(found))) == _pairs(found)


@pytest.mark.world
@examples(25)
@given(ONE_WAY, ROWS, st.sampled_from([1, 3]))
def test_records_of_different_times_have_one_order_under_all_drivers_that_decide_it(
    parts: Parts, rows: Sequence[tuple[str, str, int]], partitions: int
) -> None:
    example = Example(parts, rows, partitions)
    settings: dict[str, Any] = {"max_poll_records": 3, "buffered_records_per_partition": 2}
    bounded = lived(example.build, inputs_of(example), partitions=partitions, **settings)

    assert bounded.difference(replayed(example)) is None
    assert driven(example) == rows_of(bounded)


def test_records_that_go_round_between_tasks_have_one_order_too() -> None:
    """The task with the lowest head is next, so what each task writes ascends in time."""
    rows = [("a", key, value) for key, value in zip("pqrspqrs", (30, 7, 22, 13, 28, 9, 17, 25), strict=True)]
    example = Example([("a", "about", "a")], rows, 3)
    bounded = lived(example.build, inputs_of(example), partitions=3)
    found = rows_of(bounded)

    assert bounded.difference(replayed(example)) is None
    assert _sorted(driven(example)) == _sorted(found)
    times = [[time_ms for _, _, time_ms in records] for records in found["a"].values()]
    assert times == [sorted(each) for each in times]


def _pairs(found: Mapping[str, Mapping[int, Sequence[Any]]]) -> Mapping[str, Counter[tuple[Any, Any]]]:
    """Return the keys and values that were written to each topic."""
    return _filled(
        {
            name: Counter((key, value) for rows in partitions.values() for key, value, _ in rows)
            for name, partitions in found.items()
        }
    )


def _filled(found: Mapping[str, Counter[tuple[Any, Any]]]) -> Mapping[str, Counter[tuple[Any, Any]]]:
    return {name: count for name, count in found.items() if count}


def _sorted(found: Mapping[str, Mapping[int, Sequence[Any]]]) -> dict[str, dict[int, list[Any]]]:
    return {
        name: {number: sorted(rows) for number, rows in sorted(partitions.items()) if rows}
        for name, partitions in sorted(found.items())
        if any(partitions.values())
    }


def _total(found: Mapping[str, Mapping[int, Sequence[Any]]]) -> int:
    return sum(len(rows) for partitions in found.values() for rows in partitions.values())


#: Longer than all input, so that no record is late.
GRACE_MS = 40
CLOSED: dict[str, Any] = {
    "tumbling": TimeWindows(10, 10, GRACE_MS),
    "hopping": TimeWindows(10, 5, GRACE_MS),
    "sliding": SlidingWindows(5, GRACE_MS),
    "sessions": SessionWindows(4, GRACE_MS),
    "of a user": Gaps(4, GRACE_MS),
}
JOINS = ("left_join", "outer_join", "join_latest", "left_join_latest")
EMITS = ("on close", "suppressed", "early")


@frozen
class Closing:
    """Results that only the time without records brings: closed windows, or records without a match."""

    what: str
    emits: str
    rows: Sequence[tuple[str, str, int]]
    partitions: int
    is_moved: bool
    is_chained: bool

    def build(self, builder: StreamsBuilder) -> None:
        """Write the topology."""
        streams = [builder.stream(TOPICS[name], idle_close=timedelta(milliseconds=5)) for name in self.read]
        if self.is_moved:
            streams = [
                stream.select_key(lambda key, value: f"v{value % 3}").repartition(key=str, value=int)
                for stream in streams
            ]
        if self.what in JOINS:
            streams[0] = self._joined(*streams)
        closed = self._closed(streams[0], "first", self.what)
        if self.is_chained:
            moved = closed.select_key(lambda key, value: f"c{value % 2}").repartition(key=str, value=int)
            closed = self._closed(moved, "second", "tumbling")
        closed.to(TOPICS["d"])

    def _joined(self, left: Any, right: Any) -> Any:
        joiner = lambda one, two: (one or 0) * 100 + (two or 0)  # noqa: E731
        if self.what.endswith("latest"):
            times = {"tolerance": timedelta(milliseconds=5), "grace": timedelta(milliseconds=GRACE_MS)}
            return getattr(left, self.what)(right, joiner, **times)
        return getattr(left, self.what)(right, joiner, JoinWindows(3, 3, GRACE_MS))

    def _closed(self, stream: Any, store: str, what: str) -> Any:
        """Return the sums of windows that have closed; of a join, what it gives."""
        if what not in CLOSED:
            return stream
        windowed = stream.group_by_key(key=str, value=int).windowed_by(CLOSED[what])
        if self.emits == "on close":
            windowed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        elif self.emits == "early":
            windowed = windowed.emit(early_every=2)
        merger = [lambda key, one, two: one + two] if what in ("sessions", "of a user") else []
        table = windowed.aggregate(lambda: 0, lambda key, value, total: total + value, *merger, store, value=int)
        if self.emits == "suppressed":
            table = table.suppress(Suppressed.until_window_closes())
        shown = table.to_stream(tombstones=False)
        return shown.map(lambda key, total: (f"{key.key}@{key.window.start_ms}-{key.window.end_ms}", total))

    @property
    def read(self) -> list[str]:
        """Topics that the topology reads."""
        return ["a", "b"] if self.what in JOINS else ["a"]

    @property
    def written(self) -> list[str]:
        """Topics that it writes."""
        return ["d"]


CLOSINGS = st.builds(
    Closing,
    st.sampled_from([*CLOSED, *JOINS]),
    st.sampled_from(EMITS),
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("pqrs"), st.integers(0, 30)), max_size=16),
    st.sampled_from([1, 3]),
    st.booleans(),
    st.booleans(),
).filter(lambda closing: (closing.what, closing.emits) != ("of a user", "suppressed"))


@pytest.mark.world
@examples(10)
@given(CLOSINGS, st.sampled_from(["skip", "append_time"]))
def test_idle_inputs_close_under_all_four_drivers_what_the_end_of_inputs_closes(
    closing: Closing, wall_clock: str
) -> None:
    """A bounded run and a replay close it at their end, the test driver and a live run when inputs are idle."""
    settings: dict[str, Any] = {"final_flush": True}
    found = rows_of(lived(closing.build, inputs_of(closing), partitions=closing.partitions, **settings))

    assert _pairs(rows_of(replayed(closing, final_flush=True, wall_clock=wall_clock))) == _pairs(found)
    assert _pairs(driven(closing, rest_ms=10_000)) == _pairs(found)
    assert _pairs(live(closing, _total(found))) == _pairs(found)


def endless(builder: StreamsBuilder) -> None:
    builder.stream(TOPICS["a"]).map_values(lambda value: value + 1).to(TOPICS["a"])


ONCE: Inputs = {"a": [Row(0, b"p", TOPICS["a"].value_serde.serialize(1), 0)]}


def _tested_endless() -> None:
    with TopologyTestDriver(endless, max_cycle_rounds=25) as driver:
        driver.pipe(TOPICS["a"], 1, key="p", timestamp_ms=0)


def _replayed_endless() -> None:
    with quick_folder() as folder:
        archives = archived(folder, ONCE, {"a": 1})
        drive(session_of(endless, archives, folder / "replay", max_cycle_rounds=25))


@pytest.mark.parametrize(
    "driver",
    [_tested_endless, lambda: lived(endless, ONCE, max_cycle_rounds=25), _replayed_endless],
    ids=["test driver", "bounded", "replay"],
)
def test_every_driver_that_must_end_ends_what_goes_round_for_ever(driver: Callable[[], Any]) -> None:
    with pytest.raises(TopologyError, match=r"'a', and does not end.*after 25 rounds 1 records are left"):
        driver()
