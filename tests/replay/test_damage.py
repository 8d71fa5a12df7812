"""Bytes that changed on disk: whoever reads them says so, and never takes them for what was written."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams import EmbeddedBroker, InputError, StreamsBuilder, Topic
from streams.core.blocks.records import Block, TopicPartition
from streams.replay import HandOverError, ReplayError, Snapshot, archive_topic, lay_down, replay
from streams.replay.calls.outputs import read_topic
from streams.replay.history.archive import archived_topics
from streams.replay.history.inputs import input_of
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Segments

orders = Topic("orders", key=str, value=int)
totals = Topic("totals", key=str, value=int)
LOCAL: dict[str, Any] = {"executor": "local", "processes": 1, "application_id": "app"}
FLIPS = 60


def topology(builder: StreamsBuilder) -> None:
    builder.stream(orders).group_by_key().aggregate(
        lambda: 0, lambda _, cents, total: total + cents, name="sums"
    ).to_stream().to(totals)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive, a snapshot of its replay, and files of rows."""
    folder = tmp_path_factory.mktemp("made")
    with EmbeddedBroker() as broker:
        broker.create_topic("orders", 2)
        for number in range(2):
            keys = [b"k%d" % (index % 7) for index in range(200)]
            values = [(index * 31 % 997).to_bytes(8, "big") for index in range(200)]
            broker.append(TopicPartition("orders", number), Block(keys, values, list(range(200))))
        archive_topic(broker, "orders", folder / "archive")
    with replay(topology, {orders: folder / "archive"}, **LOCAL) as result:
        result.save(folder / "snapshot")
    return folder


def archived(folder: Path) -> Any:
    """All records of an archive, as a replay would read them."""
    assert input_of(folder)
    found = archived_topics(Place(str(folder)))["orders"]
    rows = [
        row
        for _, extents in sorted(found.extents.items())
        for b in Segments(Place("")).blocks(extents)
        for row in b.rows()
    ]
    return found.partitions, found.ends, rows


def kept(folder: Path) -> Any:
    """All that a snapshot has: positions, times, stores and outputs."""
    snapshot = Snapshot.open(Place(str(folder)))
    snapshot.check_files()
    stores = {
        (name, task): [row for block in snapshot.rows_of(ref) for row in block.rows()]
        for name, refs in snapshot.stores().items()
        for task, ref in refs.items()
    }
    outputs = [row for _, block in read_topic(snapshot.segments, snapshot.outputs, "totals") for row in block.rows()]
    return snapshot.live, snapshot.state.checkpoints, snapshot.inputs, stores, outputs


def flipped(path: Path, chance: random.Random) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.unlink()  # It may be linked to what another test reads.
    path.write_bytes(data)


@pytest.mark.parametrize(("what", "read"), [("archive", archived), ("snapshot", kept)])
@pytest.mark.parametrize("suffix", [".parquet", "MANIFEST.json"])
def test_a_flipped_bit_is_told_or_does_no_harm(
    what: str, read: Callable[[Path], Any], suffix: str, made: Path, tmp_path: Path
):
    whole = read(made / what)
    chance = random.Random(f"{what} {suffix}")
    told = 0
    for number in range(FLIPS):
        folder = tmp_path / str(number)
        shutil.copytree(made / what, folder)
        flipped(chance.choice(sorted(path for path in folder.rglob("*") if path.name.endswith(suffix))), chance)
        try:
            assert read(folder) == whole
        except (ReplayError, InputError) as error:
            told += 1
            assert str(folder) in str(error)  # noqa: PT017
    assert told == FLIPS


def test_damage_is_found_before_anything_is_laid_down(made: Path, tmp_path: Path):
    shutil.copytree(made / "snapshot", tmp_path / "snapshot")
    snapshot = Snapshot.open(Place(str(tmp_path / "snapshot")))
    flipped(tmp_path / "snapshot" / min(snapshot.state.files()), random.Random(1))

    with pytest.raises(HandOverError, match="is damaged: its bytes are not those that were written"):
        lay_down(snapshot, tmp_path / "state")
    assert not (tmp_path / "state").exists()
    with pytest.raises(ReplayError, match="is damaged"):
        replay(topology, {orders: made / "archive"}, state_from=tmp_path / "snapshot", **LOCAL)
    with pytest.raises(ReplayError, match="is damaged"):
        snapshot.save(Place(str(tmp_path / "copy")))


def test_damaged_archive_is_no_folder_of_files(made: Path, tmp_path: Path):
    shutil.copytree(made / "archive", tmp_path / "archive")
    manifest = tmp_path / "archive" / "MANIFEST.json"
    manifest.write_text(manifest.read_text()[:-20])

    with pytest.raises(ReplayError, match=r"MANIFEST\.json: is not a manifest of a replay, or is damaged"):
        replay(topology, {orders: tmp_path / "archive"}, **LOCAL)
    manifest.write_text((made / "archive" / "MANIFEST.json").read_text().replace('"partitions": 2', '"partitions": 9'))
    with pytest.raises(ReplayError, match="is damaged: its bytes are not those that were written"):
        replay(topology, {orders: tmp_path / "archive"}, **LOCAL)


def test_snapshot_is_no_history(made: Path):
    with pytest.raises(InputError, match="holds a snapshot, which is no history"):
        replay(topology, {orders: made / "snapshot"}, **LOCAL)
