"""``streams reset APP --to TIME --from-snapshot``: an application on a cluster goes on from its state as of a time."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streams import EmbeddedBroker, Topic
from streams.clients import Admin, Consumer, Producer
from streams.clients.tcp import TcpCluster
from streams.core.blocks.records import TopicPartition
from streams.protocol.messages import TopicSpec
from tests import programs
from tests.kafka.node import KafkaNode
from tests.waiting import until

PROGRAM = """\
from streams import StreamsBuilder, Topic

words = Topic("{name}-words", key=str, value=int)
sums = Topic("{name}-sums", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    grouped = builder.stream(words).group_by(lambda key, number: f"sum-{{key}}")
    grouped.reduce(lambda one, other: one + other, "by-word").to_stream().to(sums)
"""
COUNT, TIME = 40, "1970-01-01T00:00:31Z"
PARTITIONS = 2
#: Records from that time on.
LATER = range(30, COUNT)


@pytest.fixture(params=["served", pytest.param("kafka", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a broker listens."""
    if request.param == "kafka":
        node: KafkaNode = request.getfixturevalue("kafka")
        yield node.bootstrap_servers
        return
    with EmbeddedBroker(auto_create_topics=False) as broker, broker.serve("127.0.0.1:0") as server:
        yield server.bootstrap_servers


class Shop:
    """The application, its topics, and the commands for it."""

    def __init__(self, servers: str, name: str, folder: Path) -> None:
        self.servers, self.name, self.folder = servers, name, folder
        self.cluster = TcpCluster(servers)
        self.words, self.sums = f"{name}-words", f"{name}-sums"
        folder.joinpath("app.py").write_text(PROGRAM.format(name=name))
        with Admin(self.cluster) as admin:
            admin.create_topics([TopicSpec(self.words, PARTITIONS), TopicSpec(self.sums, PARTITIONS)])
        words = Topic(self.words, key=str, value=int)
        # Two transactions: their markers have offsets, but are no records.
        with Producer(self.cluster, transactional_id=f"{name}-tx") as producer:
            producer.init_transactions()
            for begin in (0, COUNT // 2):
                producer.begin_transaction()
                for number in range(begin, begin + COUNT // 2):
                    place = {"timestamp_ms": (number + 1) * 1000, "partition": number % PARTITIONS}
                    producer.send(words, number, key=f"k{number % 4}", **place)
                producer.commit_transaction()

    def command(self, *arguments: str) -> str:
        """Run a command to its end, and return what it has printed."""
        given = ["--bootstrap-servers", self.servers] if arguments[0] != "replay" else []
        done = programs.run(["-m", "streams", *arguments, *given], cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the application until the block ends, then stop it as an operator does."""
        settings = ("processing.guarantee=exactly_once_v2", "commit.interval.ms=100")
        given = ["--application-id", self.name, "--bootstrap-servers", self.servers]
        given += ["--set", f"state.dir={self.folder}/state"]
        given += [word for setting in settings for word in ("--set", setting)]
        process = programs.start(["-m", "streams", "run", "app.py", *given], cwd=self.folder)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait() in (0, 128 + signal.SIGTERM)

    def written(self) -> dict[str, list[int]]:
        """Return the sums in the output topic by key, as committed, in their order."""
        found: dict[str, list[int]] = {}
        with Consumer(self.cluster, isolation_level="read_committed") as consumer:
            places = [TopicPartition(self.sums, number) for number in range(PARTITIONS)]
            ends = consumer.end_offsets(places)
            consumer.assign(places)
            consumer.seek_to_beginning()
            while any(consumer.position(place) < end for place, end in ends.items()):
                for record in consumer.poll(100):
                    found.setdefault(record.key.decode(), []).append(int.from_bytes(record.value, "big", signed=True))
        return found


def sums(numbers: range) -> dict[str, list[int]]:
    """The sums of each key after each of these numbers; earlier numbers are contained."""
    found: dict[str, list[int]] = {}
    for number in numbers:
        found.setdefault(f"sum-k{number % 4}", []).append(sum(range(number % 4, number + 1, 4)))
    return found


@pytest.mark.slow
def test_application_goes_on_from_its_state_as_of_a_time(servers: str, name: str, tmp_path: Path) -> None:
    shop = Shop(servers, name.replace(".", "-"), tmp_path)
    with shop.running():
        until(lambda: shop.written() == sums(range(COUNT)))
    assert tmp_path.joinpath("state", shop.name).exists()

    shop.command("archive", "--topic", shop.words, "--to", "history")
    history = ("--input", f"{shop.words}=history", "--executor", "local", "--application-id", shop.name)
    shop.command("replay", "app.py", *history, "--until", TIME, "--snapshot", "as-of")
    to = ("--to", TIME, "--from-snapshot", "as-of", "--output", shop.sums, "--local-state", "state")
    plan = shop.command("reset", shop.name, *to)
    assert "nothing was changed" in plan
    done = shop.command("reset", shop.name, *to, "--execute")

    # 15 records and the marker of the first transaction.
    for partition in range(PARTITIONS):
        assert f"  {shop.words}-{partition}: offset 22 -> 16\n" in plan
    assert "4 changelog records loaded\n" in done
    with shop.running():
        until(lambda: shop.written() == sums(LATER))
