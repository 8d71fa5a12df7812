"""The record cache between operators: when there is one, whose updates it holds together, and what it logs."""

import logging
from collections.abc import Iterator

import pytest

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic, TopicPartition, build_topology
from streams.bounded import run_bounded
from streams.core.blocks.records import Block
from streams.testing import TopologyTestDriver
from streams.topology import behind_caches
from tests.waiting import NEVER_MS, until

visits = Topic("visits", key=str, value=int)
totals = Topic("totals", key=str, value=int)


def third_visit(builder: StreamsBuilder) -> None:
    """Emit an alert for the third visit of a key, and no other."""
    counted = builder.stream(visits).group_by_key().count("counts")
    counted.to_stream().filter(lambda _, count: count == 3, name="third").to(totals)


def five_visits() -> Iterator[list[tuple[int, Block]]]:
    yield [(0, Block([b"ann"] * 5, [visits.value_serde.serialize(1)] * 5, [*range(5)], None, range(5)))]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as opened:
        yield opened


def test_each_update_is_emitted_by_default():
    """The cache of Kafka Streams would pass on the fifth count only, at a commit after 30 seconds."""
    driver = TopologyTestDriver(third_visit)
    for time_ms in range(5):
        driver.pipe(visits, 1, key="ann", timestamp_ms=time_ms)

    assert driver.read(totals) == [("ann", 3)]


def test_each_update_is_emitted_by_default_live(broker):
    """The alert does not wait for a commit."""
    with Producer(broker) as producer:
        for time_ms in range(5):
            producer.send(visits, 1, key="ann", timestamp_ms=time_ms)
    place = TopicPartition("totals", 0)
    with Streams(third_visit, application_id="app", broker=broker, poll_ms=1, commit_interval_ms=NEVER_MS):
        until(lambda: "totals" in broker.topics() and broker.end_offset(place))
        [block] = broker.read(place, 0)

    assert (block.keys, [*map(totals.value_serde.deserialize, block.values)]) == ([b"ann"], [3])


@pytest.mark.parametrize(
    ("end", "is_named"),
    [
        (lambda table: table.to_stream(), False),
        (lambda table: table.to_stream().map_values(lambda count: -count), False),
        (lambda table: table.to_stream().peek(lambda key, count: None), False),
        (lambda table: table.to_stream().select_key(lambda key, count: key + "!"), False),
        (lambda table: table.map_values(lambda count: -count, value=int).to_stream(), False),
        (lambda table: table.to_stream().filter(lambda key, count: count < 4), True),
        (lambda table: table.to_stream().flat_map_values(lambda count: [count][count // 4 :]), True),
        (lambda table: table.to_stream().group_by_key().count("again").to_stream(), True),
        (lambda table: table.to_stream().group_by_key().reduce(lambda one, two: one + two).to_stream(), True),
    ],
)
def test_last_results_differ_with_a_cache_where_a_node_is_named(end, is_named):
    """One commit after five visits: the cached count passes on 5 only."""

    def topology(builder: StreamsBuilder) -> None:
        end(builder.stream(visits).group_by_key().count("counts")).to(totals)

    last = []
    for size in (0, 10_000):
        settings = {"cache_max_bytes": size}
        inputs = {"visits": lambda *_: five_visits()}
        with run_bounded(topology, inputs, application_id="app", settings=settings) as finished:
            written = [block for _, block in finished.read_output("totals")]
        last.append({key: value for block in written for key, value in zip(block.keys, block.values, strict=True)})

    assert bool(behind_caches(build_topology(topology))) is is_named
    assert (last[0] != last[1]) is is_named


def logged(caplog, broker, topology, **settings) -> list[str]:
    """Return the warnings of an application that starts."""
    broker.create_topic("visits", 1)
    with caplog.at_level(logging.WARNING), Streams(topology, application_id="shop", broker=broker, **settings):
        pass
    return [record.getMessage() for record in caplog.records]


def test_start_names_the_nodes_whose_results_depend_on_commits(caplog, broker):
    assert logged(caplog, broker, third_visit, cache_max_bytes=1000) == [
        "application 'shop': results of nodes behind a record cache (cache_max_bytes=1000) depend on commits, which "
        "pass on only the last update of each key: 'third' behind 'counts'; caching=False of a store passes on each "
        "update"
    ]


def test_start_says_nothing_of_a_table_that_is_only_written(caplog, broker):
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(visits).group_by_key().count("counts", caching=True).to_stream().to(totals)

    assert logged(caplog, broker, topology, cache_max_bytes=1000) == []


def test_caching_of_a_store_without_a_cache_is_logged(caplog, broker):
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(visits).group_by_key().count("counts", caching=True).to_stream().to(totals)

    assert logged(caplog, broker, topology) == [
        "application 'shop': caching=True of store 'counts' has no effect: there is no record cache "
        "(cache_max_bytes=0), and each update is emitted at once; cache_max_bytes=10485760 gives the cache that Kafka "
        "Streams has by default"
    ]


def test_nothing_is_logged_by_default(caplog, broker):
    assert logged(caplog, broker, third_visit) == []


def test_operators_of_a_cogroup_hold_back_one_update_per_key():
    """One record goes through both; what comes out last is the aggregate of both."""

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(visits)
        (
            stream.group_by_key()
            .cogroup(lambda key, value, total: total + value, value=int)
            .cogroup(
                stream.map_values(lambda value: value * 10).group_by_key(), lambda key, value, total: total + value
            )
            .aggregate(lambda: 0, name="totals-store")
            .to_stream()
            .to(totals)
        )

    driver = TopologyTestDriver(topology, cache_max_bytes=10_000)
    driver.pipe(visits, 1, key="ann", timestamp_ms=0)
    driver.pipe(visits, 2, key="ann", timestamp_ms=1)

    assert driver.read(totals) == [("ann", 11), ("ann", 33)]


def test_commit_leaves_nothing_held_back():
    """What the first cache gives out is held back by the second, which must be flushed after it.

    In the chain and in the join with itself the operator further down is bound first.
    """

    def topology(builder: StreamsBuilder) -> None:
        counts = builder.stream(visits).group_by_key().count("counts")
        both = counts.join(counts, lambda left, right: left + right, store="both", value=int)
        both.filter(lambda key, value: True, store="kept").to_stream().to(totals)

    def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        yield [(0, Block([b"ann"] * 3, [visits.value_serde.serialize(1)] * 3, [0, 1, 2], None, range(3)))]

    with run_bounded(
        topology, {"visits": read}, application_id="app", settings={"cache_max_bytes": 10_000}
    ) as finished:
        values = [
            totals.value_serde.deserialize(v) for _, block in finished.read_output("totals") for v in block.values
        ]

    assert values == [6]
