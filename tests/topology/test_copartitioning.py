"""Topics whose records meet in a store need equal partition counts, whatever the store is for."""

import re
from collections.abc import Sequence
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    Consumer,
    CountWindows,
    EmbeddedBroker,
    Processor,
    Producer,
    SessionWindows,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topic,
    TopicPartition,
    TopologyError,
    Window,
    Windower,
    build_topology,
    key_value_store,
)
from streams.core.blocks.partitioning import partition_for
from streams.core.clock import SystemClock
from streams.protocol.streams_group_messages import CopartitionGroup
from streams.runtime.plan.group_topology import group_topology
from streams.runtime.plan.plan import ApplicationPlan
from streams.testing import TopologyTestDriver
from streams.testing.simulation import simulate
from streams.topology.subtopologies import resolve_partitions, sub_topologies
from tests import waiting
from tests.properties.profile import examples
from tests.replay.outcomes import Row, archived, drive, lived, replayed_outcome, result_of, session_of

SECOND = timedelta(seconds=1)
A = Topic("A", key=str, value=int, partitions=2)
B = Topic("B", key=str, value=int, partitions=3)
small = Topic("small", key=str, value=int, partitions=1)
out = Topic("out", key=str, value=int)
KEYS = "abcdefgh"
UNEVEN = {"A": 2, "B": 3, "small": 1}
REFUSED = "must be co-partitioned, but 'A' has 2, 'B' has 3 partitions and their records meet in store '.*repartition"


class Keeper(Processor[str, int, str, int]):
    """Keeps the last value of each key."""

    last = key_value_store(str, int, "last")

    def process(self, record):
        self.last.put(record.key, record.value)


class Day(Windower[str, int]):
    """One window for everything."""

    retention = SECOND

    def assign(self, key: str, value: int, timestamp_ms: int, windows: Sequence[Window]) -> list[Window]:
        return [Window(0, 1_000)]

    def merge(self, windows: Sequence[Window]) -> Sequence[Window]:
        return windows

    def close(self, window: Window) -> int:
        return window.end_ms


async def priced(key: str) -> int:
    return len(key)


async def doubled(key: str, value: int) -> int:
    return 2 * value


def grouped(stream: Any) -> Any:
    return stream.group_by_key()


STATEFUL = {
    "count": lambda stream: grouped(stream).count(),
    "reduce": lambda stream: grouped(stream).reduce(lambda one, two: one + two),
    "aggregate": lambda stream: grouped(stream).aggregate(lambda: 0, lambda key, value, total: total + value),
    "windows": lambda stream: grouped(stream).windowed_by(TimeWindows.of(SECOND)).count(),
    "sessions": lambda stream: grouped(stream).windowed_by(SessionWindows.of(SECOND)).count(),
    "count windows": lambda stream: grouped(stream).windowed_by(CountWindows.of(2)).count(),
    "own windows": lambda stream: grouped(stream).windowed_by(Day()).count(),
    "table": lambda stream: stream.to_table("t"),
    "deduplicate": lambda stream: stream.deduplicate(within=SECOND),
    "look-up": lambda stream: stream.look_up(priced),
    "processor": lambda stream: stream.process(Keeper),
    "mapped": lambda stream: grouped(
        stream.map_values(lambda value: value + 1).filter(lambda key, value: value)
    ).count(),
    "suppressed": lambda stream: (
        grouped(stream).count().suppress(Suppressed.until_time_limit(SECOND, max_records=10)).to_stream().to(out)
    ),
}
MERGED = {
    "merged": lambda builder: builder.stream(A).merge(builder.stream(B)),
    "listed": lambda builder: builder.stream(A, B),
    "pattern": lambda builder: builder.stream(re.compile("[AB]"), key=str, value=int),
    "repartitioned": lambda builder: (
        builder.stream(A).repartition("r", partitions=2).merge(builder.stream(B).repartition("s", partitions=3))
    ),
}


def uneven(builder: StreamsBuilder) -> None:
    builder.stream(A).merge(builder.stream(B)).group_by_key().count("c").to_stream().to(out)


def counts_of(function, known=None, **options):
    topology = build_topology(function)
    known = UNEVEN if known is None else known
    return resolve_partitions(topology, sub_topologies(topology, known), known, **options)


@pytest.mark.parametrize("verb", STATEFUL)
def test_state_over_topics_of_other_counts_is_refused(verb):
    with pytest.raises(TopologyError, match=REFUSED):
        counts_of(lambda builder: STATEFUL[verb](MERGED["merged"](builder)))


@pytest.mark.parametrize("way", MERGED)
def test_topics_are_compared_however_they_come_together(way):
    with pytest.raises(TopologyError, match=r"must be co-partitioned, but '.*' has 2, '.*' has 3 partitions"):
        counts_of(lambda builder: MERGED[way](builder).group_by_key().count("c"))


def test_processors_that_share_a_store_need_equal_counts():
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(A).process(Keeper)
        builder.stream(B).process(Keeper)

    with pytest.raises(TopologyError, match=REFUSED):
        counts_of(topology)


def test_a_store_behind_a_join_compares_all_topics_that_lead_to_it():
    def topology(builder: StreamsBuilder) -> None:
        joined = builder.stream(A).join(builder.table("T", key=str, value=int), lambda one, two: one + two)
        joined.merge(builder.stream(B)).group_by_key().count("c")

    with pytest.raises(TopologyError, match="'A' has 2, 'B' has 3, 'T' has 2 partitions"):
        counts_of(topology, {**UNEVEN, "T": 2})


@pytest.mark.parametrize(
    "stateless",
    [
        lambda stream: stream.map_values(lambda value: value + 1).to(out),
        # The store of the records in flight has no entries of keys.
        lambda stream: stream.map_values_async(doubled).to(out),
        lambda stream: stream.group_by(lambda key, value: key).count("c"),
        lambda stream: stream.repartition("r").group_by_key().count("c"),
    ],
    ids=["mapped", "async", "regrouped", "repartitioned"],
)
def test_topics_of_any_counts_are_merged_without_state(stateless):
    counts_of(lambda builder: stateless(builder.stream(A).merge(builder.stream(B))))


def test_a_global_table_has_any_count():
    def topology(builder: StreamsBuilder) -> None:
        table = builder.global_table(small)
        builder.stream(A).join(table, lambda one, two: one + two, key=lambda key, value: key).group_by_key().count("c")

    counts_of(topology)


def test_a_repartition_topic_without_a_count_takes_that_of_the_others():
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(A).repartition("r").merge(builder.stream(B)).group_by_key().count("c")

    assert counts_of(topology)["r-repartition"] == 3


@pytest.mark.parametrize(("count", "groups"), [(2, ()), (3, (CopartitionGroup((0,), (), (0,)),))])
def test_the_broker_is_told_of_other_state_only_where_its_own_count_would_differ(count, groups):
    """Kafka Streams tells it of joins and cogroups only, and its topology must be the same otherwise."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(A).repartition("r").merge(builder.stream("C", key=str, value=int)).group_by_key().count("c")

    config = StreamsConfig.of(application_id="app", group_protocol="streams")
    plan = ApplicationPlan.make(build_topology(topology), config, SystemClock(), {"A": 2, "C": count})
    (told,) = [sub.copartition_groups for sub in group_topology(plan).subtopologies if sub.source_topics == ("C",)]
    assert told == groups


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([None, 0, 1, 2, 3])), min_size=2, max_size=3))
@examples(30)
def test_counts_are_right_or_refused(inputs):
    """Topics of some partitions each, some of them repartitioned, to a count or to none (0), and merged."""

    def topology(builder: StreamsBuilder) -> None:
        streams = []
        for number, (_, repartitioned) in enumerate(inputs):
            stream = builder.stream(topics[number])
            if repartitioned is not None:
                stream = stream.repartition(f"r{number}", partitions=repartitioned or None)
            streams.append(stream)
        reduce(lambda one, two: one.merge(two), streams).group_by_key().count("c").to_stream().to(out)

    topics = [Topic(f"t{number}", key=str, value=int, partitions=count) for number, (count, _) in enumerate(inputs)]
    fixed = {count if repartitioned is None else repartitioned for count, repartitioned in inputs} - {0}
    if len(fixed) > 1:
        with pytest.raises(TopologyError, match="co-partitioned"):
            TopologyTestDriver(topology)
        return
    with TopologyTestDriver(topology) as driver:
        for topic in topics:
            for key in KEYS:
                driver.pipe(topic, 1, key=key, timestamp_ms=1)
        assert dict(driver.read(out)) == dict.fromkeys(KEYS, len(topics))


# --- counts that have grown -----------------------------------------------------------------


@pytest.mark.parametrize(("known", "is_right"), [((4, 2), True), ((4, 6), True), ((2, 2), True), ((4, 3), False)])
def test_topics_with_state_grow_one_after_the_other(known, is_right):
    """State in 2 groups: a topic of 4 partitions and one of 2 have each key in the same group."""
    counts = dict(zip("AB", known, strict=True))

    if is_right:
        assert counts_of(uneven, counts, groups={"A": 2, "B": 2}).items() >= counts.items()
        return
    with pytest.raises(TopologyError, match="'A' has 4, 'B' has 3 partitions"):
        counts_of(uneven, counts, groups={"A": 2, "B": 2})


# --- every driver ---------------------------------------------------------------------------


def repaired(builder: StreamsBuilder) -> None:
    both = builder.stream(A).repartition("r", partitions=3).merge(builder.stream(B))
    both.group_by_key().count("c").to_stream().to(out)


def rows() -> dict[str, list[Row]]:
    """One record of each key in either topic."""
    return {
        topic.name: [
            Row(partition_for(key.encode(), topic.partitions or 1), key.encode(), bytes(7) + b"\1", number)
            for key in KEYS
        ]
        for number, topic in enumerate((A, B))
    }


def in_driver(topology: Any, _: Path) -> dict[str, int]:
    with TopologyTestDriver(topology) as driver:
        for topic in (A, B):
            for key in KEYS:
                driver.pipe(topic, 1, key=key, timestamp_ms=1)
        return dict(driver.read(out))


def last_of(outcome: Any) -> dict[str, int]:
    records = [record for found in outcome.outputs["out"].values() for record in found]
    return {record[1].decode(): int.from_bytes(record[2], "big") for record in records}


def bounded(topology: Any, _: Path) -> dict[str, int]:
    return last_of(lived(topology, rows()))


def replayed(topology: Any, folder: Path) -> dict[str, int]:
    session = session_of(topology, archived(folder, rows(), UNEVEN), folder / "run")
    drive(session)
    return last_of(replayed_outcome(result_of(session)))


def live(topology: Any, _: Path) -> dict[str, int]:
    latest: dict[str, int] = {}
    with EmbeddedBroker() as broker, Streams(topology, application_id="app", broker=broker, commit_interval_ms=20):
        with Producer(broker) as producer, Consumer(broker, auto_offset_reset="earliest") as consumer:
            for topic in (A, B):
                for key in KEYS:
                    producer.send(topic, 1, key=key, timestamp_ms=1)
            producer.flush()
            consumer.assign([TopicPartition("out", 0)], [out])
            waiting.until(
                lambda: sum(latest.values()) == 2 * len(KEYS),
                lambda: latest.update((record.key, record.value) for record in consumer.poll(50)),
            )
    return latest


def simulated(topology: Any, _: Path) -> dict[str, int]:
    inputs = {topic: [(key, 1, 1) for key in KEYS] for topic in (A, B)}
    simulate(topology, inputs, seeds=[1])
    return dict.fromkeys(KEYS, 2)


DRIVERS = [in_driver, bounded, replayed, live, simulated]


@pytest.mark.parametrize("run", DRIVERS)
def test_no_driver_counts_a_key_in_two_tasks(run, tmp_path):
    """Without the check 7 of 8 keys were counted once instead of twice, with exit status 0."""
    with pytest.raises(TopologyError, match=REFUSED):
        run(uneven, tmp_path)


@pytest.mark.parametrize("run", DRIVERS)
def test_the_remedy_of_the_message_gives_the_right_counts(run, tmp_path):
    assert run(repaired, tmp_path) == dict.fromkeys(KEYS, 2)
