"""One suite of our clients against every way to a broker: in this process, over TCP, and a real Kafka."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pytest

from streams.broker.tcp.requests import VERSIONS
from streams.clients import (
    Admin,
    Consumer,
    ConsumerRecord,
    GroupExistsError,
    GroupNotEmptyError,
    Producer,
    RebalanceListener,
    TopicExistsError,
)
from streams.clients.admin import EARLIEST, LATEST
from streams.clients.tcp import TcpCluster
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import (
    BrokerError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    RebalanceInProgressError,
    UnknownTopicError,
)
from streams.group.assignment.assignors import CooperativeStickyAssignor, RangeAssignor
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.messages import TopicSpec
from streams.protocol.transport import Cluster
from tests.waiting import NEVER_MS, WATCHDOG_MS, until


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin, name: str) -> str:
    """A topic of this test alone, with three partitions."""
    admin.create_topics([TopicSpec(name, 3)])
    return name


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Poll until so many records have come."""
    records: list[ConsumerRecord] = []
    until(lambda: len(records) >= count, turn=lambda: records.extend(consumer.poll(500)))
    return records


def read_all(cluster: Cluster, topic: str, partitions: int = 3, **settings: object) -> list[ConsumerRecord]:
    """Return what a topic holds up to its present end, by partition and offset."""
    with Consumer(cluster, auto_offset_reset="earliest", **settings) as consumer:
        assigned = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(assigned)
        ends = consumer.end_offsets(assigned)
        records: list[ConsumerRecord] = []

        def is_at_end() -> bool:
            return all((consumer.known_position(p) or 0) >= ends[p] for p in assigned if ends[p])

        until(is_at_end, turn=lambda: records.extend(consumer.poll(200)))
        return sorted(records, key=lambda record: (record.partition, record.offset))


# --- records ------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_out_as_they_went_in(cluster: Cluster, topic: str, codec: str):
    """Keys, values, times, headers, order: also the empty, the null and the repeated."""
    rows = [
        (b"key", b"value", 1_000, ()),
        (None, b"", 2_000, (("trace", b"\x00\xff"), ("trace", b"again"), ("none", None))),
        (b"", None, 3_000, (("", b""),)),
        *((b"%d" % number, b"x" * number, 10_000 + number, ()) for number in range(500)),
    ]
    with Producer(cluster, compression_type=codec, linger_ms=5) as producer:
        deliveries = [
            producer.send(topic, value, key=key, timestamp_ms=time, headers=headers, partition=1)
            for key, value, time, headers in rows
        ]
        producer.flush()

    assert [delivery.base_offset() for delivery in deliveries] == list(range(len(rows)))
    found = read_all(cluster, topic)
    assert [(r.key, r.value, r.timestamp_ms, r.headers) for r in found] == rows
    assert [(r.partition, r.offset) for r in found] == [(1, offset) for offset in range(len(rows))]


def test_block_above_the_limit_of_a_request_is_sent_in_pieces(cluster: Cluster, topic: str):
    """Five megabytes at once: a broker takes batches of one."""
    partition = TopicPartition(topic, 0)
    block = Block([None] * 5_000, [b"%06d" % n + b"x" * 1_000 for n in range(5_000)], [7] * 5_000)

    with Producer(cluster) as producer:
        producer.send_block(partition, Block([None], [b"first"], [7])).result()
        delivery = producer.send_block(partition, block)
        after = producer.send(topic, b"last", partition=0)

        assert delivery.base_offset() == 1
        assert after.base_offset() == 5_001
    assert [r.value for r in read_all(cluster, topic)] == [b"first", *block.values, b"last"]


@pytest.mark.case
def test_unknown_topic_is_told(cluster: Cluster, name: str):
    with Producer(cluster) as producer, pytest.raises(UnknownTopicError, match=name):
        producer.send(name, b"value")
    with Consumer(cluster) as consumer, pytest.raises(UnknownTopicError, match=name):
        consumer.assign([TopicPartition(name, 0)])
        until(lambda: False, turn=lambda: consumer.poll(500))


def test_slow_partition_does_not_hold_up_another(cluster: Cluster, topic: str):
    """A fetch that waits for news of one partition leaves the others to be asked for."""
    slow, busy = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with (
        Producer(cluster) as producer,
        Consumer(cluster, auto_offset_reset="earliest", fetch_max_wait_ms=NEVER_MS) as c,
    ):
        c.assign([slow, busy])
        until(lambda: c.known_position(slow) is not None, turn=lambda: c.poll(100))
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=1).result()
            assert [record.value for record in read(c, 1)] == [b"%d" % number]


def test_records_come_in_a_fetch_session(cluster: Cluster, topic: str):
    """Fetches that name nothing bring the records of each partition, also after another consumer has begun."""
    partitions = [TopicPartition(topic, number) for number in range(3)]
    with Producer(cluster) as producer, Consumer(cluster, auto_offset_reset="earliest", fetch_max_wait_ms=50) as c:
        c.assign(partitions)
        for _ in range(3):
            since_ms = c.end_known_ms(partitions[0]) or 0
            until(lambda since=since_ms: (c.end_known_ms(partitions[0]) or 0) > since, turn=lambda: c.poll(100))
            for partition in partitions:
                producer.send(topic, b"value", partition=partition.partition).result()
            assert {record.partition for record in read(c, 3)} == {0, 1, 2}

        (session, *_) = next(iter(c._fetcher._sessions._by_node.values()))
        assert session.session_id > 0
        assert [c.known_end(partition) for partition in partitions] == [3, 3, 3]


def test_position_out_of_the_log(cluster: Cluster, topic: str):
    partition = TopicPartition(topic, 0)
    with Consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 99)

        with pytest.raises(OffsetOutOfRangeError):
            until(lambda: False, turn=lambda: consumer.poll(500))


def test_offsets_by_time(cluster: Cluster, topic: str):
    partition = TopicPartition(topic, 2)
    with Producer(cluster) as producer:
        for time in (100, 200, 300):
            producer.send(topic, b"v", timestamp_ms=time, partition=2)
            producer.flush()
    with Consumer(cluster) as consumer:
        found = consumer.offsets_for_times({partition: 150})[partition]

        assert found is not None
        assert (found.offset, found.timestamp_ms) == (1, 200)
        assert consumer.offsets_for_times({partition: 400}) == {partition: None}
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 3}


def test_wakeup_ends_a_poll_of_another_thread(cluster: Cluster, topic: str):
    from streams.clients import WakeupError

    with Consumer(cluster) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.poll(500)
        timer = threading.Timer(0.1, consumer.wakeup)
        timer.start()

        with pytest.raises(WakeupError):
            consumer.poll(NEVER_MS)


# --- groups -------------------------------------------------------------------------------


class Log(RebalanceListener):
    """What a listener was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[int, ...]]] = []

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("assigned", tuple(partition.partition for partition in partitions)))

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("revoked", tuple(partition.partition for partition in partitions)))

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("lost", tuple(partition.partition for partition in partitions)))


def settled(consumers: Sequence[Consumer], count: int = 3, turn: Callable[[], object] | None = None) -> None:
    """Poll in turn until all partitions have one owner each, and everybody his share."""

    def is_shared() -> bool:
        owned = [partition for consumer in consumers for partition in consumer.assignment()]
        fair = all(len(consumer.assignment()) >= count // len(consumers) for consumer in consumers)
        return fair and len(owned) == len(set(owned)) == count

    until(is_shared, turn=turn or (lambda: [consumer.poll(50) for consumer in consumers]))


@pytest.mark.case(2)
@pytest.mark.parametrize("assignor", [RangeAssignor, CooperativeStickyAssignor])
def test_members_share_partitions_and_take_over(cluster: Cluster, topic: str, assignor: type):
    """Every record is read once; who leaves hands on where it was."""
    with Producer(cluster) as producer:
        for number in range(300):
            producer.send(topic, b"%d" % number, partition=number % 3)
        producer.flush()
    group = f"{topic}-group"
    consumers = [
        Consumer(
            cluster,
            group,
            client_id=f"c{number}",
            assignors=[assignor()],
            auto_offset_reset="earliest",
            session_timeout_ms=WATCHDOG_MS,
            heartbeat_interval_ms=200,
            max_poll_records=10,
        )
        for number in range(3)
    ]
    seen: list[bytes] = []
    try:
        for consumer in consumers:
            consumer.subscribe([topic])

        def turn() -> None:
            for consumer in consumers:
                seen.extend(record.value for record in consumer.poll(20))
                # Who joins again commits later.
                with suppress(RebalanceInProgressError):
                    if consumer.assignment():
                        consumer.commit_sync()

        until(lambda: len(seen) >= 300 and all(consumer.assignment() for consumer in consumers), turn=turn)
        assert sorted(map(int, seen)) == list(range(300))
        with Producer(cluster) as producer:
            for number in range(300, 330):
                producer.send(topic, b"%d" % number, partition=number % 3)
            producer.flush()
        consumers.pop(0).close()
        settled(consumers, turn=turn)
        until(lambda: len(seen) >= 330, turn=turn)
        assert sorted(map(int, seen)) == list(range(330))
    finally:
        for consumer in consumers:
            consumer.close()


def test_static_member_comes_back_without_a_rebalance(cluster: Cluster, topic: str):
    group = f"{topic}-group"

    def member(number: int, log: Log) -> Consumer:
        consumer = Consumer(
            cluster,
            group,
            client_id=f"c{number}",
            group_instance_id=f"member-{number}",
            session_timeout_ms=WATCHDOG_MS,
            heartbeat_interval_ms=200,
        )
        consumer.subscribe([topic], log)
        return consumer

    logs = [Log(), Log()]
    consumers = [member(number, logs[number]) for number in range(2)]
    try:
        settled(consumers)
        share, told = consumers[1].assignment(), list(logs[0].told)
        consumers[1].close()
        again = Log()
        consumers[1] = member(1, again)
        settled(consumers)

        assert consumers[1].assignment() == share
        assert logs[0].told == told
    finally:
        for consumer in consumers:
            consumer.close()


def test_new_partitions_are_noticed_and_shared(cluster: Cluster, admin: Admin, topic: str):
    with Consumer(cluster, f"{topic}-group", metadata_max_age_ms=300, heartbeat_interval_ms=200) as consumer:
        consumer.subscribe([topic])
        settled([consumer])

        admin.create_partitions({topic: 5})

        settled([consumer], 5)


def test_commits_are_kept_with_their_notes(cluster: Cluster, admin: Admin, topic: str):
    partition, group = TopicPartition(topic, 1), f"{topic}-group"
    with Consumer(cluster, group) as consumer:
        consumer.assign([partition])
        consumer.commit_sync({partition: OffsetAndMetadata(7, "a note")})

        assert consumer.committed([partition, TopicPartition(topic, 0)]) == {partition: OffsetAndMetadata(7, "a note")}
    assert admin.committed_offsets(group) == {partition: OffsetAndMetadata(7, "a note")}


# --- transactions -------------------------------------------------------------------------


def test_aborted_records_are_left_out(cluster: Cluster, topic: str):
    """Committed, aborted and plain records, interleaved."""
    with Producer(cluster) as plain, Producer(cluster, transactional_id=f"{topic}-tx") as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, b"tx%d" % number, partition=0)
            producer.flush()
            plain.send(topic, b"plain%d" % number, partition=0).result()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    committed = [record.value for record in read_all(cluster, topic, isolation_level="read_committed")]
    everything = [record.value for record in read_all(cluster, topic)]
    assert committed == [b"tx0", b"plain0", b"plain1", b"tx2", b"plain2", b"plain3"]
    assert everything == [b"tx0", b"plain0", b"tx1", b"plain1", b"tx2", b"plain2", b"tx3", b"plain3"]


def test_open_transaction_holds_readers_back(cluster: Cluster, topic: str):
    partition = TopicPartition(topic, 0)
    with Producer(cluster, transactional_id=f"{topic}-tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0)
        producer.flush()
        with Consumer(cluster, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            assert consumer.poll(300) == []
            assert consumer.end_offsets([partition]) == {partition: 0}

            producer.commit_transaction()

            assert [record.value for record in read(consumer, 1)] == [b"open"]


def test_offsets_are_part_of_the_transaction(cluster: Cluster, admin: Admin, topic: str):
    if isinstance(cluster, TcpCluster) and "served" in topic and VERSIONS[28][1] < 3:
        pytest.skip("the embedded broker does not offer TxnOffsetCommit 3 yet")
    partition, group = TopicPartition(topic, 0), f"{topic}-group"
    with Producer(cluster) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush()
    with (
        Consumer(
            cluster, group, auto_offset_reset="earliest", enable_auto_commit=False, isolation_level="read_committed"
        ) as consumer,
        Producer(cluster, transactional_id=f"{topic}-tx") as producer,
    ):
        consumer.subscribe([topic])
        producer.init_transactions()
        read(consumer, 10)
        for offset, is_kept in ((4, True), (8, False), (6, True)):
            producer.begin_transaction()
            producer.send(topic, b"out", partition=1)
            producer.send_offsets_to_transaction({partition: offset}, consumer.group_metadata)
            if is_kept:
                producer.commit_transaction()
            else:
                producer.abort_transaction()

            assert consumer.committed([partition])[partition].offset == (offset if is_kept else 4)
    until(lambda: admin.committed_offsets(group)[partition].offset == 6)


def test_successor_fences_its_predecessor(cluster: Cluster, topic: str):
    old = Producer(cluster, transactional_id=f"{topic}-tx")
    old.init_transactions()
    old.begin_transaction()
    old.send(topic, b"old", partition=0)
    old.flush()
    with Producer(cluster, transactional_id=f"{topic}-tx") as young:
        young.init_transactions()
        with young.transaction():
            young.send(topic, b"young", partition=0)

        with pytest.raises(ProducerFencedError):
            old.commit_transaction()
    old.abandon()
    assert [r.value for r in read_all(cluster, topic, isolation_level="read_committed")] == [b"young"]


# --- administration -----------------------------------------------------------------------


@pytest.mark.case
def test_topics_are_made_described_widened_and_deleted(cluster: Cluster, admin: Admin, name: str):
    admin.create_topics([TopicSpec(name, 2, {"cleanup.policy": "compact", "retention.ms": "12345"})])

    described = admin.describe_topics([name])[name]
    assert len(described.leaders) == 2
    assert described.config["cleanup.policy"] == "compact"
    assert described.config["retention.ms"] == "12345"
    assert name in admin.list_topics()
    with pytest.raises(TopicExistsError):
        admin.create_topics([TopicSpec(name, 2)])
    admin.create_topics([TopicSpec(name, 2)], exist_ok=True)
    admin.create_partitions({name: 4})
    until(lambda: len(admin.describe_topics([name])[name].leaders) == 4)
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        admin.create_partitions({name: 1})
    admin.delete_topics([name])
    until(lambda: name not in admin.list_topics())
    with pytest.raises(UnknownTopicError):
        admin.describe_topics([name])


def test_records_are_deleted_and_offsets_listed(cluster: Cluster, admin: Admin, topic: str):
    partitions = [TopicPartition(topic, number) for number in range(3)]
    with Producer(cluster) as producer:
        for number in range(30):
            producer.send(topic, b"%d" % number, partition=number % 3)
        producer.flush()

    assert admin.delete_records({partitions[0]: 4, partitions[1]: -1}) == {partitions[0]: 4, partitions[1]: 10}
    assert admin.list_offsets(dict.fromkeys(partitions, EARLIEST)) == dict(zip(partitions, (4, 10, 0), strict=True))
    assert admin.list_offsets(dict.fromkeys(partitions, LATEST)) == dict.fromkeys(partitions, 10)


def test_groups_are_listed_described_rewound_and_deleted(cluster: Cluster, admin: Admin, topic: str):
    partition, group = TopicPartition(topic, 0), f"{topic}-group"
    with Producer(cluster) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush()
    with Consumer(cluster, group, auto_offset_reset="earliest", client_id="reader") as consumer:
        consumer.subscribe([topic])
        read(consumer, 10)
        consumer.commit_sync()

        described = admin.describe_group(group)
        assert described.state == "Stable"
        assert [member.client_id for member in described.members] == ["reader"]
        listed = {found.group_id: found for found in admin.list_groups()}[group]
        assert (listed.protocol_type, listed.state) == ("consumer", "Stable")
        with pytest.raises(GroupNotEmptyError):
            admin.delete_group(group)
        with pytest.raises(GroupNotEmptyError):
            admin.alter_offsets(group, {partition: 3})
        if isinstance(cluster, TcpCluster):
            with pytest.raises(GroupNotEmptyError, match="1 members"):
                admin.rewind(group, to=EARLIEST)

    assert admin.rewind(group, shift=-4, partitions=[partition]) == {partition: 6}
    assert admin.rewind(group, offsets={partition: 2}) == {partition: 2}
    assert admin.committed_offsets(group, [partition]) == {partition: OffsetAndMetadata(2)}
    admin.delete_group(group)
    assert admin.describe_group(group).state == "Dead"


def test_group_that_kafka_does_not_have_is_refused(cluster: Cluster, admin: Admin, name: str):
    """Groups of the embedded broker's own kind are its own, and need it in this process."""
    if not isinstance(cluster, TcpCluster):
        admin.create_group(name, ephemeral=True)
        with pytest.raises(GroupExistsError):
            admin.create_group(name, ephemeral=False)
        return

    with pytest.raises(BrokerError, match="only the embedded broker"):
        admin.create_group(name, ephemeral=True)
