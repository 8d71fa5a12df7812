"""Kafka's console tools administer the embedded broker in a process of its own, as a person would at a prompt."""

import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.node import compiled, jars
from tests.kafka.processes import streams_broker

pytestmark = pytest.mark.kafka

TOOLS = "org.apache.kafka.tools."
TOPICS, GROUPS, OFFSETS = (
    f"{TOOLS}TopicCommand",
    f"{TOOLS}consumer.group.ConsumerGroupCommand",
    f"{TOOLS}GetOffsetShell",
)
CONFIGS, PRODUCER, CONSUMER = f"{TOOLS}ConfigCommand", f"{TOOLS}ConsoleProducer", f"{TOOLS}consumer.ConsoleConsumer"
TRANSACTIONS, ELECTION = f"{TOOLS}TransactionsCommand", f"{TOOLS}LeaderElectionCommand"

#: All tools run in one JVM, whose start takes longer than any of them.
SOURCE = Path(__file__).parent / "java" / "Tools.java"

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run a tool against a broker with a topic, which a group has read; what it prints is the result."""
    folder = tmp_path_factory.mktemp("broker")
    classes = compiled(SOURCE, tmp_path_factory.mktemp("classes"))
    path = ":".join(map(str, (classes, *jars("node"))))
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, "Tools"]
    with (
        streams_broker(folder) as address,
        (folder / "tools.log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as tools,
    ):
        assert tools.stdin is not None
        assert tools.stdout is not None

        def run(tool: str, *arguments: str, stdin: str = "", status: int = 0, with_errors: bool = False) -> str:
            words = (tool, stdin, "--bootstrap-server", address, *arguments)
            tools.stdin.write(b" ".join(b64encode(word.encode()) for word in words) + b"\n")
            tools.stdin.flush()
            ended, *texts = tools.stdout.readline().rstrip(b"\n").split(b" ")
            output, errors = (b64decode(text).decode() for text in texts)
            assert int(ended) == status, output + errors
            return output + errors if with_errors else output

        run(TOPICS, "--create", "--topic", "words", "--partitions", "2", "--config", "retention.ms=-1")
        run(PRODUCER, "--topic", "words", stdin="a\nb\nc\n")
        read = run(CONSUMER, "--topic", "words", "--group", "readers", "--from-beginning", "--max-messages", "3")
        assert sorted(read.split()) == ["a", "b", "c"]
        yield run


def test_a_topic_is_described_with_its_id_and_its_smallest_replica_set(run: Run) -> None:
    (header, *_) = run(TOPICS, "--describe", "--topic", "words").splitlines()

    assert "TopicId: " in header
    assert header.endswith("Configs: retention.ms=-1")
    assert len(run(TOPICS, "--describe", "--topic", "words", "--at-min-isr-partitions").splitlines()) == 2


def test_consumer_group_of_the_new_protocol_reads_topics_by_pattern(run: Run) -> None:
    """KIP-848: Java's consumer is assigned partitions by the broker; its tools show the type of the group."""
    join = ["--command-property", "group.protocol=consumer", "--group", "modern", "--include", "wor.*"]
    read = run(CONSUMER, *join, "--from-beginning", "--max-messages", "3")

    assert sorted(read.split()) == ["a", "b", "c"]
    assert ["modern", "Consumer"] in [line.split() for line in run(GROUPS, "--list", "--type").splitlines()]
    rows = [line.split() for line in run(GROUPS, "--describe", "--group", "modern").splitlines()]
    assert sum(int(row[3]) for row in rows if row and row[0] == "modern") == 3


def test_groups_are_listed_by_state_and_their_offsets_are_set_back(run: Run) -> None:
    assert "readers" in run(GROUPS, "--list", "--state", "empty")
    assert "readers" not in run(GROUPS, "--list", "--state", "stable")

    back = run(GROUPS, "--reset-offsets", "--group", "readers", "--topic", "words", "--to-earliest", "--execute")

    assert [line.split()[-1] for line in back.splitlines() if line.startswith("readers")] == ["0", "0"]


def test_offsets_are_told_for_every_question(run: Run) -> None:
    def found(time: str) -> int:
        rows = run(OFFSETS, "--topic", "words", "--time", time).split()
        return sum(int(row.rpartition(":")[2]) for row in rows)

    assert found("latest") == 3
    assert found("earliest") == found("earliest-local") == 0
    assert 0 <= found("max-timestamp") <= 2


def test_transactions_are_looked_into(run: Run) -> None:
    assert run(TRANSACTIONS, "list").startswith("TransactionalId")
    assert "ProducerId" in run(TRANSACTIONS, "describe-producers", "--topic", "words", "--partition", "0")
    assert "Topic" in run(TRANSACTIONS, "find-hanging", "--broker-id", "0")


def test_leaders_and_folders_are_where_they_should_be(run: Run) -> None:
    elected = run(ELECTION, "--election-type", "preferred", "--topic", "words", "--partition", "0")

    assert "already elected" in elected
    assert '"partition":"words-1"' in run(f"{TOOLS}LogDirsCommand", "--describe")
    assert "No partition reassignments" in run(f"{TOOLS}reassign.ReassignPartitionsCommand", "--list")


def test_settings_of_all_kinds_can_be_asked_for(run: Run) -> None:
    assert "min.insync.replicas=1" in run(
        CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "words", "--all"
    )
    assert "num.partitions=1" in run(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "0", "--all")
    for kind in ("groups", "clients", "client-metrics"):
        run(CONFIGS, "--describe", "--entity-type", kind)


def test_what_there_is_not_is_said_plainly(run: Run) -> None:
    rules = run(f"{TOOLS}AclCommand", "--list", status=1, with_errors=True)

    assert "SecurityDisabledException: this broker has no access control" in rules
