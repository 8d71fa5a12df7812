"""Keys that are not where joins and tables look for them: counted, said once for each topic, or an error."""

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any
from zlib import crc32

import pytest
from confluent_kafka import Producer as LibrdkafkaProducer
from hypothesis import given
from hypothesis import strategies as st

from streams import Admin, EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic, TopicPartition, Windowed
from streams.bounded import run_bounded
from streams.core.blocks.key_places import KeyPlaces
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import Block, Window
from streams.core.errors import ProcessingError
from streams.core.metrics import Counter, Metrics
from streams.core.serdes.serdes import time_windowed
from streams.runtime.plan.provisioning import Provisioner
from streams.runtime.tasks.key_sampler import KeySampler
from tests.waiting import until

orders = Topic("orders", key=str, value=int)
names = Topic("names", key=str, value=str)
out = Topic("out", key=str, value=str)
PARTITIONS = 4
KEYS = [f"customer-{number}" for number in range(60)]
FAST = {"application_id": "app", "commit_interval_ms": 20, "poll_ms": 10, "cache_max_bytes": 0}


def join(builder: StreamsBuilder) -> None:
    builder.stream(orders).join(builder.table(names), lambda cents, name: f"{name}: {cents}").to(out)


def by_crc32(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
    return crc32(key or b"") % count


def by_number(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
    """A partitioner that does not hash the key."""
    return len(key or b"") * 7 % count


def misplaced(keys: Sequence[str] = KEYS, partitions: int = PARTITIONS) -> list[str]:
    return [key for key in keys if crc32(key.encode()) % partitions != partition_for(key.encode(), partitions)]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(auto_create_topics=False) as broker:
        for topic in (orders, names, out):
            broker.create_topic(topic, PARTITIONS)
        yield broker


def write(broker: EmbeddedBroker, topic: Topic[Any, Any], partitioner: Any = None, keys: Sequence[Any] = KEYS) -> None:
    with Producer(broker, partitioner=partitioner) as producer:
        for number, key in enumerate(keys):
            producer.send(topic, str(key) if topic is names else number, key=key, timestamp_ms=number)


def run(broker: EmbeddedBroker, topology: Callable[[StreamsBuilder], None] = join, **settings: Any) -> Streams:
    """Run an application until it has processed all records, or has failed."""
    streams = Streams(topology, broker=broker, **(FAST | settings))
    with streams:
        until(lambda: streams.failure or (streams.state.name == "RUNNING" and lag(broker, streams) == 0))
        if streams.failure:
            raise streams.failure
    return streams


def lag(broker: EmbeddedBroker, streams: Streams) -> int:
    with Admin(broker) as admin:
        committed = admin.committed_offsets(streams.config.application_id)
    counts = broker.topics()
    topics = {topic for source in streams.topology.sources() for topic in source.topics if topic in counts}
    inputs = [TopicPartition(topic, number) for topic in topics for number in range(counts[topic])]
    ends = {at: end for at in inputs if (end := broker.end_offset(at))}
    return sum(at not in committed or committed[at].offset < end for at, end in ends.items())


def counted_keys(metrics: Metrics, name: str, topic: str) -> dict[str, int]:
    """Return the numbers of keys of a topic by reason, also of closed tasks."""
    return {
        tally.reason: count for tally, count in metrics.tallies().items() if (tally.name, tally.place) == (name, topic)
    }


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "streams.runtime.plan.misplaced"]


def test_table_that_librdkafka_wrote_is_said_once_with_the_partitioner(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Its default is CRC32, so most orders find no name."""
    write(broker, orders)
    with broker.serve("127.0.0.1:0") as server:
        other = LibrdkafkaProducer({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
        for key in KEYS:
            other.produce("names", key=key.encode(), value=key.encode())
        assert other.flush(60) == 0

    streams = run(broker, num_stream_threads=2)

    said, *_ = warnings(caplog)
    assert said.startswith("topic 'names': key b'customer-")
    assert "CRC32 (the default of librdkafka, so of confluent-kafka and kcat) explains" in said
    assert counted_keys(streams.metrics, "misplaced-keys-total", "names") == {"CRC32": len(misplaced())}
    assert counted_keys(streams.metrics, "sampled-keys-total", "orders") == {"": len(KEYS)}
    assert counted_keys(streams.metrics, "misplaced-keys-total", "orders") == {}


def test_fail_ends_the_application_at_the_first_misplaced_key(broker: EmbeddedBroker) -> None:
    placed = [key for key in KEYS if key not in misplaced()]
    key = misplaced()[0]
    partition = crc32(key.encode()) % PARTITIONS
    before = [other for other in placed if partition_for(other.encode(), PARTITIONS) == partition]
    write(broker, names, by_crc32, [*placed, key])

    with pytest.raises(ProcessingError, match=f"topic 'names': key b'{key}' is at offset {len(before)}") as raised:
        run(broker, misplaced_keys="fail")

    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("names", partition, len(before))


def test_ignore_looks_at_no_key(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    write(broker, names, by_crc32)

    streams = run(broker, misplaced_keys="ignore")

    assert warnings(caplog) == []
    assert counted_keys(streams.metrics, "sampled-keys-total", "names") == {}


def counted(builder: StreamsBuilder) -> None:
    builder.stream(orders).group_by_key().count("orders-per-key").to_stream().map_values(str).to(out)


def regrouped(builder: StreamsBuilder) -> None:
    builder.stream(orders).group_by(lambda key, _: key).count("regrouped").to_stream().map_values(str).to(out)


def repartitioned(builder: StreamsBuilder) -> None:
    stream = builder.stream(orders).repartition(name="orders-by-key")
    stream.join(builder.table(names), lambda cents, name: f"{name}: {cents}").to(out)


def stateless(builder: StreamsBuilder) -> None:
    builder.stream(orders).filter(lambda _, cents: cents > 0).map_values(str).to(out)


def global_table(builder: StreamsBuilder) -> None:
    customers = builder.global_table(orders)
    builder.stream(names).join(customers, lambda name, cents: f"{name}: {cents}", key=lambda key, _: key).to(out)


@pytest.mark.parametrize("topology", [regrouped, repartitioned, stateless, global_table])
def test_keys_that_no_store_reads_directly_may_be_anywhere(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture, topology: Callable[[StreamsBuilder], None]
) -> None:
    write(broker, orders, by_crc32)

    run(broker, topology, misplaced_keys="fail")

    assert warnings(caplog) == []


def test_counts_of_keys_in_two_partitions_are_warned_of(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    write(broker, orders, by_number, [*KEYS, *(f"c{number}" for number in range(60))])

    run(broker, counted)

    said, *_ = warnings(caplog)
    assert "no hash of the key explains" in said


def test_null_keys_and_windowed_keys_are_not_misplaced(broker: EmbeddedBroker) -> None:
    windows = Topic("windows", key=time_windowed(str, timedelta(seconds=1)), value=int)
    broker.create_topic(windows, PARTITIONS)
    write(broker, windows, keys=[Windowed(key, Window(0, 1_000)) for key in KEYS])
    with Producer(broker) as producer:
        for number in range(8):
            producer.send(orders, number, key=None, partition=number % PARTITIONS, timestamp_ms=0)  # type: ignore[arg-type]

    def topology(builder: StreamsBuilder) -> None:
        counted(builder)
        builder.table(windows, store="windows-store")

    streams = run(broker, topology, misplaced_keys="fail")

    assert counted_keys(streams.metrics, "sampled-keys-total", "windows") == {"": len(KEYS)}


def test_topic_with_a_partitioner_of_its_own_is_exempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings are asked for once, not for each partition."""
    asked: list[str] = []
    ask = Provisioner.is_by_key

    def is_by_key(self: Provisioner, topic: str) -> bool:
        asked.append(topic)
        return ask(self, topic)

    monkeypatch.setattr(Provisioner, "is_by_key", is_by_key)
    with EmbeddedBroker(auto_create_topics=False) as broker:
        broker.create_topic(orders, PARTITIONS, partitioner=by_crc32)
        broker.create_topic(out, PARTITIONS)
        write(broker, orders)

        run(broker, counted, misplaced_keys="fail")

    assert asked == ["orders"]


def test_topic_that_the_application_writes_with_a_partitioner_is_exempt(broker: EmbeddedBroker) -> None:
    passed = Topic("passed", key=str, value=int)
    broker.create_topic(passed, PARTITIONS)

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).to(passed, partitioner=lambda topic, key, value, count: crc32(key.encode()) % count)
        builder.stream(passed).group_by_key().count("passed-per-key").to_stream().map_values(str).to(out)

    write(broker, orders)

    run(broker, topology, misplaced_keys="fail")


def test_grown_topic_keeps_its_keys_until_the_groups_are_made_anew(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    write(broker, orders)
    run(broker, counted)
    with Admin(broker) as admin:
        admin.create_partitions({"orders": 2 * PARTITIONS})
    write(broker, orders)

    run(broker, counted, misplaced_keys="fail")
    assert warnings(caplog) == []

    run(broker, counted, application_id="other")
    said, *_ = warnings(caplog)
    assert "murmur2 over 4 partitions (the topic had fewer partitions when they were written)" in said


def reader(placed: Sequence[tuple[str, int]]) -> Callable[[int, int], Iterator[list[tuple[int, Block]]]]:
    """Return the rows of an input, each in the partition that is given."""

    def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        batch = []
        for number in range(count):
            keys = [key.encode() for key, partition in placed if partition == number]
            if keys:
                batch.append(
                    (
                        number,
                        Block(
                            keys, [orders.value_serde.serialize(1)] * len(keys), [0] * len(keys), None, range(len(keys))
                        ),
                    )
                )
        yield batch

    return read


def test_bounded_run_says_it_too(caplog: pytest.LogCaptureFixture) -> None:
    rows = reader([(key, crc32(key.encode()) % PARTITIONS) for key in KEYS])

    with run_bounded(counted, {"orders": rows}, application_id="app", partitions=PARTITIONS) as result:
        assert counted_keys(result.metrics, "misplaced-keys-total", "orders") == {"CRC32": len(misplaced())}

    said, *_ = warnings(caplog)
    assert "CRC32" in said
    with pytest.raises(ProcessingError, match="topic 'orders': key b'customer-"):
        settings = {"misplaced_keys": "fail"}
        run_bounded(counted, {"orders": rows}, application_id="app", partitions=PARTITIONS, settings=settings)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 400), min_size=1, max_size=40), st.integers(0, 300))
def test_sample_does_not_depend_on_the_sizes_of_blocks(sizes: list[int], begin: int) -> None:
    def looked_at(sizes: Sequence[int]) -> list[bytes | None]:
        seen: list[bytes | None] = []

        def note(sampler: KeySampler, block: Block, indices: Sequence[int]) -> None:
            seen.extend(block.keys[index] for index in indices)

        # In none of the partitions that are read together, so that every key is misplaced.
        sampler = KeySampler(KeyPlaces("t", 2), 0, frozenset(), Counter(), note)
        start = 0
        for size in sizes:
            keys = [b"%d" % number for number in range(start, start + size)]
            sampler.look(Block(keys, keys, [0] * size, None, range(start, start + size)))
            start += size
        return seen

    total = sum(sizes)
    assert looked_at(sizes) == looked_at([total])
    assert looked_at([total])[:64] == [b"%d" % number for number in range(min(total, 64))]


def test_later_records_are_looked_at_now_and_then() -> None:
    counter = Counter()
    sampler = KeySampler(KeyPlaces("t", 2), 0, frozenset({0, 1}), counter, lambda *_: None)

    for start in range(0, 100_000, 1_000):
        keys = [b"%d" % number for number in range(start, start + 1_000)]
        sampler.look(Block(keys, keys, [0] * 1_000))

    assert 64 + 80 < counter.value < 64 + 120


def test_log_of_misplaced_keys_is_a_warning(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    write(broker, names, by_crc32)

    run(broker)

    record, *_ = (record for record in caplog.records if record.name == "streams.runtime.plan.misplaced")
    assert record.levelno == logging.WARNING
