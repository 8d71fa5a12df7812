"""Consumers, producers and admin clients push their metrics to brokers that subscribe to them (KIP-714)."""

from collections import Counter
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA, MetricsData

from streams import Consumer, EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic
from streams.broker import PushedMetrics
from streams.clients import Admin, Network, RequestTimeoutError, ShareConsumer
from streams.core.clock import SystemClock, VirtualClock
from streams.core.errors import ConfigError
from streams.core.records import Block, TopicPartition
from streams.core.threads import SystemThreads
from streams.protocol.admin_messages import (
    ChangedConfigs,
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
    ResourceType,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.telemetry_messages import (
    GetTelemetrySubscriptions,
    PushTelemetry,
    PushTelemetryResponse,
)
from streams.protocol.transport import ANY_NODE
from tests.clients.conftest import FaultyCluster
from tests.waiting import until

WORDS = Topic("words", key=str, value=str)


class World:
    """A broker that takes metrics, on a virtual clock; ``sent`` has the requests of its clients."""

    def __init__(self, metrics: str = "*", interval_ms: int = 1_000) -> None:
        self.clock = VirtualClock(1_000_000)
        self.taken: list[PushedMetrics] = []
        self.broker = EmbeddedBroker(clock=self.clock, metrics_receiver=self.taken.append)
        self.cluster = FaultyCluster(self.broker)
        subscribe(self.broker, self.clock, metrics, interval_ms)

    @property
    def sent(self) -> list[type]:
        kinds = (GetTelemetrySubscriptions, PushTelemetry)
        return [type(request) for request in self.cluster.sent if isinstance(request, kinds)]

    def metrics(self, index: int) -> dict[str, Any]:
        """The metrics of a push by name; a metric with several points has the last."""
        data = MetricsData.FromString(self.taken[index].metrics)
        return {
            metric.name: metric
            for of_client in data.resource_metrics
            for scope in of_client.scope_metrics
            for metric in scope.metrics
        }

    def sum_of(self, name: str) -> list[int]:
        """The value of a counter in each push that has it."""
        found = (self.metrics(index).get(name) for index in range(len(self.taken)))
        return [metric.sum.data_points[-1].as_int for metric in found if metric is not None]

    def labels(self, index: int) -> dict[str, str]:
        data = MetricsData.FromString(self.taken[index].metrics)
        return {row.key: row.value.string_value for row in data.resource_metrics[0].resource.attributes}


def subscribe(broker: EmbeddedBroker, clock: Any, metrics: str = "*", interval_ms: int = 1_000) -> None:
    network = Network(broker.connect("admin"), clock)
    changes = [
        ConfigChange("metrics", ConfigOperation.SET, metrics),
        ConfigChange("interval.ms", ConfigOperation.SET, str(interval_ms)),
    ]
    network.request(ANY_NODE, IncrementalAlterConfigs([ChangedConfigs(ResourceType.CLIENT_METRICS, "all", changes)]))
    network.close()


@pytest.fixture
def world():
    found = World()
    with found.broker:
        found.broker.create_topic("words")
        yield found


def consumer_of(world, **settings):
    consumer = Consumer(world.cluster, "readers", clock=world.clock, auto_offset_reset="earliest", **settings)
    consumer.subscribe([WORDS])
    return consumer


def run(world, client, ms, step=50):
    for _ in range(0, ms, step):
        client.poll(0)
        world.clock.advance(step)


def test_a_consumer_pushes_at_the_interval_and_when_it_closes(world):
    with consumer_of(world, client_rack="r1") as consumer:
        run(world, consumer, 20_000)
        member_id = consumer.group_metadata.member_id
    # The first push comes after half to one and a half intervals, the others after one each.
    assert world.sent[0] is GetTelemetrySubscriptions
    assert Counter(world.sent) in (
        {GetTelemetrySubscriptions: 1, PushTelemetry: 20},
        {GetTelemetrySubscriptions: 1, PushTelemetry: 21},
        {GetTelemetrySubscriptions: 1, PushTelemetry: 19},
    )
    assert [taken.is_terminating for taken in world.taken] == [False] * (len(world.taken) - 1) + [True]
    # The last one is pushed after the consumer has left its group.
    assert world.labels(-2) == {"group_id": "readers", "group_member_id": member_id, "client_rack": "r1"}
    assert {taken.client.client_id for taken in world.taken} == {"consumer"}
    assert len({taken.client_instance_id for taken in world.taken}) == 1


def test_a_share_consumer_pushes_what_it_gets_and_acknowledges(world):
    with Admin(world.cluster, clock=world.clock) as admin:
        admin.alter_group_configs("workers", {"share.auto.offset.reset": "earliest"})
    with Producer(world.cluster, clock=world.clock, enable_metrics_push=False) as producer:
        for number in range(5):
            producer.send(WORDS, str(number), partition=0)
    consumer = ShareConsumer(world.cluster, "workers", clock=world.clock, background_heartbeat=False)
    consumer.subscribe([WORDS])
    instance_id = consumer.client_instance_id()
    got = -5

    def turn():
        nonlocal got
        got += len(consumer.poll(0))
        world.clock.advance(50)

    # Nothing is recorded before a broker subscribes; the records that are written from now on are counted.
    until(lambda: got == 0 and world.taken, turn)
    world.broker.append(TopicPartition("words", 0), Block([None] * 7, [b"x"] * 7, [0] * 7))
    until(lambda: got == 7, turn)
    # The next polls accept them.
    run(world, consumer, 1_000)
    member_id = consumer._member_id()
    consumer.close()

    assert {(taken.client_instance_id, taken.client.client_id) for taken in world.taken} == {
        (instance_id, "share-consumer")
    }
    assert world.labels(0) == {"group_id": "workers", "group_member_id": member_id}
    name = "org.apache.kafka.consumer.share.fetch.manager."
    assert sum(world.sum_of(f"{name}records.consumed.total")) in (7, 12)
    assert sum(world.sum_of(f"{name}acknowledgements.send.total")) in (7, 12)
    assert sum(world.sum_of(f"{name}acknowledgements.error.total")) == 0
    assert sum(world.sum_of(f"{name}fetch.total")) > 0


def test_sums_are_those_since_the_last_push_that_was_taken(world):
    with Producer(world.cluster, clock=world.clock) as producer:
        counts = []

        def push():
            before = len(world.taken)
            while len(world.taken) == before:
                world.clock.advance(100)
                producer.poll()
            found = world.metrics(-1)["org.apache.kafka.producer.record.send.total"].sum
            assert found.is_monotonic
            assert found.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
            (point,) = found.data_points
            counts.append((point.as_int, point.time_unix_nano - point.start_time_unix_nano))

        producer.poll()
        push()
        for number in (3, 0, 5):
            for _ in range(number):
                producer.send(WORDS, "x", key="k").result()
            push()
        assert [count for count, _ in counts] == [0, 3, 0, 5]
        assert all(span > 0 for _, span in counts)
        # What was not taken is in the next push.
        errors = [PushTelemetryResponse(ErrorCode.THROTTLING_QUOTA_EXCEEDED)]
        world.cluster.answers = lambda request: errors.pop() if isinstance(request, PushTelemetry) and errors else None
        producer.send(WORDS, "x", key="k").result()
        while errors:
            world.clock.advance(100)
            producer.poll()
        producer.send(WORDS, "x", key="k").result()
        push()
        assert counts[-1][0] == 2


def test_only_what_is_subscribed_to_is_pushed():
    world = World("org.apache.kafka.consumer.fetch.manager.,org.apache.kafka.producer.")
    with world.broker, consumer_of(world) as consumer:
        run(world, consumer, 3_000)
        names = set(world.metrics(-1))
    assert names
    assert all(name.startswith("org.apache.kafka.consumer.fetch.manager.") for name in names)


def test_nothing_is_recorded_before_a_broker_subscribes():
    world = World("")
    with world.broker, consumer_of(world) as consumer:
        run(world, consumer, 5_000)
        assert not consumer._parts.sensors.is_on
    assert set(world.sent) == {GetTelemetrySubscriptions}
    assert world.taken == []


@pytest.mark.parametrize(
    ("error", "asks_again"),
    [
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "at once"),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "at once"),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "later"),
        (ErrorCode.TELEMETRY_TOO_LARGE, "later"),
        (ErrorCode.INVALID_REQUEST, "never"),
        (ErrorCode.INVALID_RECORD, "never"),
        (ErrorCode.UNSUPPORTED_VERSION, "never"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "never"),
    ],
)
def test_a_rejected_push_is_followed_by_what_the_error_asks_for(world, error, asks_again, caplog):
    errors = [PushTelemetryResponse(error)]
    world.cluster.answers = lambda request: errors.pop() if isinstance(request, PushTelemetry) and errors else None
    with consumer_of(world) as consumer:
        while errors:
            run(world, consumer, 50)
        pushed_ms = world.clock.monotonic_ms()
        for _ in range(400):
            consumer.poll(0)
            if world.sent[-1] is GetTelemetrySubscriptions:
                break
            world.clock.advance(50)
        waited_ms = world.clock.monotonic_ms() - pushed_ms
        is_asked = world.sent[-1] is GetTelemetrySubscriptions
    assert {"at once": is_asked and waited_ms < 500, "later": is_asked and waited_ms >= 900, "never": not is_asked}[
        asks_again
    ]
    assert ("metrics are not pushed" in caplog.text) == (asks_again == "never")


def test_lost_connections_do_not_end_it(world):
    rejected = []

    def fails(request):
        is_lost = isinstance(request, (GetTelemetrySubscriptions, PushTelemetry)) and len(rejected) < 4
        if is_lost:
            rejected.append(request)
        return is_lost

    world.cluster.fails = fails
    with consumer_of(world) as consumer:
        for _ in range(10):
            run(world, consumer, 300_000, 1_000)
            if world.taken:
                break
    assert len(rejected) == 4
    assert world.taken


def test_a_client_instance_id_is_the_one_that_pushes(world):
    with consumer_of(world) as consumer, Producer(world.cluster, clock=world.clock) as producer:
        ids = [consumer.client_instance_id(), producer.client_instance_id()]
        assert consumer.client_instance_id() == ids[0]
        run(world, consumer, 3_000)
    with Admin(world.cluster, clock=world.clock) as admin:
        ids.append(admin.client_instance_id())
    assert len(set(ids)) == 3
    assert {taken.client_instance_id for taken in world.taken} == set(ids[:2])


def test_without_a_push_there_is_no_id(world):
    with consumer_of(world, enable_metrics_push=False) as consumer:
        run(world, consumer, 5_000)
        with pytest.raises(ConfigError, match="enable_metrics_push is False"):
            consumer.client_instance_id()
    with Admin(world.cluster, clock=world.clock, enable_metrics_push=False) as admin:
        with pytest.raises(ConfigError, match="enable_metrics_push is False"):
            admin.client_instance_id()
    assert world.sent == []


def test_a_broker_that_takes_no_metrics_is_asked_nothing():
    clock = VirtualClock(1_000_000)
    with EmbeddedBroker(clock=clock) as broker:
        cluster = FaultyCluster(broker)
        broker.create_topic("words")
        with Consumer(cluster, "readers", clock=clock) as consumer:
            consumer.subscribe([WORDS])
            for _ in range(100):
                consumer.poll(0)
                clock.advance(100)
            with pytest.raises(RequestTimeoutError, match="no broker that it is connected to takes metrics"):
                consumer.client_instance_id(1_000)
        kinds = (GetTelemetrySubscriptions, PushTelemetry)
        assert not any(isinstance(request, kinds) for request in cluster.sent)


def counts(builder: StreamsBuilder) -> None:
    builder.stream(WORDS).group_by_key().count("counts")


@pytest.mark.parametrize("is_remote", [False, True])
def test_an_application_pushes_the_metrics_of_its_threads(is_remote):
    taken: list[PushedMetrics] = []
    with EmbeddedBroker(metrics_receiver=taken.append) as broker, broker.serve("127.0.0.1:0") as server:
        broker.create_topic("words")
        subscribe(broker, SystemClock(), "*", 100)
        place = {"bootstrap_servers": server.bootstrap_servers} if is_remote else {"broker": broker}
        with Streams(counts, application_id="app", num_stream_threads=2, **place) as streams:
            ids = streams.client_instance_ids()
            pushing = {found for name, found in ids.consumers.items() if name.endswith(("thread-1", "thread-2"))}
            assert len(pushing) == 2
            until(lambda: pushing <= {pushed.client_instance_id for pushed in list(taken)})
    names = Counter(
        metric.name
        for pushed in taken
        if not pushed.is_terminating
        for of_client in MetricsData.FromString(pushed.metrics).resource_metrics
        for metric in of_client.scope_metrics[0].metrics
    )
    assert names["org.apache.kafka.stream.thread.poll.total"]
    assert names["org.apache.kafka.stream.client.state"]
    assert names["org.apache.kafka.consumer.fetch.manager.records.consumed.total"]


def test_an_application_that_pushes_nothing_has_no_ids():
    with EmbeddedBroker() as broker:
        broker.create_topic("words")
        with Streams(counts, application_id="app", broker=broker, enable_metrics_push=False) as streams:
            with pytest.raises(ConfigError, match="enable_metrics_push is False"):
                streams.client_instance_ids()


def test_threads_that_send_and_one_that_asks_for_the_id_share_a_producer():
    taken: list[PushedMetrics] = []
    with EmbeddedBroker(metrics_receiver=taken.append) as broker, broker.serve("127.0.0.1:0") as server:
        broker.create_topic("words")
        subscribe(broker, SystemClock(), "*", 100)
        ids: list[str] = []
        with Producer(bootstrap_servers=server.bootstrap_servers, linger_ms=1) as producer:

            def send() -> None:
                for _ in range(300):
                    producer.send(WORDS, "x", key="k").result()

            def ask() -> None:
                ids.extend(producer.client_instance_id() for _ in range(50))

            workers = [SystemThreads().start(f"t{number}", work) for number, work in enumerate((send, send, ask, ask))]
            until(lambda: not any(worker.is_alive for worker in workers))
            until(lambda: any(not pushed.is_terminating for pushed in list(taken)), turn=producer.poll)
        assert len(set(ids)) == 1
        assert len(ids) == 100
        assert broker.end_offset(TopicPartition("words", 0)) == 600
    assert {pushed.client_instance_id for pushed in taken} == set(ids)
    assert taken[-1].is_terminating
