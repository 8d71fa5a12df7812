"""From a snapshot to live: nothing is missing, nothing comes twice, wherever it is interrupted."""

import json
from pathlib import Path

import pytest

from streams import EmbeddedBroker, Streams
from streams.bounded import run_bounded
from streams.core.blocks.records import TopicPartition
from streams.files import open_input
from streams.replay import HandOverError, Snapshot, SnapshotError, go_live, lay_down, publish, replay
from streams.replay.storage.places import Place
from tests import programs
from tests.replay import handover
from tests.replay.handover import (
    PARTITIONS,
    clicks,
    fill,
    history,
    names,
    priced,
    prices,
    sums,
    topology,
    visits,
    windowed,
)

OUTPUTS = (windowed, visits, priced, sums)
WHOLE, CUT = 160, 101


def write(folder: Path, size: int) -> dict[str, str]:
    """Write record files of the history."""
    result = {}
    for topic in (clicks, prices, names):
        path = folder / f"{topic.name}-{size}.records.jsonl"
        rows = history(topic.name, size)
        path.write_text("".join(json.dumps({"key": k, "value": v, "timestamp": t}) + "\n" for k, v, t in rows))
        result[topic.name] = str(path)
    return result


def rows_of(read) -> dict[str, list]:
    return {
        topic.name: [
            (number, key, value, time)
            for number, block in read(topic.name)
            for key, value, time in zip(block.keys, block.values, block.timestamps, strict=True)
        ]
        for topic in OUTPUTS
    }


def by_partition(rows: list) -> dict[int, list]:
    result: dict[int, list] = {}
    for number, *row in rows:
        result.setdefault(number, []).append(tuple(row))
    return result


def run_live(folder: Path | None, size: int, files: dict[str, str]) -> dict[str, list]:
    """Run bounded over files, which is live with an end, and return what it wrote."""
    topics = {topic.name: topic for topic in (clicks, prices, names)}
    with run_bounded(
        topology,
        {name: open_input(topics[name], path) for name, path in files.items()},
        application_id="app",
        partitions=PARTITIONS,
        state_dir=folder,
    ) as run:
        return rows_of(run.read_output)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What one live run over all of history writes."""
    folder = tmp_path_factory.mktemp("whole")
    return run_live(None, WHOLE, write(folder, WHOLE))


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """A snapshot of the first part, and what its replay wrote."""
    folder = tmp_path_factory.mktemp("replayed")
    with replay(
        topology, write(folder, CUT), executor="local", processes=1, partitions=PARTITIONS, application_id="app"
    ) as result:
        result.save(folder / "snapshot")
        return folder / "snapshot", rows_of(result.read)


def assert_goes_on(whole, first, rest):
    """What replay and live wrote together is what the live run alone wrote, partition by partition."""
    for topic in OUTPUTS:
        expected, one, two = (by_partition(rows[topic.name]) for rows in (whole, first, rest))
        assert {number: one.get(number, []) + two.get(number, []) for number in expected} == expected, topic.name


def die_before_each(verb: str, snapshot: Path, folder: Path, steps: list[str]) -> None:
    """Die before one step after the other, and at last get through; what is done already is not done again."""
    for step in [*steps, "none"]:
        ended = programs.run(["-m", handover.__name__, verb, str(snapshot), str(folder), step])
        assert ended.returncode == (0 if step == "none" else 9), (step, ended.stderr)


@pytest.mark.slow
def test_live_run_from_a_snapshot_writes_what_is_missing(tmp_path, whole, replayed):
    snapshot, first = replayed
    lay_down(Snapshot.open(Place(str(snapshot))), tmp_path / "state")

    rest = run_live(tmp_path / "state", WHOLE, write(tmp_path, WHOLE))

    assert_goes_on(whole, first, rest)


@pytest.mark.slow
def test_laying_down_killed_before_each_step_is_simply_repeated(tmp_path, whole, replayed):
    """One folder, in which the process dies again and again, a step later each time."""
    snapshot, first = replayed

    steps: list[str] = []
    lay_down(Snapshot.open(Place(str(snapshot))), tmp_path / "elsewhere", on_step=steps.append)

    die_before_each("lay-down", snapshot, tmp_path / "state", steps)

    assert {"create topics", "load changelogs", "commit offsets", "write the marker"} <= set(steps)
    assert_goes_on(whole, first, run_live(tmp_path / "state", WHOLE, write(tmp_path, WHOLE)))


def test_laying_down_is_done_once(tmp_path, whole, replayed):
    snapshot, first = replayed
    loaded = Snapshot.open(Place(str(snapshot)))
    lay_down(loaded, tmp_path / "state")
    rest = run_live(tmp_path / "state", WHOLE, write(tmp_path, WHOLE))

    lay_down(loaded, tmp_path / "state")

    assert_goes_on(whole, first, rest)
    assert run_live(tmp_path / "state", WHOLE, write(tmp_path, WHOLE)) == rest


def live_broker(folder: Path, size: int) -> EmbeddedBroker:
    broker = EmbeddedBroker(folder / "broker", maintenance_interval_ms=None)
    for topic in (clicks, prices, names, *OUTPUTS):
        if topic.name not in broker.topics():
            broker.create_topic(topic.name, PARTITIONS)
    fill(broker, size)
    return broker


def run_streams(broker: EmbeddedBroker) -> dict[str, list]:
    """Run unbounded until everything is committed, and return what was written."""
    settings = {"commit_interval_ms": 10, "max_task_idle_ms": 500}
    with Streams(topology, application_id="app", broker=broker, **settings) as streams:
        while not streams.wait(20):
            ends = {
                TopicPartition(topic.name, number): broker.end_offset(TopicPartition(topic.name, number))
                for topic in (clicks, prices)
                for number in range(PARTITIONS)
            }
            from streams import Admin

            with Admin(broker) as admin:
                committed = admin.committed_offsets("app")
                internal = [tp for tp in committed if "repartition" in tp.topic and "lanes" not in tp.topic]
                ends |= {tp: broker.end_offset(tp) for tp in internal}
            done = all(tp in committed and committed[tp].offset >= end for tp, end in ends.items())
            if done and internal:
                break
    return {
        topic.name: [
            (number, key, value, time)
            for number in range(PARTITIONS)
            for block in broker.read(TopicPartition(topic.name, number), 0)
            for key, value, time in zip(block.keys, block.values, block.timestamps, strict=True)
        ]
        for topic in OUTPUTS
    }


@pytest.mark.slow
def test_application_goes_live_on_a_broker_that_has_its_topics(tmp_path, whole, replayed):
    """Killed before each step, then repeated; the running application adds what the replay has not written."""
    snapshot, first = replayed
    live_broker(tmp_path, WHOLE).close()

    steps: list[str] = []
    with live_broker(tmp_path / "elsewhere", WHOLE) as broker:
        go_live(Snapshot.open(Place(str(snapshot))), broker, on_step=steps.append)

    die_before_each("go-live", snapshot, tmp_path, steps)

    assert steps[0] == "check"
    assert steps[-2:] == ["commit offsets", "done"]
    with live_broker(tmp_path, WHOLE) as broker:
        assert go_live(Snapshot.open(Place(str(snapshot))), broker).was_live
        rest = run_streams(broker)
    for topic in (priced, sums):
        expected, one, two = (by_partition(rows[topic.name]) for rows in (whole, first, rest))
        assert {number: one.get(number, []) + two.get(number, []) for number in expected} == expected, topic.name
    # Several tasks write these partitions, in an order that is a race live: what each writes is not.
    assert sorted(whole["windowed"]) == sorted(first["windowed"] + rest["windowed"])


@pytest.mark.slow
def test_gap_between_snapshot_and_topic_is_refused(tmp_path, replayed):
    snapshot = Snapshot.open(Place(str(replayed[0])))
    with live_broker(tmp_path, WHOLE) as broker:
        partition = TopicPartition("clicks", 0)
        end = snapshot.ends("clicks")[0]
        broker.delete_records(partition, end + 2)

        with pytest.raises(HandOverError, match=r"clicks-0 begins at offset \d+.* a gap of 2 records"):
            go_live(snapshot, broker)

        assert not [name for name in broker.topics() if name.startswith("app-")]


@pytest.mark.slow
def test_topic_that_is_shorter_than_the_history_is_refused(tmp_path, replayed):
    with (
        live_broker(tmp_path, 20) as broker,
        pytest.raises(HandOverError, match="its history was not that of this topic"),
    ):
        go_live(Snapshot.open(Place(str(replayed[0]))), broker)


def test_group_at_work_is_refused(tmp_path, replayed):
    with (
        live_broker(tmp_path, WHOLE) as broker,
        Streams(topology, application_id="app", broker=broker) as streams,
    ):
        while not streams.tasks():
            streams.wait(10)
        with pytest.raises(HandOverError, match="active members"):
            go_live(Snapshot.open(Place(str(replayed[0]))), broker)


@pytest.mark.slow
def test_offsets_of_its_own_are_refused_unless_forced(tmp_path, replayed):
    snapshot = Snapshot.open(Place(str(replayed[0])))
    with live_broker(tmp_path, WHOLE) as broker:
        from streams import Admin

        with Admin(broker) as admin:
            admin.alter_offsets("app", {TopicPartition("clicks", 0): 3})
        with pytest.raises(HandOverError, match="has committed offsets already"):
            go_live(snapshot, broker)
        assert not go_live(snapshot, broker, force=True).was_live


@pytest.mark.slow
def test_state_directory_of_another_run_is_refused(tmp_path, replayed):
    run_live(tmp_path / "state", 10, write(tmp_path, 10))
    with pytest.raises(HandOverError, match="holds another run already"):
        lay_down(Snapshot.open(Place(str(replayed[0]))), tmp_path / "state")


def test_damaged_snapshot_is_named(tmp_path, replayed):
    with replay(topology, write(tmp_path, 40), executor="local", processes=1, application_id="app") as result:
        saved = result.save(tmp_path / "snapshot")
    assert saved.verify() == []
    victim, other = sorted(saved.files)[:2]
    data = bytearray((tmp_path / "snapshot" / victim).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "snapshot" / victim).unlink()
    (tmp_path / "snapshot" / victim).write_bytes(data)
    (tmp_path / "snapshot" / other).unlink()

    assert saved.verify() == [f"{victim}: its bytes have changed", f"{other}: is missing"]
    with pytest.raises(HandOverError, match="is missing"):
        lay_down(saved, tmp_path / "state")
    assert not (tmp_path / "state").exists()


@pytest.mark.slow
def test_folder_without_a_manifest_is_no_snapshot(tmp_path):
    with pytest.raises(SnapshotError, match="it may be unfinished"):
        Snapshot.open(Place(str(tmp_path)))


@pytest.mark.slow
def test_outputs_published_before_lie_in_front_of_the_live_ones(tmp_path, whole, replayed):
    """A state directory to which only the replay's outputs were published is free to go live in."""
    snapshot, first = replayed
    loaded = Snapshot.open(Place(str(snapshot)))
    with EmbeddedBroker(tmp_path / "state" / "broker") as broker:
        publish(loaded, broker)

    lay_down(loaded, tmp_path / "state")
    everything = run_live(tmp_path / "state", WHOLE, write(tmp_path, WHOLE))

    assert {name: by_partition(rows) for name, rows in everything.items()} == {
        name: by_partition(rows) for name, rows in whole.items()
    }
    assert all(everything[name][: len(rows)] != [] for name, rows in first.items())
