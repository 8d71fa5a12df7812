"""Applications on a cluster: word counts of one and of several processes, killed, restarted and cut off.

Against the embedded broker over TCP and a real Kafka: nothing is lost, and exactly-once every count is exact.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from streams import Streams, StreamsBuilder, TimeWindows, Topic
from streams.broker import EmbeddedBroker
from streams.broker.tcp.requests import VERSIONS
from streams.clients import Admin, Producer
from streams.clients.admin import EARLIEST, LATEST
from streams.clients.tcp import TcpCluster
from streams.clients.tcp.connection import ClusterConnection
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import ConfigError, TopologyError
from streams.protocol.messages import TopicMetadata, TopicSpec
from tests.kafka.node import KafkaNode
from tests.kafka.proxy import Proxy
from tests.kafka.secured import AdvertisedNode
from tests.kafka.word_count import SETTINGS, Counting, Instance, topology
from tests.waiting import WATCHDOG_MS, until

#: What an exactly-once commit needs, which a broker has to offer (KIP-447).
HAS_EXACTLY_ONCE = VERSIONS[28][1] >= 3
GUARANTEES = ["at_least_once", "exactly_once_v2"]


@pytest.fixture(params=["served", pytest.param("kafka", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a broker listens."""
    if request.param == "kafka":
        node: KafkaNode = request.getfixturevalue("kafka")
        yield node.bootstrap_servers
        return
    if "exactly_once_v2" in request.node.name and not HAS_EXACTLY_ONCE:
        pytest.skip("the embedded broker does not offer TxnOffsetCommit 3 yet")
    with EmbeddedBroker(auto_create_topics=False) as broker, broker.serve("127.0.0.1:0") as server:
        yield server.bootstrap_servers


@pytest.fixture
def counting(servers: str, name: str) -> Iterator[Counting]:
    with Counting(TcpCluster(servers), name.replace(".", "-")) as counting:
        yield counting


def settings(guarantee: str, **more: Any) -> dict[str, Any]:
    return {"processing_guarantee": guarantee, **more}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_words_are_counted(servers: str, counting: Counting, guarantee: str):
    """One process with two threads; started twice, it goes on."""
    for _ in range(2):
        counting.write(300)
        with Streams(
            topology(counting.name),
            application_id=counting.name,
            bootstrap_servers=servers,
            num_stream_threads=2,
            **{**SETTINGS, **settings(guarantee)},
        ) as streams:
            counting.finish()
            assert streams.failure is None
    counting.check_exact()


def test_internal_topics_are_made_with_what_they_need(servers: str, counting: Counting):
    """A changelog is compacted, a repartition topic keeps all until it is read, and then nothing."""
    counting.write(200)
    with Streams(
        topology(counting.name),
        application_id=counting.name,
        bootstrap_servers=servers,
        repartition_purge_interval_ms=200,
        **SETTINGS,
    ):
        counting.finish()
        with Admin(TcpCluster(servers)) as admin:
            internal = {
                name.rpartition("-")[2]: name for name in admin.list_topics() if name.startswith(f"{counting.name}-")
            }
            described = admin.describe_topics([internal["changelog"], internal["repartition"]])
            changelog, repartition = described[internal["changelog"]], described[internal["repartition"]]
            assert (len(changelog.leaders), changelog.config["cleanup.policy"]) == (3, "compact")
            assert (len(repartition.leaders), repartition.config["cleanup.policy"]) == (3, "delete")
            assert repartition.config["retention.ms"] == "-1"
            partitions = [TopicPartition(internal["repartition"], number) for number in range(3)]
            ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))
            assert sum(ends.values()) == 2_000

            def is_empty() -> bool:
                return admin.list_offsets(dict.fromkeys(partitions, EARLIEST)) == ends

            until(is_empty, lambda: counting.read(50))


@pytest.mark.parametrize(
    ("topic", "partitions", "config", "reason"),
    [
        ("counted-changelog", 3, {"cleanup.policy": "delete"}, "would be deleted"),
        ("counted-changelog", 2, {"cleanup.policy": "compact"}, "2 partition"),
        ("counted-repartition", 3, {"cleanup.policy": "compact"}, "would be lost"),
    ],
)
def test_internal_topics_that_do_not_fit_are_refused(
    servers: str, counting: Counting, topic: str, partitions: int, config: dict[str, str], reason: str
):
    with Admin(TcpCluster(servers)) as admin:
        admin.create_topics([TopicSpec(f"{counting.name}-{topic}", partitions, config)])
    streams = Streams(topology(counting.name), application_id=counting.name, bootstrap_servers=servers, **SETTINGS)

    with pytest.raises(TopologyError, match=reason):
        streams.start()

    streams.close()


def windowed(name: str) -> Callable[[StreamsBuilder], None]:
    """Count by windows of a second what comes from two topics, of which one is much heavier."""
    light, heavy = (Topic(f"{name}-{kind}", key=str, value=bytes) for kind in ("light", "heavy"))

    def build(builder: StreamsBuilder) -> None:
        both = builder.stream(light, heavy)
        both.group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1))).count("windowed")

    return build


def test_changelog_that_keeps_windows_for_too_short_is_refused(servers: str, name: str):
    """Said with what to set; once that is set, it starts."""
    application, cluster = name.replace(".", "-"), TcpCluster(servers)
    changelog = f"{application}-windowed-changelog"
    with Admin(cluster) as admin:
        admin.create_topics([TopicSpec(f"{application}-{kind}", 1) for kind in ("light", "heavy")])
        config = {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
        admin.create_topics([TopicSpec(changelog, 1, config)])

    def start() -> None:
        with Streams(windowed(application), application_id=application, bootstrap_servers=servers, **SETTINGS):
            pass

    with pytest.raises(TopologyError, match=f"{changelog}.*retention.ms=1000.*set retention.ms=") as told:
        start()
    cluster.alter_topic(changelog, {"retention.ms": str(told.value).rpartition("retention.ms=")[2].partition("`")[0]})
    start()


@pytest.mark.parametrize("idle_ms", [0, -1])
def test_heavy_partition_keeps_up_with_a_light_one(servers: str, name: str, idle_ms: int):
    """A fetch brings thousands of the light topic's records, and two of the heavy one's: none comes too late.

    But for those who do not want to wait, which shows that it takes that.
    """
    application, cluster = name.replace(".", "-"), TcpCluster(servers)
    light, heavy = (TopicPartition(f"{application}-{kind}", 0) for kind in ("light", "heavy"))
    with Admin(cluster) as admin, Producer(cluster) as producer:
        admin.create_topics([TopicSpec(light.topic, 1), TopicSpec(heavy.topic, 1)])
        times = list(range(1_000_000, 1_200_000, 10))
        producer.send_block(light, Block([b"k"] * len(times), [b"v"] * len(times), times))
        producer.send_block(heavy, Block([b"k"] * 200, [bytes(20_000)] * 200, times[::100]))
        producer.flush()
    with Streams(
        windowed(application),
        application_id=application,
        bootstrap_servers=servers,
        max_task_idle_ms=idle_ms,
        max_partition_fetch_bytes=50_000,
        **SETTINGS,
    ) as streams:
        until(lambda: streams.metrics.get("process-total") >= len(times) + 200)
        dropped = streams.metrics.get("dropped-records-total")
    assert (dropped == 0) is (idle_ms == 0)


def test_input_that_was_made_a_moment_ago_is_found(servers: str, counting: Counting, monkeypatch: pytest.MonkeyPatch):
    """A cluster's brokers do not all know at once of a new topic: its lack is no error before that has passed."""
    failures: list[BaseException] = []
    looks: list[object] = []
    describe, connect = Admin._describe_topics, TcpCluster.connect

    def described(admin: Admin, names: Sequence[str]) -> dict[str, TopicMetadata]:
        looks.append(names)
        return describe(admin, names)

    def connected(cluster: TcpCluster, client_id: str) -> ClusterConnection:
        # It has passed after three seconds, which are not enough everywhere to make a topic.
        connection = connect(cluster, client_id)
        connection.traits = evolve(connection.traits, settling_ms=WATCHDOG_MS)
        return connection

    monkeypatch.setattr(Admin, "_describe_topics", described)
    monkeypatch.setattr(TcpCluster, "connect", connected)

    def start() -> None:
        try:
            with Streams(
                _copying(f"{counting.name}-late"),
                application_id=f"{counting.name}-late",
                bootstrap_servers=servers,
                **SETTINGS,
            ):
                pass
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    until(lambda: len(looks) > 1 or not thread.is_alive())
    assert thread.is_alive(), failures
    with Admin(TcpCluster(servers)) as admin:
        admin.create_topics([TopicSpec(f"{counting.name}-late-{kind}", 1) for kind in ("lines", "counts")])
    thread.join()
    assert failures == []


@pytest.mark.slow
def test_missing_input_is_told_and_not_made(servers: str, name: str):
    application = name.replace(".", "-")
    streams = Streams(topology(application), application_id=application, bootstrap_servers=servers, **SETTINGS)

    with pytest.raises(TopologyError, match=f"{application}-lines"):
        streams.start()

    streams.close()


def test_two_brokers_are_one_too_many():
    with EmbeddedBroker() as broker, pytest.raises(ConfigError, match="both"):
        Streams(lambda builder: None, application_id="a", broker=broker, bootstrap_servers="127.0.0.1:9092")


@pytest.mark.killed
@pytest.mark.seeds("guarantee", reversed(GUARANTEES))
@pytest.mark.parametrize("keeps_state", [True, False])
def test_killed_process_goes_on(servers: str, counting: Counting, tmp_path: Path, guarantee: str, keeps_state: bool):
    """Killed in the middle of its work and started again, with the state that it had and without: it is restored."""
    given = settings(guarantee, default_store="rocksdb")
    for round_ in range(3):
        folder = tmp_path / (f"{round_}" if not keeps_state else "state")
        instance = Instance(servers, counting.name, tmp_path / "said", {**given, "state_dir": folder})
        try:
            until(instance.is_running, counting.read)
            for _ in range(20):
                counting.write(20)
                counting.read(20)
        finally:
            instance.kill()
    instance = Instance(servers, counting.name, tmp_path / "said", {**given, "state_dir": tmp_path / "last"})
    try:
        counting.finish([instance])
    finally:
        instance.stop()
    if guarantee == "exactly_once_v2":
        counting.check_exact()


@pytest.mark.killed
@pytest.mark.seeds("guarantee", reversed(GUARANTEES))
def test_one_of_three_processes_is_killed(servers: str, counting: Counting, tmp_path: Path, guarantee: str):
    """The others take over what it had; a fourth comes later."""
    given = settings(guarantee, default_store="in_memory")
    instances = [Instance(servers, counting.name, tmp_path / f"{number}", given) for number in range(3)]
    try:
        for instance in instances:
            until(instance.is_running, counting.read)
        for _ in range(20):
            counting.write(20)
            counting.read(20)
        instances.pop().kill()
        for _ in range(20):
            counting.write(20)
            counting.read(50)
        instances.append(Instance(servers, counting.name, tmp_path / "fourth", given))
        for _ in range(20):
            counting.write(20)
            counting.read(50)
        counting.finish(instances)
    finally:
        for instance in instances:
            instance.stop()
    if guarantee == "exactly_once_v2":
        counting.check_exact()


@pytest.mark.slow
def test_standby_takes_over(servers: str, counting: Counting, tmp_path: Path):
    """Two processes, each with copies of the other's state: who is left restores next to nothing."""
    given = settings("at_least_once", default_store="rocksdb", num_standby_replicas=1)
    instances = [
        Instance(servers, counting.name, tmp_path / "said", {**given, "state_dir": tmp_path / f"state-{number}"})
        for number in range(2)
    ]
    try:
        for instance in instances:
            until(instance.is_running, counting.read)
        counting.write(500)
        counting.finish(instances)
        instances.pop(0).kill()
        counting.write(100)
        counting.finish(instances)
    finally:
        for instance in instances:
            instance.stop()


def test_inputs_may_grow_where_nothing_is_kept_by_partition(servers: str, counting: Counting):
    """The lines get two more partitions while the application runs: they are read too."""
    with Streams(
        _copying(counting.name), application_id=f"{counting.name}-copy", bootstrap_servers=servers, **SETTINGS
    ) as streams:
        cluster = TcpCluster(servers)
        with Admin(cluster) as admin, Producer(cluster) as producer:
            until(lambda: streams.state.value == "running", counting.read)
            producer.send(f"{counting.name}-lines", b"old", partition=0)
            producer.flush()
            admin.create_partitions({f"{counting.name}-lines": 5})
            for number in (3, 4):
                producer_of_new(cluster, f"{counting.name}-lines", number)
            until(lambda: sorted(counting.seen) == ["new-3", "new-4", "old"], counting.read)


def producer_of_new(cluster: TcpCluster, topic: str, number: int) -> None:
    with Producer(cluster) as producer:
        until(lambda: producer.partition_count(topic) == 5, lambda: producer.poll(50))
        producer.send(topic, b"new-%d" % number, partition=number).result()


def _copying(name: str) -> Any:
    lines = Topic(f"{name}-lines", key=str, value=str)
    counts = Topic(f"{name}-counts", key=str, value=int)

    def build(builder: StreamsBuilder) -> None:
        builder.stream(lines).map(lambda _, line: (line, 1)).to(counts)

    return build


@pytest.mark.kafka
@pytest.mark.seeds("guarantee", reversed(GUARANTEES))
def test_broker_is_killed_under_an_application(own_kafka: KafkaNode, tmp_path: Path, guarantee: str):
    """A real broker is killed and comes back; the application is the same process all the time."""
    servers = own_kafka.bootstrap_servers
    with Counting(TcpCluster(servers), "words") as counting:
        given = settings(guarantee, default_store="in_memory")
        instance = Instance(servers, "words", tmp_path / "said", given)
        try:
            until(instance.is_running, counting.read)
            for _ in range(2):
                for _ in range(15):
                    counting.write(20)
                    counting.read(20)
                own_kafka.kill()
                own_kafka.start()
            for _ in range(15):
                counting.write(20)
                counting.read(20)
            counting.finish([instance])
        finally:
            instance.stop()
        if guarantee == "exactly_once_v2":
            counting.check_exact()


@pytest.mark.kafka
@pytest.mark.seeds("guarantee", reversed(GUARANTEES))
def test_application_behind_connections_that_are_cut(tmp_path: Path, guarantee: str):
    with Proxy(0) as proxy, AdvertisedNode(tmp_path / "kafka", advertised_port=proxy.port) as node:
        proxy.target = node.port
        with Counting(TcpCluster(proxy.bootstrap_servers), "words") as counting:
            given = settings(guarantee, default_store="in_memory")
            instance = Instance(proxy.bootstrap_servers, "words", tmp_path / "said", given)
            try:
                until(instance.is_running, counting.read)
                # How many connections there are to be cut depends on the machine.
                while proxy.cuts <= 20:
                    for _ in range(3):
                        counting.write(20)
                        counting.read(100)
                    proxy.cut()
                counting.finish([instance])
            finally:
                instance.stop()
            if guarantee == "exactly_once_v2":
                counting.check_exact()


def test_log_is_quiet_about_what_is_normal(servers: str, counting: Counting, caplog: pytest.LogCaptureFixture):
    """A run without trouble warns of nothing."""
    counting.write(50)
    with caplog.at_level(logging.WARNING):
        with Streams(topology(counting.name), application_id=counting.name, bootstrap_servers=servers, **SETTINGS):
            counting.finish()
    assert [record.getMessage() for record in caplog.records] == []
