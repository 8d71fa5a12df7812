"""Where a snapshot may go live: on topics with the history that was replayed, or behind the time at which it ends."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from streams import Admin, EmbeddedBroker, InputError, Streams, StreamsBuilder, Topic
from streams.core.blocks.records import Block, TopicPartition
from streams.replay import HandOverError, ReplayError, Snapshot, archive_topic, go_live, replay

orders = Topic("orders", key=str, value=int)
names = Topic("names", key=str, value=str)
totals = Topic("totals", key=str, value=int)
LOCAL: dict[str, Any] = {"executor": "local", "processes": 1, "application_id": "app"}
HOUR = 3_600_000
#: The last of the history that is replayed.
LAST = 9 * HOUR

Row = tuple[str, int, int]


def topology(builder: StreamsBuilder) -> None:
    builder.stream(orders).group_by_key().aggregate(
        lambda: 0, lambda _, cents, total: total + cents, name="sums"
    ).to_stream().to(totals)


def history(count: int = 10, *, first: int = 0, cents: int = 1) -> list[Row]:
    """Records of one key, an hour apart."""
    return [("ann", cents, number * HOUR) for number in range(first, first + count)]


def fill(broker: EmbeddedBroker, rows: Sequence[Row], topic: str = "orders") -> None:
    for key, cents, time in rows:
        broker.append(TopicPartition(topic, 0), Block([key.encode()], [cents.to_bytes(8, "big")], [time]))


def of_files(folder: Path, rows: Sequence[Row], **more: Any) -> Snapshot:
    path = folder / "orders.records.jsonl"
    path.write_text("".join(json.dumps({"key": k, "value": v, "timestamp": t}) + "\n" for k, v, t in rows))
    with replay(topology, {orders: path}, **LOCAL, **more) as result:
        return result.save(folder / "snapshot")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders", 1)
        broker.create_topic("totals", 1)
        yield broker


def committed(broker: EmbeddedBroker) -> int:
    with Admin(broker) as admin:
        return admin.committed_offsets("app")[TopicPartition("orders", 0)].offset


def test_files_that_are_the_history_of_the_topic_go_live_by_their_rows(tmp_path: Path, broker: EmbeddedBroker):
    fill(broker, history(12))

    go_live(of_files(tmp_path, history(10)), broker)

    assert committed(broker) == 10


@pytest.mark.slow
def test_files_do_not_go_live_on_a_topic_with_another_history(tmp_path: Path, broker: EmbeddedBroker):
    fill(broker, history(20, first=3))

    with pytest.raises(HandOverError) as caught:
        go_live(of_files(tmp_path, history(10)), broker)

    assert "orders-0: its record at offset 9 is not the one that was replayed" in str(caught.value)
    assert "give the end of this one with --cut orders=TIME (its last record is of 1970-01-01T09:00:00Z)" in str(
        caught.value
    )
    assert not [name for name in broker.topics() if name.startswith("app-")]
    with Admin(broker) as admin:
        assert not admin.committed_offsets("app")


@pytest.mark.slow
def test_shorter_topic_and_topic_that_lost_the_record_are_refused_with_the_way_out(
    tmp_path: Path, broker: EmbeddedBroker
):
    snapshot = of_files(tmp_path, history(10))
    fill(broker, history(3, first=10))
    with pytest.raises(HandOverError, match=r"its history was not that of this topic; .*--cut orders=TIME"):
        go_live(snapshot, broker)
    fill(broker, history(10, first=13))
    broker.delete_records(TopicPartition("orders", 0), 10)
    with pytest.raises(HandOverError, match=r"no longer has a record at offset 9.*--cut orders=TIME"):
        go_live(snapshot, broker)


@pytest.mark.case
@pytest.mark.parametrize("time", ["1970-01-01T09:30:00Z", LAST + 1, str(10 * HOUR)])
def test_cut_by_time_goes_on_with_the_first_record_from_then_on(time: Any, tmp_path: Path, broker: EmbeddedBroker):
    """The topic has the last five hours of history, and goes on behind it: each record counts once."""
    fill(broker, history(9, first=5))
    snapshot = of_files(tmp_path, history(10))

    done = go_live(snapshot, broker, cut={orders: time})

    assert (done.was_live, committed(broker)) == (False, 5)
    assert go_live(snapshot, broker, cut={orders: time}).was_live
    assert go_live(snapshot, broker).was_live
    with Streams(topology, application_id="app", broker=broker, commit_interval_ms=10) as streams:
        while committed(broker) < 9:
            streams.wait(10)
        assert streams.store("sums").get("ann").value == 14


def test_cut_behind_the_end_of_the_topic_goes_on_there(tmp_path: Path, broker: EmbeddedBroker):
    fill(broker, history(5, first=5))

    go_live(of_files(tmp_path, history(10)), broker, cut={"orders": LAST + 1})

    assert committed(broker) == 5


@pytest.mark.slow
def test_cut_with_a_gap_or_an_overlap_is_refused(tmp_path: Path, broker: EmbeddedBroker):
    fill(broker, history(9, first=5))
    snapshot = of_files(tmp_path, history(10))

    with pytest.raises(HandOverError, match=r"goes up to 1970-01-01T09:00:00Z, so its records from the cut on would"):
        go_live(snapshot, broker, cut={"orders": LAST})
    with pytest.raises(HandOverError, match=r"orders-0: between the end .* it has 2 offsets that would be skipped"):
        go_live(snapshot, broker, cut={"orders": 12 * HOUR})
    broker.delete_records(TopicPartition("orders", 0), 6)
    with pytest.raises(
        HandOverError, match=r"orders-0: begins at offset 6, .* records deleted before them may be a gap"
    ):
        go_live(snapshot, broker, cut={"orders": LAST + 1})
    with Admin(broker) as admin:
        assert not admin.committed_offsets("app")


@pytest.mark.slow
def test_until_the_cut_is_the_way_out_of_an_overlap(tmp_path: Path, broker: EmbeddedBroker):
    fill(broker, history(9, first=5))

    go_live(of_files(tmp_path, history(10), until=8 * HOUR), broker, cut={"orders": 8 * HOUR})

    assert committed(broker) == 3


def test_cut_is_for_history_of_files_only(tmp_path: Path, broker: EmbeddedBroker):
    fill(broker, history(10))
    archive_topic(broker, "orders", tmp_path / "archive")
    with replay(topology, {orders: tmp_path / "archive"}, **LOCAL) as result:
        archived = result.save(tmp_path / "archived")

    with pytest.raises(HandOverError, match="cut orders: its history has the offsets of the topic"):
        go_live(archived, broker, cut={"orders": LAST + 1})
    snapshot = of_files(tmp_path, history(10))
    with pytest.raises(HandOverError, match="cut order: the snapshot has no input 'order'; it has orders"):
        go_live(snapshot, broker, cut={"order": 1})
    with pytest.raises(InputError, match="cut orders 'noon': give a time such as"):
        go_live(snapshot, broker, cut={"orders": "noon"})


@pytest.mark.slow
def test_archive_of_a_topic_that_was_made_anew_is_told(tmp_path: Path, broker: EmbeddedBroker):
    fill(broker, history(10))
    archive_topic(broker, "orders", tmp_path / "archive")
    with replay(topology, {orders: tmp_path / "archive"}, **LOCAL) as result:
        snapshot = result.save(tmp_path / "snapshot")
    broker.delete_topic("orders")
    broker.create_topic("orders", 1)
    fill(broker, history(30, cents=2))

    with pytest.raises(HandOverError, match=r"orders-0: its record at offset 9 is not .* the topic was recreated"):
        go_live(snapshot, broker)


@pytest.mark.slow
def test_table_that_is_restored_from_its_topic_has_no_cut(tmp_path: Path, broker: EmbeddedBroker):
    def joined(builder: StreamsBuilder) -> None:
        table = builder.table(names, store="names-store")
        builder.stream(orders).join(table, lambda cents, name: cents + len(name)).to(totals)

    (tmp_path / "names.records.jsonl").write_text('{"key": "ann", "value": "Ann", "timestamp": 0}\n')
    with replay(joined, {names: tmp_path / "names.records.jsonl"}, **LOCAL) as result:
        snapshot = result.save(tmp_path / "snapshot")
    broker.create_topic("names", 1)

    if snapshot.live.source_changelogs:
        with pytest.raises(HandOverError, match="table 'names-store' is restored from the topic itself"):
            go_live(snapshot, broker, cut={"names": 1})


def test_replay_does_not_go_on_from_files_with_another_history(tmp_path: Path, broker: EmbeddedBroker):
    """Numbers of rows are no offsets of an archive either, unless it has the very records of the files."""
    snapshot = of_files(tmp_path, history(10))
    fill(broker, history(12))
    archive_topic(broker, "orders", tmp_path / "same")
    broker.delete_topic("orders")
    broker.create_topic("orders", 1)
    fill(broker, history(30, first=5))
    archive_topic(broker, "orders", tmp_path / "other")

    with replay(topology, {orders: tmp_path / "same"}, state_from=tmp_path / "snapshot", **LOCAL) as result:
        assert result.stores["sums"]["ann"] == 12
    with pytest.raises(ReplayError, match="was replayed from files, and row numbers are not offsets of this history"):
        replay(topology, {orders: tmp_path / "other"}, state_from=tmp_path / "snapshot", **LOCAL)
    with replay(topology, {orders: tmp_path / "same"}, **LOCAL) as result:
        result.save(tmp_path / "archived")
    with pytest.raises(ReplayError, match="was replayed from another history of this name"):
        replay(topology, {orders: tmp_path / "other"}, state_from=tmp_path / "archived", **LOCAL)
    assert snapshot.is_of_files("orders")


@pytest.mark.slow
def test_replay_is_not_resumed_with_offsets_in_place_of_rows(tmp_path: Path, broker: EmbeddedBroker):
    of_files(tmp_path, history(10), directory=tmp_path / "work")
    fill(broker, history(30, first=5))
    archive_topic(broker, "orders", tmp_path / "archive")

    with pytest.raises(ReplayError, match="has read topic 'orders' from files before: row numbers are not offsets"):
        replay(topology, {orders: tmp_path / "archive"}, directory=tmp_path / "work", resume=True, **LOCAL)


@pytest.mark.slow
def test_replay_is_not_resumed_with_another_archive(tmp_path: Path, broker: EmbeddedBroker):
    fill(broker, history(10))
    archive_topic(broker, "orders", tmp_path / "archive")
    work: dict[str, Any] = {"directory": tmp_path / "work", "slices": 2, **LOCAL}
    with replay(topology, {orders: tmp_path / "archive"}, **work) as result:
        assert result.stores["sums"]["ann"] == 10
    fill(broker, history(5, first=10))
    archive_topic(broker, "orders", tmp_path / "archive")
    shutil.move(tmp_path / "archive", tmp_path / "moved")
    with replay(topology, {orders: tmp_path / "moved"}, resume=True, **work) as result:
        assert result.stores["sums"]["ann"] == 15
    broker.delete_topic("orders")
    broker.create_topic("orders", 1)
    fill(broker, history(30, cents=2))
    archive_topic(broker, "orders", tmp_path / "archive")

    with pytest.raises(ReplayError, match="another archive was read before; an archive may only grow at its end"):
        replay(topology, {orders: tmp_path / "archive"}, resume=True, **work)
