"""The programs of Kafka's system tests, on a broker that is killed, with clients that are killed.

They say themselves whether each record was processed once: ``StreamsSmokeTest`` and ``StreamsEosTest`` verify what
they have generated; what ``TransactionalMessageCopier`` has copied is compared with its input.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.kafka.processes import Started
from tests.outside.broker import Broker
from tests.outside.suite import ROOT, STREAMS, Outcome, Room, Suite
from tests.waiting import until

VERSION = "4.1.0"
BROKER_KILLED_EVERY_S = 35.0
CLIENT_KILLED_EVERY_S = 25.0
#: So often each is killed; then they come to their end.
KILLS = 3
PARTITIONS = 5
SMOKE_TOPICS = (
    *("data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "sws-raw", "sws-suppressed"),
    *("cnt", "avg", "tagg", "fk"),
)
EOS_TOPICS = ("data", "echo", "min", "sum", "repartition", "max", "cnt")
EOS_RECORDS = 8_000
COPIED = 40_000
STREAMS_TESTS = "org.apache.kafka.streams.tests"


def run(room: Room) -> Iterator[Outcome]:
    """Run each program on a broker of its own."""
    pom = Path(__file__).parents[1] / "system" / "pom.xml"
    jars = room.cache / "jars"
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={jars}")
    room.fetch("mvn", "--quiet", "--batch-mode", "--file", str(pom), *goal)
    tests = {
        "StreamsSmokeTest, exactly once": _smoke,
        "StreamsEosTest process-complex": lambda room, broker: _eos(room, broker, "classic"),
        "StreamsEosTest process-complex, group.protocol=streams": lambda room, broker: _eos(room, broker, "streams"),
        "TransactionalMessageCopier, random aborts": _copier,
    }
    for name, test in tests.items():
        if room.only not in name:
            continue
        with room.broker(kill_every_s=BROKER_KILLED_EVERY_S, most_kills=KILLS) as broker:
            note = test(room, broker)
        yield Outcome(name, "failed" if note else "passed", note)


def _java(room: Room, name: str, *arguments: str) -> list[str]:
    options = [
        "-Xmx400m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    ]
    return ["java", *options, "-cp", f"{room.cache / 'jars'}/*", name, *arguments]


def _create(room: Room, broker: Broker, topics: Sequence[str]) -> None:
    options = ("--partitions", str(PARTITIONS), "--bootstrap-servers", broker.address)
    room.fetch(*STREAMS, "topics", "create", *topics, *options, cwd=ROOT)


def _properties(room: Room, broker: Broker, name: str, **more: str) -> str:
    state = room.logs / f"state-{name}"
    values = {"bootstrap.servers": broker.address, "processing.guarantee": "exactly_once_v2", "state.dir": str(state)}
    values |= {"application.id": "EosTest", "session.timeout.ms": "10000", **more}
    path = room.logs / f"{name}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return str(path)


@contextmanager
def _clients(room: Room, commands: Sequence[Sequence[str]]) -> Iterator[None]:
    """Run clients; one after the other is killed and started again. At the end each is asked to end."""
    running = [Started(command, room.logs / f"client-{number}.log") for number, command in enumerate(commands)]
    is_over = threading.Event()

    def kill() -> None:
        kills = 0
        while kills < KILLS and not is_over.wait(CLIENT_KILLED_EVERY_S):
            number = kills % len(commands)
            kills += 1
            running[number].kill()
            running[number] = Started(commands[number], room.logs / f"client-{number}-{kills}.log")

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        is_over.set()
        killer.join()
        for client in running:
            client.process.terminate()
        for client in running:
            try:
                client.process.wait(120)
            finally:
                client.kill()


def _smoke(room: Room, broker: Broker) -> str:
    _create(room, broker, SMOKE_TOPICS)
    files = [_properties(room, broker, f"smoke-{number}") for number in range(2)]
    name = f"{STREAMS_TESTS}.StreamsSmokeTest"
    with (
        _clients(room, [_java(room, name, file, "process") for file in files]),
        room.program(*_java(room, name, files[0], "run"), log="smoke", quiet_s=300) as driver,
    ):
        lines = list(driver)
    verdicts = [line for line in lines if "ALL-RECORDS-DELIVERED" in line or line.strip() in ("SUCCESS", "FAILED")]
    is_right = any("ALL-RECORDS-DELIVERED" in line for line in verdicts) and "SUCCESS" in map(str.strip, verdicts)
    return "" if is_right else f"{driver.ended_by} {verdicts or lines[-3:]}"


def _eos(room: Room, broker: Broker, protocol: str) -> str:
    _create(room, broker, EOS_TOPICS)
    more = {"group.protocol": protocol} if protocol == "streams" else {}
    files = [_properties(room, broker, f"eos-{protocol}-{number}", **more) for number in range(2)]
    name = f"{STREAMS_TESTS}.StreamsEosTest"
    with (
        _clients(room, [_java(room, name, file, "process-complex") for file in files]),
        room.program(*_java(room, name, files[0], "run"), log=f"eos-{protocol}", quiet_s=300) as driver,
    ):
        for line in driver:
            if line.endswith(" records produced") and int(line.split()[0]) >= EOS_RECORDS:
                driver.process.terminate()
                break
        list(driver)
        # The verifier asks for a commit in each partition, and a busy machine is far behind the driver.
        try:
            until(lambda: _is_caught_up(broker))
        except AssertionError:
            return "not all of the inputs was processed in time"
    # The verifier asks for the group once, and waits ten seconds.
    broker.spare()
    with room.program(
        *_java(room, name, files[0], "verify-complex"), log=f"verify-{protocol}", quiet_s=300
    ) as verifier:
        lines = list(verifier)
    if any("ALL-RECORDS-DELIVERED" in line for line in lines):
        return ""
    said = [line for line in lines if "Exception" in line] or lines
    return f"{verifier.ended_by} {' | '.join(said[-3:])}".strip()


def _is_caught_up(broker: Broker) -> bool:
    """Whether all of the inputs was processed, and something of each partition behind the repartition."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "EosTest"})
    try:
        places = [TopicPartition(topic, number) for topic in ("data", "repartition") for number in range(PARTITIONS)]
        committed = {(place.topic, place.partition): place.offset for place in consumer.committed(places, timeout=30)}
        ends = {
            ("data", number): consumer.get_watermark_offsets(TopicPartition("data", number), timeout=30)[1]
            for number in range(PARTITIONS)
        }
        return all(offset >= ends.get(place, 1) for place, offset in committed.items())
    except KafkaException:
        # The broker has just been killed.
        return False
    finally:
        consumer.close()


def _copier(room: Room, broker: Broker) -> str:
    _create(room, broker, ("in", "out"))
    tools = "org.apache.kafka.tools"
    produce = (
        "--topic",
        "in",
        "--bootstrap-server",
        broker.address,
        "--max-messages",
        str(COPIED),
        "--throughput",
        "-1",
    )
    with room.program(*_java(room, f"{tools}.VerifiableProducer", *produce), log="producer", quiet_s=300) as producer:
        acknowledged = sum(json.loads(line)["name"] == "producer_send_success" for line in producer if line[:1] == "{")
    if acknowledged != COPIED:
        return f"{acknowledged} of {COPIED} records were acknowledged"

    def command(partition: int) -> list[str]:
        names = {
            "--transactional-id": f"copier-{partition}",
            "--consumer-group": "copiers",
            "--broker-list": broker.address,
        }
        names |= {"--input-topic": "in", "--input-partition": str(partition), "--output-topic": "out"}
        names |= {"--transaction-size": "500", "--transaction-timeout": "20000"}
        flags = [item for pair in names.items() for item in pair]
        return _java(room, f"{tools}.TransactionalMessageCopier", *flags, "--enable-random-aborts")

    # The first ones are killed in the middle, whatever they have open.
    first = [Started(command(number), room.logs / f"copier-{number}-killed.log") for number in range(PARTITIONS)]
    for copier in first:
        copier.line_with("totalProcessed")
        copier.kill()
    for copier in [Started(command(number), room.logs / f"copier-{number}.log") for number in range(PARTITIONS)]:
        copier.process.wait(600)
    return _copied(broker)


def _copied(broker: Broker) -> str:
    """Return in what the copies differ from the records, by partition and order."""
    read = {topic: _values(broker, topic) for topic in ("in", "out")}
    missing, extra = Counter(read["in"]) - Counter(read["out"]), Counter(read["out"]) - Counter(read["in"])
    return f"{missing.total()} missing, {extra.total()} twice" if missing or extra else ""


def _values(broker: Broker, topic: str) -> list[bytes]:
    settings = {"bootstrap.servers": broker.address, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    values: list[bytes] = []
    try:
        for partition in range(PARTITIONS):
            consumer.assign([TopicPartition(topic, partition, 0)])
            while (message := consumer.poll(60)) is not None:
                if (error := message.error()) is None:
                    values.append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    break
    finally:
        consumer.close()
    return values


SUITE = Suite(
    name="system",
    title="Kafka's system-test programs (Java)",
    version=VERSION,
    origin="`StreamsSmokeTest`, `StreamsEosTest` and `TransactionalMessageCopier` of Kafka's published jars, on a"
    " broker that is killed, with clients that are killed",
    needs=("java", "mvn"),
    limit_s=2_400.0,
    run=run,
)
