"""The producer against the embedded broker: order, batches, failures."""

from datetime import datetime, timedelta
from itertools import pairwise
from random import Random

import pytest

from streams.broker import EmbeddedBroker
from streams.clients import Admin, Producer, RequestTimeoutError
from streams.clients.errors import PartitionerError
from streams.clients.metadata import MetadataCache
from streams.clients.network import ONE_BROKER, SEVERAL_BROKERS
from streams.clients.producer.accumulator import oversized
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import Block, RecordMetadata, TopicPartition, Window, Windowed
from streams.core.errors import (
    BrokerError,
    ClientClosedError,
    ConfigError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicError,
)
from streams.core.serdes.serdes import time_windowed
from streams.core.topic import Topic
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    Metadata,
    MetadataResponse,
    Produce,
    Produced,
    ProduceResponse,
    TopicMetadata,
    TopicSpec,
)
from tests import waiting

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)
typed = Topic("t", key=str, value=int)


@pytest.fixture
def make(broker, clock):
    """Make producers."""

    def make(cluster=None, **settings):
        return Producer(cluster or broker, clock=clock, **settings)

    return make


def read(broker, partition=P0):
    """All (key, value) of a partition."""
    return [(key, value) for block in broker.read(partition, 0) for _, key, value, _, _ in block.rows()]


def requests(cluster):
    return [request for request in cluster.sent if isinstance(request, Produce)]


def test_record_goes_by_its_key_and_its_place_is_told(broker, make, clock):
    producer = make()

    delivery = producer.send(typed, 7, key="a", timestamp_ms=5)

    number = partition_for(b"a", 2)
    assert delivery.result() == RecordMetadata("t", number, 0)
    assert read(broker, TopicPartition("t", number)) == [(b"a", (7).to_bytes(8, "big"))]
    assert producer.send(typed, 8, key="a").base_offset() == 1


def test_windowed_keys_go_by_their_inner_key(broker, make):
    topic = Topic("t", key=time_windowed(str, timedelta(seconds=1)), value=int)

    delivery = make().send(topic, 1, key=Windowed("a", Window(0, 10)))

    assert delivery.result().partition == partition_for(b"a", 2)


def test_blocks_keep_their_order_and_tell_their_first_offset(broker, make):
    producer = make()
    blocks = [Block([None] * 3, [b"%d%d" % (block, row) for row in range(3)], [0] * 3) for block in range(4)]

    deliveries = [producer.send_block(P0, block) for block in blocks]
    producer.flush()

    assert [delivery.base_offset() for delivery in deliveries] == [0, 3, 6, 9]
    assert [value for _, value in read(broker)] == [value for block in blocks for value in block.values]
    assert producer.send_block(P0, Block([], [], [])).done()


def test_offsets_of_a_block_are_ignored_also_over_tcp():
    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0") as server:
        broker.create_topic("t")
        with Producer(bootstrap_servers=server.bootstrap_servers) as producer:
            for offsets in ([5, 7, 40], range(3, 6)):
                producer.send_block(P0, Block([None] * 3, [b"a", b"b", b"c"], [0, 0, 0], None, offsets))

        assert [value for _, value in read(broker)] == [b"a", b"b", b"c"] * 2


def test_blocks_that_others_follow_share_a_request(broker, make, cluster):
    producer = make(cluster)
    block = Block([None], [b"v"], [0])

    producer.send_block(P0, block, has_more=True)
    producer.send_block(TopicPartition("t", 1), block, has_more=True)
    assert requests(cluster) == []
    assert producer.has_outstanding
    producer.send_block(P0, block)

    assert len(requests(cluster)) == 1
    producer.flush()
    assert broker.end_offset(P0) == 2


def test_blocks_that_are_much_do_not_wait_for_others(make, cluster):
    make(cluster).send_block(P0, Block([None], [bytes(300_000)], [0]), has_more=True)

    assert len(requests(cluster)) == 1


def test_batch_waits_for_linger_then_goes_as_one(broker, make, cluster, clock):
    producer = make(cluster, linger_ms=50)
    deliveries = [producer.send("t", b"%d" % n, partition=0) for n in range(3)]
    producer.poll()
    assert requests(cluster) == []

    clock.advance(50)
    producer.poll()

    assert len(requests(cluster)) == 1
    assert [delivery.result().offset for delivery in deliveries] == [0, 1, 2]


def test_full_batch_does_not_wait(make, cluster):
    producer = make(cluster, linger_ms=1_000, batch_size_bytes=200)
    for _ in range(3):
        producer.send("t", b"x" * 100, partition=0)

    producer.poll()

    assert len(requests(cluster)) == 1


def test_waiting_for_a_result_ends_the_linger(make):
    producer = make(linger_ms=60_000)

    assert producer.send("t", b"v", partition=1).result() == RecordMetadata("t", 1, 0)


def test_records_without_key_stay_together_in_a_batch_and_change_with_the_next(broker, make):
    producer = make(linger_ms=10)
    for _ in range(4):
        for _ in range(3):
            producer.send("t", b"v")
        producer.flush()

    assert [len(read(broker, p)) for p in (P0, P1)] == [6, 6]


def test_block_and_records_of_a_partition_keep_their_order(broker, make):
    producer = make(linger_ms=1_000)
    producer.send("t", b"1", partition=0)
    producer.send_block(P0, Block([None], [b"2"], [0]))
    producer.send("t", b"3", partition=0)
    producer.flush()

    assert [value for _, value in read(broker)] == [b"1", b"2", b"3"]


def test_order_is_kept_over_retries(broker, make, cluster, clock, first_of):
    cluster.fails = first_of(3, Produce)
    producer = make(cluster)
    deliveries = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(20)]

    for _ in range(10):
        producer.poll()
        clock.advance(100)

    assert all(delivery.done() for delivery in deliveries)
    for partition in (0, 1):
        numbers = [int(value) for _, value in read(broker, TopicPartition("t", partition))]
        assert numbers == list(range(partition, 20, 2))


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_lost_acknowledgement_is_retried(broker, make, cluster, clock, first_of, is_idempotent):
    """Appended already: an idempotent producer's record is recognized, another one's is there twice."""
    cluster.loses_answer = first_of(1, Produce)
    producer = make(cluster, enable_idempotence=is_idempotent)
    delivery = producer.send("t", b"v", partition=0)
    assert not delivery.done()

    clock.advance(100)
    producer.flush()

    assert delivery.result().offset == (0 if is_idempotent else 1)
    assert len(read(broker)) == (1 if is_idempotent else 2)


def numbers_of(broker, partition=P0):
    return [int(value) for _, value in read(broker, partition)]


class Shuffled:
    """A way to the broker on which requests and answers are lost, doubled and overtake each other."""

    def __init__(self, broker, clock, rng):
        self.broker, self.clock, self.rng = broker, clock, rng

    def connect(self, client_id):
        inner, rng, clock = self.broker.connect(client_id), self.rng, self.clock
        requests, answers, numbers, count = [], [], {}, [0]

        class Connection:
            def send(self, node_id, request):
                count[0] += 1
                for _ in range(rng.choice([0, 1, 1, 1, 1, 2])):
                    requests.append((clock.monotonic_ms() + rng.randrange(300), count[0], node_id, request))
                return count[0]

            def poll(self, timeout_ms):
                now = clock.monotonic_ms()
                for entry in [entry for entry in requests if entry[0] <= now]:
                    requests.remove(entry)
                    numbers[inner.send(entry[2], entry[3])] = entry[1]
                for number, answer in inner.poll(0):
                    if rng.random() < 0.85:
                        answers.append((now + rng.randrange(300), numbers.pop(number), answer))
                due = [entry for entry in answers if entry[0] <= now]
                for entry in due:
                    answers.remove(entry)
                rng.shuffle(due)
                return [(number, answer) for _, number, answer in due]

            wakeup = inner.wakeup
            close = inner.close
            give_up = inner.give_up
            traits = inner.traits
            outage = None

        return Connection()


@pytest.mark.parametrize("seed", range(40))
def test_idempotent_records_are_there_once_and_in_order_whatever_the_network_does(broker, make, clock, seed):
    rng = Random(seed)
    producer = make(Shuffled(broker, clock, rng), request_timeout_ms=500, batch_size_bytes=100)
    # What is looked up before the first record is looked up here: that call would wait for ever.
    deliveries = []
    for n in range(60):
        block = Block([None] * 3, [b"%d" % (3 * n + i) for i in range(3)], [0] * 3)
        deliveries.append(producer.send_block(TopicPartition("t", n % 2), block))
        clock.advance(rng.randrange(40))
        producer.poll()
    for _ in range(3_000):
        if all(delivery.done() for delivery in deliveries):
            break
        clock.advance(20)
        producer.poll()

    assert all(delivery.exception() is None for delivery in deliveries)
    for number in (0, 1):
        expected = [3 * n + i for n in range(number, 60, 2) for i in range(3)]
        assert numbers_of(broker, TopicPartition("t", number)) == expected
    for delivery, n in zip(deliveries, range(60), strict=True):
        assert delivery.base_offset() == n // 2 * 3


def muted(cluster, is_mute):
    """A way to the cluster that holds all answers to records back while ``is_mute[0]`` is True."""

    class Mute:
        def connect(self, client_id):
            inner = cluster.connect(client_id)
            held = []

            class Connection:
                send = inner.send
                traits = inner.traits
                outage = None
                wakeup = inner.wakeup
                close = inner.close
                give_up = inner.give_up

                def poll(self, timeout_ms):
                    arrived = inner.poll(0)
                    held.extend(pair for pair in arrived if is_mute[0] and isinstance(pair[1], ProduceResponse))
                    if is_mute[0]:
                        return [pair for pair in arrived if pair not in held]
                    released = arrived + held
                    held.clear()
                    # The last sent is answered first.
                    return released[::-1]

            return Connection()

    return Mute()


def test_several_requests_of_a_partition_are_under_way_at_once(make, cluster):
    """The first is awaited alone: before it the broker would take any number for the first."""
    is_mute = [False]
    producer = make(muted(cluster, is_mute), max_in_flight_requests=3)
    producer.send("t", b"0", partition=0).result()
    is_mute[0] = True
    deliveries = [producer.send("t", b"%d" % n, partition=0) for n in range(1, 9)]

    assert len(requests(cluster)) == 1 + 3

    is_mute[0] = False
    assert [delivery.result().offset for delivery in deliveries] == list(range(1, 9))
    stamps = [block.producer for request in requests(cluster) for block in request.blocks[P0]]
    assert [stamp.sequence for stamp in stamps[:4]] == [0, 1, 2, 3]


def test_requests_of_all_partitions_together_are_not_more_than_may_be_under_way(make, cluster):
    is_mute = [True]
    producer = make(muted(cluster, is_mute), max_in_flight_requests=1)
    deliveries = [producer.send("t", b"%d" % number, partition=number) for number in range(2)]
    producer.poll()

    assert len(requests(cluster)) == 1

    is_mute[0] = False
    assert [delivery.result().offset for delivery in deliveries] == [0, 0]


def test_numbers_begin_anew_where_a_record_was_given_up(broker, make, clock):
    """A record that is too large leaves a hole in the numbers: the next epoch has none."""
    broker.create_topic("small", partitions=1, config={"max.message.bytes": "500"})
    producer = make()
    small = TopicPartition("small", 0)
    assert producer.send("small", b"a", partition=0).result().offset == 0
    assert isinstance(producer.send("small", b"x" * 600, partition=0).exception(), RecordTooLargeError)

    assert producer.send("small", b"b", partition=0).result().offset == 1

    epochs = [block.producer.epoch for block in broker.read(small, 0)]
    assert epochs == [0, 1]


def test_record_above_the_largest_request_is_refused_at_once(make):
    with pytest.raises(RecordTooLargeError, match="max_request_bytes"):
        make(max_request_bytes=1_000).send("t", b"x" * 1_000, partition=0)


def test_full_buffer_holds_the_sender_up(make, cluster, clock):
    cluster.fails = lambda request: isinstance(request, Produce)
    producer = make(cluster, buffer_memory_bytes=1_000, max_block_ms=500)
    producer.send("t", b"x" * 900, partition=0)
    with pytest.raises(RequestTimeoutError, match="buffer_memory_bytes=1000"):
        producer.send("t", b"x" * 900, partition=0)

    cluster.fails = lambda request: False
    clock.advance(1_000)
    second = producer.send("t", b"y" * 900, partition=0)

    assert second.result().offset == 1


def test_way_to_the_broker_that_raises_anything_is_tried_again(broker, make, clock):
    class Broken:
        def connect(self, client_id):
            inner = broker.connect(client_id)
            failures = [RuntimeError("broken"), ValueError("broken")]

            class Connection:
                poll = inner.poll
                traits = inner.traits
                outage = None
                wakeup = inner.wakeup
                close = inner.close
                give_up = inner.give_up

                def send(self, node_id, request):
                    if isinstance(request, Produce) and failures:
                        raise failures.pop()
                    return inner.send(node_id, request)

            return Connection()

    producer = make(Broken())
    delivery = producer.send("t", b"v", partition=0)
    for _ in range(3):
        clock.advance(1_000)
        producer.poll()

    assert delivery.result().offset == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_blocks_name_the_codec_that_the_producer_asks_for(make, cluster, codec):
    make(cluster, compression_type=codec).send("t", b"v", partition=0).result()

    assert [block.compression for block in requests(cluster)[0].blocks[P0]] == [codec]


def test_undeliverable_record_fails_in_time(make, cluster, clock):
    cluster.fails = lambda request: isinstance(request, Produce)
    producer = make(cluster, delivery_timeout_ms=5_000)
    delivery = producer.send("t", b"v", partition=0)
    with pytest.raises(RequestTimeoutError):
        producer.flush(timeout_ms=1_000)
    for _ in range(60):
        clock.advance(100)
        producer.poll()

    assert isinstance(delivery.exception(), RequestTimeoutError)
    with pytest.raises(RequestTimeoutError):
        producer.flush()
    producer.flush()


def test_only_the_record_that_is_too_large_fails(broker, make):
    broker.create_topic("small", partitions=1, config={"max.message.bytes": "500"})
    producer = make(linger_ms=1_000, batch_size_bytes=100_000)
    sizes = [10, 20, 5_000, 30, 40]
    deliveries = [producer.send("small", b"x" * size, partition=0) for size in sizes]
    block = producer.send_block(TopicPartition("small", 0), Block([None] * 2, [b"y", b"y" * 5_000], [0, 0]))
    after = producer.send("small", b"z", partition=0)

    with pytest.raises(RecordTooLargeError):
        producer.flush()

    assert [delivery.exception() is None for delivery in deliveries] == [True, True, False, True, True]
    assert isinstance(deliveries[2].exception(), RecordTooLargeError)
    assert isinstance(block.exception(), RecordTooLargeError)
    stored = [len(value) for _, value in read(broker, TopicPartition("small", 0))]
    assert stored == [10, 20, 30, 40, 1], "a block stands or falls as a whole"
    assert after.result().offset == 4


def test_block_that_is_larger_than_a_request_is_written_in_pieces(broker, make, cluster):
    values = [b"%d" % number * 300 for number in range(10)]
    delivery = make(cluster, max_request_bytes=1_000).send_block(P0, Block([None] * 10, values, [0] * 10))

    assert delivery.result().offset == 0
    assert [value for _, value in read(broker)] == values
    assert len(requests(cluster)) > 2


def test_refused_record_of_a_block_is_told_and_all_others_are_written(broker, make, cluster):
    broker.create_topic("small", partitions=1, config={"max.message.bytes": "500"})
    producer, small, refused = make(cluster), TopicPartition("small", 0), []

    producer.send_block(
        small,
        Block([None] * 3, [b"a", b"x" * 600, b"b"], [0] * 3),
        on_refused=lambda block, error: refused.append((list(block.values), type(error))),
    )
    for _ in range(20):
        producer.poll()

    assert refused == [([b"x" * 600], RecordTooLargeError)]
    assert [value for _, value in read(broker, small)] == [b"a", b"b"]


def test_look_up_that_fails_is_repeated_at_growing_intervals(make, cluster, clock):
    times_ms = []

    def fails(request):
        if isinstance(request, Metadata):
            times_ms.append(clock.monotonic_ms())
        return isinstance(request, Metadata)

    cluster.fails = fails
    producer = make(cluster, retry_backoff_ms=100, retry_backoff_max_ms=800)
    producer.send_block(P0, Block([None], [b"v"], [0]))
    for _ in range(400):
        producer.poll()
        clock.advance(10)

    assert [later - earlier for earlier, later in pairwise(times_ms)][:6] == [100, 200, 400, 800, 800, 800]


def test_partition_without_a_leader_exists_and_is_sent_to_nobody():
    metadata = MetadataCache()
    metadata.update(MetadataResponse({1: "localhost:9092"}, [TopicMetadata("t", ErrorCode.NONE, (-1, 1))], 1), ["t"])

    assert [metadata.leader(at) for at in (P0, P1, TopicPartition("t", 2))] == [None, 1, None]
    assert metadata.exists(P0)


def test_unknown_topic_and_partition_are_named(make):
    producer = make()

    with pytest.raises(UnknownTopicError, match="absent"):
        producer.send("absent", b"v")
    with pytest.raises(UnknownTopicError, match="2 partitions"):
        producer.send("t", b"v", partition=2)
    delivery = producer.send_block(TopicPartition("t", 9), Block([None], [b"v"], [0]))
    with pytest.raises(UnknownTopicError, match="t-9"):
        delivery.result()


def unknown_to_leader(cluster, count):
    """Let the first ``count`` leaders that are written to not know the partition yet, as in a cluster."""
    cluster.traits = SEVERAL_BROKERS
    left = [count]

    def answer(request):
        if not isinstance(request, Produce) or left[0] == 0:
            return None
        left[0] -= 1
        return ProduceResponse(dict.fromkeys(request.blocks, Produced(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))

    cluster.answers = answer


def test_leader_that_does_not_know_a_new_partition_yet_is_asked_again(broker, make, cluster, clock):
    unknown_to_leader(cluster, 3)
    producer = make(cluster)
    delivery = producer.send("t", b"v", partition=0)

    waiting.until(delivery.done, lambda: (clock.advance(50), producer.poll()))

    assert delivery.result().offset == 0
    assert read(broker) == [(None, b"v")]
    assert len(requests(cluster)) == 4


def test_partition_that_another_broker_does_not_describe_yet_is_waited_for(broker, make, cluster, clock):
    broker.create_topic("grown", partitions=1)
    with Admin(broker) as admin:
        unknown_to_leader(cluster, 1)
        producer = make(cluster)
        delivery = producer.send_block(TopicPartition("grown", 1), Block([None], [b"v"], [0]))
        clock.advance(1_000)
        producer.poll()
        assert not delivery.done()

        admin.create_partitions({"grown": 2})
        waiting.until(delivery.done, lambda: (clock.advance(50), producer.poll()))

    assert delivery.result() == RecordMetadata("grown", 1, 0)


def test_partition_that_no_broker_describes_is_an_error_soon(make, cluster, clock):
    cluster.traits = SEVERAL_BROKERS
    producer = make(cluster)
    began_ms = clock.monotonic_ms()
    delivery = producer.send_block(TopicPartition("t", 9), Block([None], [b"v"], [0]))

    waiting.until(delivery.done, lambda: (clock.advance(50), producer.poll()))

    with pytest.raises(UnknownTopicError, match=r"t-9.*2 partitions"):
        delivery.result()
    assert SEVERAL_BROKERS.settling_ms <= clock.monotonic_ms() - began_ms < 2 * SEVERAL_BROKERS.settling_ms


@pytest.mark.parametrize("chosen", [2, -1, "1", None, True])
def test_partitioner_that_chooses_nonsense_is_named(make, chosen):
    producer = make(partitioner=lambda topic, key, value, count: chosen)

    with pytest.raises(PartitionerError, match=f"chose {chosen!r}.*2 partitions"):
        producer.send("t", b"v")


def test_partitioner_of_the_user_decides(broker, make):
    producer = make(partitioner=lambda topic, key, value, count: len(value) % count)
    producer.send("t", b"odd")
    producer.send("t", b"even")

    assert [value for _, value in read(broker, P1)] == [b"odd"]


def test_names_take_bytes_only(make):
    with pytest.raises(SerializationError, match="pass a Topic"):
        make().send("t", "text")


@pytest.mark.parametrize(("traits", "kind"), [(ONE_BROKER, BrokerError), (SEVERAL_BROKERS, RequestTimeoutError)])
def test_storage_that_fails_is_told_and_nothing_acknowledged(make, cluster, clock, traits, kind):
    """The broker says that its disk is full; it is not asked for ever, and nothing waits for it afterwards."""
    traits_of_cluster = traits

    class FullDisk:
        def connect(self, client_id):
            inner = cluster.connect(client_id)
            answers = []

            class Connection:
                traits = traits_of_cluster

                def send(self, node_id, request):
                    if isinstance(request, Produce):
                        answers.append(
                            ProduceResponse(
                                dict.fromkeys(request.blocks, Produced(ErrorCode.STORAGE_ERROR, message="disk full"))
                            )
                        )
                        return -len(answers)
                    return inner.send(node_id, request)

                def poll(self, timeout_ms):
                    clock.advance(timeout_ms)
                    taken = [(-n - 1, answer) for n, answer in enumerate(answers) if answer is not None]
                    answers[:] = [None] * len(answers)
                    return taken + inner.poll(0)

                outage = None
                wakeup = inner.wakeup
                close = inner.close
                give_up = inner.give_up

            return Connection()

    producer = make(FullDisk())
    delivery = producer.send("t", b"v", partition=0)

    with pytest.raises(kind, match="disk full") as error:
        producer.flush(200_000)

    assert delivery.exception() is error.value
    assert producer.storage_failures == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"timestamp_ms": 1.5}, "topic 't': timestamp_ms must be an int of epoch milliseconds, not 1.5 of type float"),
        ({"timestamp_ms": datetime(2026, 1, 1)}, "use int.seconds . 1000., which for a datetime is"),
        ({"timestamp_ms": -1}, "topic 't': timestamp_ms must be from 0 .1970. to 9223372036854775807 .*, not -1;"),
        ({"timestamp_ms": 2**63}, "topic 't': timestamp_ms must be from 0 .1970. to 9223372036854775807"),
        ({"headers": {"trace": b"t1"}}, "topic 't': headers must be pairs of text and bytes"),
        ({"headers": [("trace", "t1")]}, "topic 't': headers must be pairs of text and bytes"),
        ({"headers": [("\ud800", b"")]}, "topic 't': headers must be pairs of text and bytes"),
    ],
)
def test_time_and_headers_that_no_record_has_are_refused(make, broker, given, message):
    with pytest.raises(SerializationError, match=message):
        make().send(typed, 7, key="a", **given)

    assert read(broker) == read(broker, P1) == []


def test_callbacks_run_when_done_and_may_send(broker, make):
    producer = make(linger_ms=1_000)
    places = []

    def again(delivery):
        places.append(delivery.result().offset)
        if len(places) < 3:
            producer.send("t", b"again", partition=0).add_done_callback(again)

    producer.send("t", b"first", partition=0).add_done_callback(again)
    for _ in range(3):
        producer.flush()

    assert places == [0, 1, 2]
    assert len(read(broker)) == 3


@pytest.mark.parametrize("partition", ["1", 1.0, True])
def test_partition_of_another_type_is_refused(make, broker, partition):
    with pytest.raises(ConfigError, match="topic 't': partition must be an int, not"):
        make().send("t", b"x", partition=partition)

    assert read(broker) == read(broker, P1) == []


def test_callback_that_fails_is_logged_and_concerns_nobody_else(broker, make, caplog):
    """Its error came out of the send of another record, and callbacks after it were not called."""
    producer = make(linger_ms=1_000)
    places = []

    def failing(delivery):
        raise ValueError("no such user")

    first = producer.send("t", b"first", partition=0)
    first.add_done_callback(failing)
    first.add_done_callback(lambda delivery: places.append(delivery.result().offset))
    producer.flush()
    first.add_done_callback(failing)

    assert places == [0]
    assert [record.getMessage() for record in caplog.records] == ["a callback of the delivery to t-0 has failed"] * 2
    assert "no such user" in caplog.text


def test_added_partitions_are_used_when_metadata_has_grown_old(broker, make, clock, cluster):
    producer = make(cluster, metadata_max_age_ms=1_000)
    assert producer.partition_count("t") == 2
    asked = sum(isinstance(request, Metadata) for request in cluster.sent)
    assert producer.partition_count("t") == 2
    assert sum(isinstance(request, Metadata) for request in cluster.sent) == asked

    Admin(broker, clock=clock).create_partitions({"t": 3})
    clock.advance(1_001)

    assert producer.partition_count("t") == 3


def test_counts_of_several_topics_are_asked_for_with_one_request(broker, make, clock, cluster):
    """A batch of an application may go to a score of new topics; one after the other takes longer than a session."""
    names = [f"t{number}" for number in range(20)]
    Admin(broker, clock=clock).create_topics([TopicSpec(name, 3) for name in names])
    producer = make(cluster)

    def lookups():
        return [request.topics for request in cluster.sent if isinstance(request, Metadata)]

    before = len(lookups())
    assert producer.partition_counts([*names, "t"]) == [3] * 20 + [2]
    assert [sorted(topics) for topics in lookups()[before:]] == [sorted([*names, "t"])]


def test_a_topic_that_is_missing_among_others_is_named(make):
    with pytest.raises(UnknownTopicError, match="missing"):
        make().partition_counts(["t", "missing"])


def test_close_flushes_and_refuses_more(broker, make):
    producer = make(linger_ms=1_000)
    delivery = producer.send("t", b"v", partition=0)
    producer.close()
    producer.close()

    assert delivery.done()
    assert len(read(broker)) == 1
    with pytest.raises(ClientClosedError):
        producer.send("t", b"v")


def test_settings_that_do_not_fit_are_refused(make):
    with pytest.raises(ConfigError, match="broker"):
        Producer()
    with pytest.raises(ConfigError):
        make(linger_ms=-1)
    with pytest.raises(ConfigError, match="acks='1'"):
        make(enable_idempotence=True, acks=1)
    with pytest.raises(ConfigError, match="max_in_flight_requests=6"):
        make(transactional_id="x", max_in_flight_requests=6)
    with pytest.raises(ConfigError, match="expected none or gzip or snappy or lz4 or zstd, not 'lzo'"):
        make(compression_type="lzo")


def test_records_above_a_limit_are_found_wherever_they_are_in_a_block():
    for place in (0, 1, 499, 999):
        values = [b"v" * 10] * 1000
        values[place] = b"v" * 2000
        block = Block([b"k"] * 1000, values, [1] * 1000)

        assert oversized(block, 1500) == [place]
        assert oversized(block, 3000) == []
    with_headers = Block([None], [b""], [1], [(("h", b"x" * 900),)])
    assert oversized(with_headers, 500) == [0]
