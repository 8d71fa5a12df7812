"""The same tasks give the same under all four drivers: test driver, bounded run, replay and live thread.

Bounded runs and replays agree record for record.  The test driver is given the records of all topics in the
order of their times; where no two ways lead to a topic, so that none of its records have the same time, it
agrees with them to the order.  In a live run the order in which records meet depends on the speed of tasks, so
only keys and values are compared, of topologies that do not depend on it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from streams import EmbeddedBroker, Streams, StreamsBuilder, Topic, TopicPartition
from streams.core.errors import TopologyError
from streams.core.partitioning import partition_for
from streams.testing import TopologyTestDriver
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

TOPICS = {name: Topic(name, key=str, value=int) for name in "abcde"}
#: What a part of a topology does to records on their way from one topic to the next, or round to the same one.
STEPS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda stream: stream,
    "by value": lambda stream: stream.select_key(lambda key, value: f"v{value % 5}"),
    "twice": lambda stream: stream.flat_map(lambda key, value: [(key, value), (f"t{value % 3}", value + 1)]),
    "counted": lambda stream: stream.group_by(lambda key, value: f"c{value % 4}").count().to_stream(),
    "some": lambda stream: stream.filter(lambda key, value: value % 3 > 0),
    "mixed": lambda stream: stream.group_by(lambda key, value: "m").reduce(lambda m, n: (m * 31 + n) % 997).to_stream(),
    "about": lambda stream: stream.filter(lambda key, value: value > 1).map(
        lambda key, value: (f"r{value}", value // 2)
    ),
    "round": lambda stream: stream.filter(lambda key, value: value > 1).map_values(lambda value: value // 2),
}
#: Results depend on the order of all records.
ORDERED = {"mixed", "joined"}
#: Goes round between partitions.
CROSSING = {"about"}
Parts = Sequence[tuple[str, str, str]]


def _part(start: str, step: str, hops: int) -> tuple[str, str, str]:
    """Return from, how, to: on to a later topic; what goes round becomes less each time."""
    later = "abcd"[min("abcd".index(start) + hops, 3)]
    return start, step, start if step == "round" else later


PARTS = st.lists(
    st.builds(
        _part, st.sampled_from("abc"), st.sampled_from(sorted(STEPS.keys() - ORDERED - CROSSING)), st.integers(1, 3)
    ),
    min_size=1,
    max_size=4,
)
ONE_WAY = st.tuples(
    *(
        st.tuples(
            st.sampled_from("abcd"[:number]),
            st.sampled_from(sorted(ORDERED | STEPS.keys() - CROSSING - {"twice", "round"})),
        )
        for number in (1, 2, 3)
    ),
    st.sampled_from(["", "a", "b", "c"]),
).map(
    lambda drawn: [
        *((start, step, target) for (start, step), target in zip(drawn[:3], "bcd", strict=True)),
        *((name, "round", name) for name in drawn[3]),
    ]
)
#: Topic, key and value; each is a millisecond later than the one before.
ROWS = st.lists(st.tuples(st.sampled_from("abce"), st.sampled_from("pqrs"), st.integers(0, 30)), max_size=16)


@frozen
class Example:
    """A topology and its input."""

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

    @property
    def inputs(self) -> Inputs:
        """The rows of each topic."""
        found: dict[str, list[Row]] = {name: [] for name in self.read}
        for time_ms, (name, key, value) in enumerate(self.rows):
            if name in found:
                raw = TOPICS[name].key_serde.serialize(key)
                assert raw is not None
                row = Row(partition_for(raw, self.partitions), raw, TOPICS[name].value_serde.serialize(value), time_ms)
                found[name].append(row)
        return found


def driven(example: Example, **settings: Any) -> Mapping[str, Mapping[int, Sequence[Any]]]:
    """Return what the test driver writes, without the input: (key, value, time) by topic and partition."""
    result: dict[str, dict[int, list[Any]]] = {}
    piped: Counter[Any] = Counter()
    options = {"application_id": APPLICATION, **settings}
    with TopologyTestDriver(example.build, partitions=example.partitions, **options) as driver:
        for time_ms, (name, key, value) in enumerate(example.rows):
            if name in example.read:
                driver.pipe(TOPICS[name], value, key=key, timestamp_ms=time_ms)
                piped[name, key, value, time_ms] += 1
        for name in example.written:
            for record in driver.read_records(TOPICS[name]):
                row = (name, record.key, record.value, record.timestamp_ms)
                if piped[row]:
                    piped[row] -= 1
                    continue
                number = partition_for((record.key or "").encode(), example.partitions)
                result.setdefault(name, {}).setdefault(number, []).append(row[1:])
    return result


def live(example: Example, expected: int) -> Mapping[str, Counter[tuple[Any, Any]]]:
    """Return what an application writes that goes on, keys and values, once it has written so many records."""
    result: dict[str, Counter[tuple[Any, Any]]] = {}
    with EmbeddedBroker() as broker:
        for name in {*example.read, *example.written}:
            broker.create_topic(name, example.partitions)
        given_count = Counter[tuple[str, int]]()
        for name, rows in example.inputs.items():
            for number, block in rows_of_blocks(rows):
                broker.append(TopicPartition(name, number), block)
                given_count[name, number] = len(block)
        places = [TopicPartition(name, number) for name in example.written for number in range(example.partitions)]

        def written() -> int:
            return sum(broker.end_offset(place) - given_count[place] for place in places)

        settings: dict[str, Any] = {"cache_max_bytes": 0, "poll_ms": 2, "default_store": "in_memory"}
        failed = threading.Event()
        with Streams(example.build, application_id=APPLICATION, broker=broker, **settings) as streams:
            while written() < expected and not failed.is_set():
                if streams.wait(2):
                    failed.set()
        assert streams.failure is None
        for place in places:
            topic, found = TOPICS[place.topic], result.setdefault(place.topic, Counter())
            blocks = broker.read(place, given_count[place]) if written() else []
            for block in blocks:
                for key, value in zip(block.keys, block.values, strict=True):
                    found[topic.key_serde.deserialize(key), topic.value_serde.deserialize(value)] += 1
    return result


def replayed(example: Example) -> Outcome:
    """Return the outcome of a replay in two slices."""
    with quick_folder() as folder:
        archives = archived(folder, example.inputs, dict.fromkeys(example.read, example.partitions))
        root = folder / "replay"
        session = session_of(example.build, archives, root, partitions=example.partitions, slices=2, cache_max_bytes=0)
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
    bounded = lived(example.build, example.inputs, partitions=partitions, cache_max_bytes=0)
    found = rows_of(bounded)

    assert bounded.difference(replayed(example)) is None
    assert _sorted(driven(example)) == _sorted(found)
    pairs = {
        name: Counter((key, value) for rows in partitions.values() for key, value, _ in rows)
        for name, partitions in found.items()
    }
    assert {name: count for name, count in live(example, _total(found)).items() if count} == pairs


@examples(25)
@given(ONE_WAY, ROWS, st.sampled_from([1, 3]))
def test_records_of_different_times_have_one_order_under_all_drivers_that_decide_it(
    parts: Parts, rows: Sequence[tuple[str, str, int]], partitions: int
) -> None:
    example = Example(parts, rows, partitions)
    settings: dict[str, Any] = {"max_poll_records": 3, "buffered_records_per_partition": 2}
    bounded = lived(example.build, example.inputs, partitions=partitions, cache_max_bytes=0, **settings)

    assert bounded.difference(replayed(example)) is None
    assert driven(example) == rows_of(bounded)


def test_records_that_go_round_between_tasks_have_one_order_too() -> None:
    """The task with the lowest head is next, so what each task writes ascends in time."""
    rows = [("a", key, value) for key, value in zip("pqrspqrs", (30, 7, 22, 13, 28, 9, 17, 25), strict=True)]
    example = Example([("a", "about", "a")], rows, 3)
    bounded = lived(example.build, example.inputs, partitions=3, cache_max_bytes=0)
    found = rows_of(bounded)

    assert bounded.difference(replayed(example)) is None
    assert _sorted(driven(example)) == _sorted(found)
    times = [[time_ms for _, _, time_ms in records] for records in found["a"].values()]
    assert times == [sorted(each) for each in times]


def _sorted(found: Mapping[str, Mapping[int, Sequence[Any]]]) -> dict[str, dict[int, list[Any]]]:
    return {
        name: {number: sorted(rows) for number, rows in sorted(partitions.items()) if rows}
        for name, partitions in sorted(found.items())
        if any(partitions.values())
    }


def _total(found: Mapping[str, Mapping[int, Sequence[Any]]]) -> int:
    return sum(len(rows) for partitions in found.values() for rows in partitions.values())


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
