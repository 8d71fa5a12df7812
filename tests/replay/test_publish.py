"""Publishing: outputs of a snapshot in topics, each record once, whatever dies on the way."""

import random
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streams import Admin, EmbeddedBroker, Producer, SessionWindows, StreamsBuilder, Topic
from streams.core.blocks.records import TopicPartition
from streams.protocol.request import Request, Response
from streams.replay import Plan, ReplayError, Snapshot, SnapshotError, publish, replay
from streams.replay.handover.publish import publish_group
from tests import programs

numbers = Topic("numbers", key=str, value=int)
counts = Topic("counts", key=str, value=int)
big = Topic("big", key=str, value=int)
ROWS = 60
PARTITIONS = 3
LOCAL: dict[str, Any] = {"executor": "local", "processes": 1, "partitions": PARTITIONS, "application_id": "app"}


def topology(builder: StreamsBuilder) -> None:
    """Behind a repartition, so that several tasks write a partition; headers pass through to ``big``."""
    stream = builder.stream(numbers)
    stream.filter(lambda _, number: number > 1_000).to(big)
    stream.group_by(lambda _, number: f"k{number % 7}", key=str).count("counted").to_stream().to(counts)
    stream.select_key(lambda _, number: f"k{number % 2}").to(counts)


def history(folder: Path, rows: int = ROWS) -> Path:
    path = folder / "numbers.records.jsonl"
    line = '{"key": "k%d", "value": %d, "timestamp": %d, "headers": [["n", "%d"], ["none", null]]}\n'
    path.write_text("".join(line % (n % 5, 980 + n, 5_000 + n * 10 - n % 3 * 25, n) for n in range(rows)))
    return path


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp("replay")
    with replay(topology, {numbers: history(folder)}, **LOCAL) as result:
        return result.save(folder / "snapshot")


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What the replay wrote, by topic: (partition, key, value, time, headers)."""
    folder = tmp_path_factory.mktemp("wanted")
    with replay(topology, {numbers: history(folder)}, **LOCAL) as result:
        return {
            topic.name: [(number, *row[1:]) for number, block in result.read(topic) for row in block.rows()]
            for topic in (big, counts)
        }


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(auto_create_topics=False) as broker:
        yield broker


def committed(broker: EmbeddedBroker, topic: str) -> list[Any]:
    """What a consumer of committed records sees, as ``wanted``."""
    rows = []
    for number in range(broker.topics()[topic]):
        at, position = TopicPartition(topic, number), 0
        while blocks := broker.read(at, position, committed_only=True):
            rows += [(number, *row[1:]) for block in blocks for row in block.rows()]
            position = blocks[-1].offsets[-1] + 1
    return rows


def test_outputs_are_published_with_times_headers_and_partitions(
    snapshot: Snapshot, wanted: dict[str, list[Any]], broker: EmbeddedBroker
):
    counted = publish(snapshot, broker)

    assert counted == {"big": len(wanted["big"]), "counts": 2 * ROWS}
    assert broker.topics() == {"big": PARTITIONS, "counts": PARTITIONS}
    assert {topic: committed(broker, topic) for topic in wanted} == wanted
    assert {len(row[4]) for row in wanted["big"]} == {2}


@pytest.mark.slow
def test_run_again_it_publishes_nothing(snapshot: Snapshot, wanted: dict[str, list[Any]], broker: EmbeddedBroker):
    publish(snapshot, broker)

    assert publish(str(snapshot.root), broker) == {"big": 0, "counts": 0}
    assert {topic: committed(broker, topic) for topic in wanted} == wanted


def test_topics_can_be_chosen(snapshot: Snapshot, wanted: dict[str, list[Any]], broker: EmbeddedBroker):
    assert publish(snapshot, broker, topics=[big]) == {"big": len(wanted["big"])}
    assert broker.topics() == {"big": PARTITIONS}
    assert publish(snapshot, broker, topics=["counts", "big"]) == {"counts": 2 * ROWS, "big": 0}


def test_records_go_behind_what_a_topic_has(snapshot: Snapshot, wanted: dict[str, list[Any]], broker: EmbeddedBroker):
    broker.create_topic("big", PARTITIONS)
    with Producer(broker) as producer:
        producer.send("big", b"before", partition=1)

    publish(snapshot, broker, topics=[big])

    assert [row for row in committed(broker, "big") if row[2] != b"before"] == wanted["big"]


def test_progress_is_told(snapshot: Snapshot, broker: EmbeddedBroker):
    told: list[tuple[str, int, int]] = []

    publish(snapshot, broker, topics=[counts], on_progress=lambda *progress: told.append(progress))

    assert told[0] == ("counts", 0, 2 * ROWS)
    assert told[-1] == ("counts", 2 * ROWS, 2 * ROWS)


# --- mistakes ---------------------------------------------------------------------------------


def test_unknown_output_is_refused(snapshot: Snapshot, broker: EmbeddedBroker):
    with pytest.raises(ReplayError, match="has no output topic 'bg'; it has big, counts"):
        publish(snapshot, broker, topics=["bg"])


def test_other_partition_count_is_refused(snapshot: Snapshot, broker: EmbeddedBroker):
    broker.create_topic("counts", 2)

    with pytest.raises(ReplayError, match="topic 'counts' has 2 partitions, the replay wrote 3"):
        publish(snapshot, broker)


def test_snapshot_without_outputs_is_refused(tmp_path: Path, broker: EmbeddedBroker):
    with replay(topology, {numbers: history(tmp_path)}, **LOCAL) as result:
        result.save(tmp_path / "snapshot", with_outputs=False)

    with pytest.raises(SnapshotError, match="it was saved without outputs"):
        publish(tmp_path / "snapshot", broker)


def test_snapshot_that_goes_on_from_a_published_one_is_published_behind_it(tmp_path: Path, broker: EmbeddedBroker):
    with replay(topology, {numbers: history(tmp_path, 20)}, **LOCAL) as result:
        first = result.save(tmp_path / "first")
    publish(first, broker)
    with replay(topology, {numbers: history(tmp_path, 30)}, state_from=tmp_path / "first", **LOCAL) as result:
        second = result.save(tmp_path / "second")
    assert second.parent == first.id

    assert publish(second, broker)["counts"] == 20
    assert len(committed(broker, "counts")) == 60


def in_order(folder: Path, rows: int) -> Path:
    path = folder / "ordered.records.jsonl"
    line = '{"key": "k%d", "value": %d, "timestamp": %d}\n'
    path.write_text("".join(line % (n % 5, 980 + n, 5_000 + n) for n in range(rows)))
    return path


def saved(folder: Path, given: Path, name: str, **options: Any) -> tuple[Snapshot, dict[str, list[Any]]]:
    """The snapshot and the outputs, as ``wanted``, of a run of the replay in ``folder``."""
    with replay(topology, {numbers: given}, directory=folder / "replay", resume=True, **LOCAL, **options) as result:
        outputs = {
            topic.name: [(number, *row[1:]) for number, block in result.read(topic) for row in block.rows()]
            for topic in (big, counts)
        }
        return result.save(folder / name), outputs


def as_table(rows: list[Any]) -> dict[Any, Any]:
    """The last record of each partition and key that has a value."""
    return {key: row for key, row in {(row[0], row[1]): row for row in rows}.items() if row[2] is not None}


@pytest.mark.slow
def test_each_snapshot_of_a_replay_that_is_resumed_is_published_after_the_last_one(
    tmp_path: Path, broker: EmbeddedBroker
):
    first, _ = saved(tmp_path, in_order(tmp_path, 30), "first")
    publish(first, broker)
    second, outputs = saved(tmp_path, in_order(tmp_path, 50), "second")

    assert publish(second, broker) == {"big": 20, "counts": 40}
    assert publish(second, broker) == {"big": 0, "counts": 0}
    assert {topic: committed(broker, topic) for topic in outputs} == outputs
    with pytest.raises(ReplayError, match=f"snapshot {second.id} of 'app', which is a later one of the same replay"):
        publish(first, broker)


@pytest.mark.slow
def test_replay_from_a_snapshot_is_published_after_all_snapshots_of_its_replay(tmp_path: Path, broker: EmbeddedBroker):
    for rows in (30, 50):
        snapshot, _ = saved(tmp_path, in_order(tmp_path, rows), f"of-{rows}")
        publish(snapshot, broker)
    with replay(topology, {numbers: in_order(tmp_path, 60)}, state_from=snapshot.root.uri, **LOCAL) as result:
        after = result.save(tmp_path / "after")

    assert publish(after, broker) == {"big": 10, "counts": 20}


def late(folder: Path) -> tuple[Snapshot, Snapshot, dict[str, list[Any]]]:
    """Snapshots before and after the repair of a late row, which changes the count of k3, and the outputs after it."""
    rows = folder / "rows"
    rows.mkdir()
    in_order(rows, 40)
    first, _ = saved(folder, rows, "first")
    (rows / "late.records.jsonl").write_text('{"key": "k1", "value": 10, "timestamp": 5003}\n')
    second, outputs = saved(folder, rows, "second", plan=Plan(repair=True))
    return first, second, outputs


@pytest.mark.slow
def test_repaired_outputs_are_corrected_on_request_only(tmp_path: Path, broker: EmbeddedBroker):
    first, second, outputs = late(tmp_path)
    publish(first, broker)
    before = {topic: committed(broker, topic) for topic in ("big", "counts")}

    with pytest.raises(ReplayError, match=rf"of snapshot {first.id} of this replay .* give corrects=True"):
        publish(second, broker)
    assert {topic: committed(broker, topic) for topic in outputs} == before
    publish(second, broker, corrects=True)
    assert {topic: as_table(committed(broker, topic)) for topic in outputs} == {
        topic: as_table(rows) for topic, rows in outputs.items()
    }
    assert publish(second, broker, corrects=True) == publish(second, broker) == {"big": 0, "counts": 0}


@pytest.mark.slow
def test_topic_with_records_of_others_is_not_corrected(tmp_path: Path, broker: EmbeddedBroker):
    first, second, _ = late(tmp_path)
    publish(first, broker)
    with Producer(broker) as producer:
        for partition in range(PARTITIONS):
            producer.send("counts", b"1", key=b"k0", partition=partition)

    with pytest.raises(ReplayError, match=r"cannot be corrected: it has 1 records that were not published"):
        publish(second, broker, corrects=True)


# --- the border of two runs ---------------------------------------------------------------------


def nightly(folder: Path, nights: int, seed: int = 0) -> Iterator[tuple[Snapshot, dict[str, list[Any]]]]:
    """Snapshots and outputs of runs that are resumed; the first rows of each are older than the last ones before."""
    chance = random.Random(seed)
    rows = folder / "rows.records.jsonl"
    line = '{"key": "k%d", "value": %d, "timestamp": %d}\n'
    for night in range(nights):
        with rows.open("a") as file:
            for number in range(20 * night, 20 * night + 20):
                file.write(line % (chance.randrange(5), 990 + number, 5_000 + number * 10 - chance.randrange(150)))
        yield saved(folder, rows, f"night-{night}", slices=chance.choice([None, 2]))


@pytest.mark.slow
def test_records_of_the_end_of_a_run_that_were_computed_in_another_order_are_published_once(
    tmp_path: Path, broker: EmbeddedBroker
):
    """Records of ``big`` are only interleaved anew; of ``counts``, the order of records with the same key changes."""
    broker.create_topic("big", PARTITIONS)
    with Producer(broker) as producer:
        producer.send("big", b"before", partition=1)
    is_another = 0
    before: dict[str, list[Any]] = {"big": [], "counts": []}
    for snapshot, outputs in nightly(tmp_path, 3):
        is_another += any(
            mine[: len(own)] != own
            for topic in before
            for number in range(PARTITIONS)
            for own in ([row for row in before[topic] if row[0] == number],)
            for mine in ([row for row in outputs[topic] if row[0] == number],)
        )
        before = outputs
        counted = publish(snapshot, broker)

        found = {topic: committed(broker, topic) for topic in outputs}
        big_rows = [row for row in found["big"] if row[2] != b"before"]
        assert counted["big"] <= 20
        assert sorted(map(repr, big_rows)) == sorted(map(repr, outputs["big"]))
        assert as_table(found["counts"]) == as_table(outputs["counts"])
        assert set(map(repr, outputs["counts"])) <= set(map(repr, found["counts"]))
        assert publish(snapshot, broker) == {"big": 0, "counts": 0}
    assert is_another == 2


@pytest.mark.slow
@pytest.mark.seeds("seed", range(1, 9))
def test_after_any_nights_each_key_has_its_last_record(tmp_path: Path, broker: EmbeddedBroker, seed: int):
    for snapshot, outputs in nightly(tmp_path, 5, seed):
        publish(snapshot, broker)

        found = {topic: committed(broker, topic) for topic in outputs}
        assert {topic: as_table(rows) for topic, rows in found.items()} == {
            topic: as_table(rows) for topic, rows in outputs.items()
        }
        for topic, rows in outputs.items():
            assert set(map(repr, rows)) <= set(map(repr, found[topic]))


@pytest.mark.slow
def test_sessions_that_become_one_at_a_border_get_a_tombstone(tmp_path: Path, broker: EmbeddedBroker):
    """The first run ends with the session of a record that the second run puts into an older session."""
    visits = Topic("visits", key=str, value=int)

    def sessions(builder: StreamsBuilder) -> None:
        stream = builder.stream(numbers).select_key(lambda key, _: "k").repartition("by-key", partitions=1)
        windows = SessionWindows.of(timedelta(milliseconds=10))
        counted = stream.group_by_key().windowed_by(windows).count("visited").to_stream()
        counted.map(lambda key, count: (f"{key.window.start_ms}-{key.window.end_ms}", count)).to(visits)

    rows = tmp_path / "rows.records.jsonl"
    line = '{"key": "%s", "value": 1, "timestamp": %d}\n'
    options = {**LOCAL, "directory": tmp_path / "replay", "resume": True}
    found = []
    for night in ([("k0", 100), ("k1", 100), ("k0", 130)], [("k1", 122), ("k1", 140), ("k0", 150)]):
        with rows.open("a") as file:
            file.writelines(line % row for row in night)
        with replay(sessions, {numbers: rows}, **options) as result:
            outputs = [(number, *row[1:]) for number, block in result.read(visits) for row in block.rows()]
            publish(result.save(tmp_path / f"of-{len(found)}"), broker)
        found.append(as_table(committed(broker, "visits")))

        assert found[-1] == as_table(outputs)
    assert found[0].keys() - found[1].keys()


@pytest.mark.slow
def test_end_with_records_of_others_is_not_replaced(tmp_path: Path, broker: EmbeddedBroker):
    (first, _), (second, _) = nightly(tmp_path, 2)
    publish(first, broker)
    with Producer(broker) as producer:
        for partition in range(PARTITIONS):
            producer.send("counts", b"1", key=b"k0", partition=partition)

    with pytest.raises(ReplayError, match=r"cannot be corrected: it has 1 records that were not published"):
        publish(second, broker)


# --- killed -----------------------------------------------------------------------------------


class Killed(BaseException):
    """The end of a process: nothing handles it, and whoever goes on all the same gets no answer."""


class Dying:
    """A cluster whose client dies with its n-th request: before the broker has it, or behind it."""

    def __init__(self, broker: EmbeddedBroker, requests: int, *, is_done: bool) -> None:
        self.broker, self.left, self.is_done = broker, requests, is_done

    def connect(self, client_id: str) -> "DyingConnection":
        return DyingConnection(self, self.broker.connect(client_id))


class DyingConnection:
    def __init__(self, cluster: Dying, inner: Any) -> None:
        self.cluster, self.inner = cluster, inner
        self.traits = inner.traits
        self.outage = None

    def send(self, node_id: int, request: Request) -> int:
        cluster = self.cluster
        cluster.left -= 1
        if cluster.left < 0:
            if cluster.is_done and cluster.left == -1:
                self.inner.send(node_id, request)
            raise Killed
        return self.inner.send(node_id, request)

    def poll(self, timeout_ms: int) -> list[tuple[int, Response | Exception]]:
        if self.cluster.left < 0:
            raise Killed
        answers: list[tuple[int, Response | Exception]] = self.inner.poll(timeout_ms)
        return answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.slow
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
def test_killed_at_any_request_and_run_again_nothing_is_missing_or_double(
    snapshot: Snapshot, wanted: dict[str, list[Any]], is_done: bool
):
    """Twice: the second attempt dies too."""
    requests = 0
    while True:
        with EmbeddedBroker(auto_create_topics=False) as broker:
            try:
                publish(snapshot, Dying(broker, requests, is_done=is_done), transaction_records=5)
            except Killed:
                pass
            else:
                break
            with suppress(Killed):
                publish(snapshot, Dying(broker, requests // 2, is_done=is_done), transaction_records=5)
            publish(snapshot, broker, transaction_records=5)

            assert {topic: committed(broker, topic) for topic in wanted} == wanted
        requests += 1
    assert requests > 50


@pytest.mark.slow
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
def test_corrections_that_are_killed_at_any_request_are_sent_once(tmp_path: Path, is_done: bool):
    """A late row changes the count of k3; the topic gets it once, and nothing else."""
    first, second, outputs = late(tmp_path)
    requests = 0
    while True:
        with EmbeddedBroker(auto_create_topics=False) as broker:
            publish(first, broker)
            before = {topic: len(committed(broker, topic)) for topic in outputs}
            try:
                publish(second, Dying(broker, requests, is_done=is_done), corrects=True, transaction_records=1)
            except Killed:
                publish(second, broker, corrects=True, transaction_records=1)
                found = {topic: committed(broker, topic) for topic in outputs}
                assert {topic: as_table(rows) for topic, rows in found.items()} == {
                    topic: as_table(rows) for topic, rows in outputs.items()
                }
                assert {topic: len(rows) - before[topic] for topic, rows in found.items()} == {"big": 0, "counts": 1}
            else:
                break
        requests += 1
    assert requests > 30


@pytest.mark.slow
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
def test_border_of_two_runs_that_is_killed_at_any_request_is_published_as_if_it_were_not(tmp_path: Path, is_done: bool):
    (first, _), (second, outputs) = nightly(tmp_path, 2)
    with EmbeddedBroker(auto_create_topics=False) as broker:
        publish(first, broker)
        publish(second, broker)
        wanted = {topic: committed(broker, topic) for topic in outputs}
    requests = 0
    while True:
        with EmbeddedBroker(auto_create_topics=False) as broker:
            publish(first, broker)
            try:
                publish(second, Dying(broker, requests, is_done=is_done), transaction_records=3)
            except Killed:
                publish(second, broker, transaction_records=3)
                assert {topic: committed(broker, topic) for topic in outputs} == wanted
            else:
                break
        requests += 1
    assert requests > 40


ENDED = """
import os, sys
from streams import EmbeddedBroker
from streams.replay import publish
from tests.replay.test_publish import Dying, Killed

for requests in map(int, sys.argv[3:]):
    if not (child := os.fork()):
        with EmbeddedBroker(sys.argv[2]) as broker:
            try:
                publish(sys.argv[1], Dying(broker, requests, is_done=True), transaction_records=5)
            except Killed:
                os._exit(9)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.killed
def test_processes_that_end_leave_a_broker_on_disk_from_which_the_next_goes_on(
    snapshot: Snapshot, wanted: dict[str, list[Any]], tmp_path: Path
):
    steps = ["3", "12", "15", "18", "25"]

    ended = programs.run(["-c", ENDED, str(snapshot.root), str(tmp_path), *steps])
    with EmbeddedBroker(tmp_path) as broker:
        publish(snapshot, broker)

        assert ended.stdout.split() == ["9"] * len(steps), ended
        assert {topic: committed(broker, topic) for topic in wanted} == wanted


def test_what_is_not_committed_is_not_seen(snapshot: Snapshot, broker: EmbeddedBroker):
    requests = 0
    while "counts" not in broker.topics() or broker.end_offset(TopicPartition("counts", 0)) == 0:
        requests += 1
        with pytest.raises(Killed):
            publish(snapshot, Dying(broker, requests, is_done=True), topics=[counts])

    assert committed(broker, "counts") == []


def test_position_is_the_committed_offset_of_a_group(snapshot: Snapshot, broker: EmbeddedBroker):
    publish(snapshot, broker, topics=[counts])

    with Admin(broker) as admin:
        offsets = admin.committed_offsets(publish_group(snapshot))
    assert {at: found.offset for at, found in offsets.items()} == {
        at: len([row for row in committed(broker, "counts") if row[0] == at.partition]) for at in offsets
    }
    assert sum(found.offset for found in offsets.values()) == 2 * ROWS
