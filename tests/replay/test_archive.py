"""Archives of topics: what is in them, how they grow, and that a replay of them is that of the topic."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams import EmbeddedBroker, Producer, StreamsBuilder, Topic, UnknownTopicError
from streams.broker import offline_topics
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import ConfigError, StateLockedError
from streams.replay import Archive, ReplayError, archive_topic, replay
from streams.replay.history.archive import ArchivedTopic, archive_offline, archived_topics, read_archive
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Segments
from tests import programs

Row = tuple[int, int, bytes | None, bytes | None, int, Any]


def rows_of(archived: ArchivedTopic) -> list[Row]:
    """All records, as (partition, offset, key, value, time, headers)."""
    reader = Segments(Place("")).reader()
    return [
        (number, *row)
        for number, extents in sorted(archived.extents.items())
        for block in reader.blocks(extents)
        for row in block.rows()
    ]


def digests(folder: Path) -> dict[str, bytes]:
    """All files with their content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def block(first: int, count: int, *, key: bytes | None = b"k") -> Block:
    values = [b"%d" % number for number in range(first, first + count)]
    return Block([key] * count, values, list(range(first, first + count)))


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic("numbers", 2)
        yield broker


def at(number: int) -> TopicPartition:
    return TopicPartition("numbers", number)


def test_archive_keeps_partitions_offsets_times_and_headers(broker: EmbeddedBroker, tmp_path: Path):
    broker.append(at(0), Block([None, b"k"], [b"1", None], [30, 10], [(), (("a", b"\x00"), ("a", None))]))
    broker.append(at(1), block(0, 3))

    archived = archive_topic(broker, "numbers", tmp_path)

    assert rows_of(archived) == [
        (0, 0, None, b"1", 30, ()),
        (0, 1, b"k", None, 10, (("a", b"\x00"), ("a", None))),
        *((1, number, b"k", b"%d" % number, number, ()) for number in range(3)),
    ]
    assert archived.ends == {0: 2, 1: 3}
    assert rows_of(read_archive(Place(str(tmp_path)), "numbers")) == rows_of(archived)


def test_an_archive_is_for_its_user_alone(broker: EmbeddedBroker, tmp_path: Path):
    """As the folder of a broker: keys and values are in it in clear."""
    broker.append(at(0), block(0, 3))

    archive_topic(broker, "numbers", tmp_path / "archive")

    assert (tmp_path / "archive").stat().st_mode & 0o777 == 0o700


def test_second_time_it_adds_what_is_new(broker: EmbeddedBroker, tmp_path: Path):
    broker.append(at(0), block(0, 3))
    archive_topic(broker, "numbers", tmp_path)
    broker.append(at(0), block(3, 2))
    broker.append(at(1), block(0, 1))

    archived = archive_topic(broker, "numbers", tmp_path)

    assert [row[:2] for row in rows_of(archived)] == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]
    assert rows_of(archive_topic(broker, "numbers", tmp_path)) == rows_of(archived)


def test_folder_is_the_archive_of_several_topics(broker: EmbeddedBroker, tmp_path: Path):
    broker.create_topic("letters", 1)
    broker.append(at(0), block(0, 3))
    broker.append(TopicPartition("letters", 0), block(7, 1))

    archive_topic(broker, "numbers", tmp_path)
    archive_topic(broker, "letters", tmp_path)

    assert {name: found.records for name, found in archived_topics(Place(str(tmp_path))).items()} == {
        "numbers": 3,
        "letters": 1,
    }


def test_records_that_were_deleted_before_the_first_time_are_no_gap(broker: EmbeddedBroker, tmp_path: Path):
    broker.append(at(0), block(0, 5))
    broker.delete_records(at(0), 2)

    assert [row[1] for row in rows_of(archive_topic(broker, "numbers", tmp_path))] == [2, 3, 4]


def test_records_that_were_deleted_before_they_were_archived_are_an_error(broker: EmbeddedBroker, tmp_path: Path):
    broker.append(at(0), block(0, 5))
    before = archive_topic(broker, "numbers", tmp_path)
    broker.append(at(0), block(5, 5))
    broker.delete_records(at(0), 7)

    with pytest.raises(ReplayError, match=r"numbers-0: the archive ends at offset 5, but the topic begins at 7 now: a"):
        archive_topic(broker, "numbers", tmp_path)

    assert rows_of(read_archive(Place(str(tmp_path)), "numbers")) == rows_of(before)


def test_records_that_are_archived_may_be_deleted(broker: EmbeddedBroker, tmp_path: Path):
    broker.append(at(0), block(0, 5))
    archive_topic(broker, "numbers", tmp_path)
    broker.delete_records(at(0), -1)
    broker.append(at(0), block(5, 1))

    assert [row[1] for row in rows_of(archive_topic(broker, "numbers", tmp_path))] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("count", [2, 5], ids=["shorter", "as long"])
def test_another_topic_of_the_same_name_is_an_error(broker: EmbeddedBroker, tmp_path: Path, count: int):
    broker.append(at(0), block(0, 4))
    archive_topic(broker, "numbers", tmp_path)
    broker.delete_topic("numbers")
    broker.create_topic("numbers", 2)
    broker.append(at(0), block(100, count))

    with pytest.raises(ReplayError, match="the topic was recreated since"):
        archive_topic(broker, "numbers", tmp_path)


def test_topic_with_more_partitions_than_before_is_an_error(broker: EmbeddedBroker, tmp_path: Path):
    archive_topic(broker, "numbers", tmp_path)
    broker.add_partitions("numbers", 4)

    with pytest.raises(ReplayError, match="has 'numbers' with 2 partitions, now it has 4, so keys have moved"):
        archive_topic(broker, "numbers", tmp_path)


def test_unknown_topic_is_an_error(broker: EmbeddedBroker, tmp_path: Path):
    with pytest.raises(UnknownTopicError, match="there is no topic 'nmbers'; the broker has numbers"):
        archive_topic(broker, "nmbers", tmp_path)


def test_only_committed_records_are_archived_and_holes_stay(broker: EmbeddedBroker, tmp_path: Path):
    """Offset 2 is the end of the first transaction, 3 to 5 the aborted one, 6 is in one that is open."""
    with Producer(broker, transactional_id="a") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_block(at(0), block(0, 2))
        producer.begin_transaction()
        producer.send_block(at(0), block(2, 2))
        producer.flush()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_block(at(0), block(4, 1))
        producer.flush()
        broker.append(at(0), block(5, 1))

        archived = archive_topic(broker, "numbers", tmp_path)
        assert [row[1] for row in rows_of(archived)] == [0, 1]
        assert archived.ends[0] == 6
        producer.commit_transaction()

    assert [row[1] for row in rows_of(archive_topic(broker, "numbers", tmp_path))] == [0, 1, 6, 7]


def test_deleted_markers_are_no_gap(broker: EmbeddedBroker, tmp_path: Path):
    with Producer(broker, transactional_id="a") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_block(at(0), block(0, 2))
    archive_topic(broker, "numbers", tmp_path)
    broker.delete_records(at(0), -1)

    assert archive_topic(broker, "numbers", tmp_path).ends[0] == 3


# --- of a state directory -------------------------------------------------------------------


def filled(folder: Path) -> None:
    with EmbeddedBroker(folder, maintenance_interval_ms=None) as broker:
        broker.create_topic("numbers", 2)
        broker.append(at(0), block(0, 3))
        producer = Producer(broker, transactional_id="a")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_block(at(1), block(3, 2))
        producer.send_block(at(0), block(5, 1))
        producer.flush()
        producer.abandon()


def test_state_directory_is_archived_and_not_touched(tmp_path: Path):
    """It has a transaction open, as a killed run leaves it, and a torn batch at the end of a segment."""
    filled(tmp_path / "broker")
    (segment,) = (tmp_path / "broker" / "logs" / "numbers-0").glob("*.log")
    with segment.open("ab") as file:
        file.write(b"\x00" * 30)
    before = digests(tmp_path / "broker")

    with offline_topics(tmp_path / "broker") as topics:
        archived = archive_offline(topics, "numbers", tmp_path / "archive")

    assert [row[:2] for row in rows_of(archived)] == [(0, 0), (0, 1), (0, 2)]
    assert archived.ends == {0: 3, 1: 0}
    assert digests(tmp_path / "broker") == before


def test_segments_that_are_archived_are_not_copied_again(tmp_path: Path):
    data = tmp_path / "broker"
    with EmbeddedBroker(data) as broker:
        broker.create_topic("numbers", 2, {"segment.bytes": "200"})
        for number in range(20):
            broker.append(at(0), block(number, 1))
    with offline_topics(data) as topics:
        archive_offline(topics, "numbers", tmp_path / "archive")
    with EmbeddedBroker(data) as broker:
        broker.append(at(0), block(20, 1))
        segments = len(list((data / "logs" / "numbers-0").glob("*.log")))

    with offline_topics(data) as topics:
        with topics.opened(at(0), tmp_path, 19) as copied:
            assert (copied.start_offset(at(0)) >= 15, copied.end_offset(at(0))) == (True, 21)
        archived = archive_offline(topics, "numbers", tmp_path / "archive")

    assert segments > 5
    assert [row[1] for row in rows_of(archived)] == list(range(21))


def test_deleted_records_are_a_gap_of_a_state_directory_too(tmp_path: Path):
    data = tmp_path / "broker"
    with EmbeddedBroker(data) as broker:
        broker.create_topic("numbers", 2)
        broker.append(at(0), block(0, 5))
    with offline_topics(data) as topics:
        archive_offline(topics, "numbers", tmp_path / "archive")
    with EmbeddedBroker(data) as broker:
        broker.append(at(0), block(5, 5))
        broker.delete_records(at(0), 8)

    with offline_topics(data) as topics, pytest.raises(ReplayError, match="a gap of 3 offsets"):
        archive_offline(topics, "numbers", tmp_path / "archive")


def test_no_broker_can_open_what_is_being_archived_nor_the_other_way_round(tmp_path: Path):
    filled(tmp_path)

    with offline_topics(tmp_path), pytest.raises(StateLockedError):
        EmbeddedBroker(tmp_path)
    with EmbeddedBroker(tmp_path), pytest.raises(StateLockedError, match="is in use by a broker"):
        with offline_topics(tmp_path):
            pass


def test_folder_without_a_broker_is_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="no embedded broker has kept topics here"), offline_topics(tmp_path):
        pass


# --- killed ---------------------------------------------------------------------------------

KILLED = """
import os, sys
from pathlib import Path
from streams.broker import offline_topics
from streams.replay.history.archive import archive_offline
from tests.replay.test_archive import contents

data, folder, steps = sys.argv[1], sys.argv[2], -1
EVENTS = ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.listdir", "shutil.rmtree")

def die(event, arguments):
    global steps
    if steps >= 0 and event in EVENTS and folder in str(arguments[0]):
        if not steps:
            os._exit(9)
        steps -= 1

sys.addaudithook(die)
for death in range(1000):
    if not (child := os.fork()):
        with offline_topics(Path(data)) as topics:
            steps = death
            archive_offline(topics, "numbers", folder)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not (child := os.fork()):
        print(status, contents(folder), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    if status != 9:
        break
"""


def contents(folder: str) -> list[tuple[int, int]]:
    """Partition and offset of all records."""
    return [row[:2] for row in rows_of(read_archive(Place(folder), "numbers"))]


@pytest.mark.slow
def test_archive_that_is_killed_is_as_it_was_or_whole(tmp_path: Path):
    """Killed before each thing that it does to a file of the archive."""
    data, folder = tmp_path / "broker", tmp_path / "archive"
    with EmbeddedBroker(data) as broker:
        broker.create_topic("numbers", 2)
        broker.append(at(0), block(0, 3))
        broker.append(at(1), block(0, 3))
    with offline_topics(data) as topics:
        archive_offline(topics, "numbers", folder)
    before = contents(str(folder))
    with EmbeddedBroker(data) as broker:
        broker.append(at(0), block(3, 4))

    killed = programs.run(["-c", KILLED, str(data), str(folder)])

    lines = killed.stdout.splitlines()
    after = sorted([*before, *((0, number) for number in range(3, 7))])
    assert len(lines) > 10, killed.stderr
    assert lines[-1] == f"0 {after}"
    reached = lines.index(f"9 {after}") if f"9 {after}" in lines else len(lines) - 1
    assert lines[:reached] == [f"9 {before}"] * reached
    names = sorted(name.partition("-")[0] for name in os.listdir(folder))
    assert names == [".lock", "MANIFEST.json", "archived", "archived"]


def test_what_others_keep_in_the_folder_is_left_alone(broker: EmbeddedBroker, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")

    archive_topic(broker, "numbers", tmp_path)

    assert (tmp_path / "notes.txt").read_text() == "mine"


# --- replayed -------------------------------------------------------------------------------

numbers = Topic("numbers", key=str, value=str)
counts = Topic("counts", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(numbers).group_by_key().count("counted").to_stream().to(counts)


def test_replay_of_an_archive_is_that_of_its_records(broker: EmbeddedBroker, tmp_path: Path):
    """With a hole, in slices that fall on both sides of it, grown in between."""
    broker.append(at(0), block(0, 4))
    broker.append(at(1), block(4, 2, key=b"j"))
    with Producer(broker, transactional_id="a") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_block(at(0), block(6, 3))
    archive_topic(broker, "numbers", tmp_path / "archive")
    options: dict[str, Any] = {"executor": "local", "processes": 1, "partitions": 2}
    options["directory"] = tmp_path / "replay"
    replay(topology, {numbers: Archive(tmp_path / "archive")}, slices=3, **options)
    broker.append(at(0), block(20, 2))
    archive_topic(broker, "numbers", tmp_path / "archive")

    result = replay(topology, {numbers: str(tmp_path / "archive")}, slices=2, resume=True, **options)

    assert sorted((row.key, row.value, row.timestamp_ms) for row in result.rows(counts)) == [
        ("j", 1, 4),
        ("j", 2, 5),
        *(("k", number + 1, time) for number, time in enumerate([0, 1, 2, 3, 6, 7, 8, 20, 21])),
    ]
    assert result.slices_skipped == 3
    ends = result.snapshot().ends("numbers")
    assert ends == {0: broker.end_offset(at(0)), 1: 2}


def test_archived_topic_can_be_replayed_under_another_name_if_that_is_said(broker: EmbeddedBroker, tmp_path: Path):
    broker.create_topic("numbers-v1", 1)
    broker.append(TopicPartition("numbers-v1", 0), block(0, 2))
    archive_topic(broker, "numbers-v1", tmp_path)
    options: dict[str, Any] = {"executor": "local", "processes": 1}

    with pytest.raises(ReplayError, match="is an archive of numbers-v1, not of 'numbers'"):
        replay(topology, {numbers: tmp_path}, **options)
    with replay(topology, {numbers: Archive(tmp_path, "numbers-v1")}, **options) as result:
        assert result.records == {"counts": 2}
