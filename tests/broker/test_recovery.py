"""Damaged logs: a torn tail is cut, anything else is an error that changes nothing; repair loses what it must."""

import itertools
import os
from random import Random

import pytest

from streams.broker.logs.file import FileStorage
from streams.broker.logs.storage import picked
from streams.broker.repair import repair
from streams.core.blocks.records import Block, ProducerStamp
from streams.core.errors import DamagedLogError
from streams.protocol import batch

SEGMENT_BYTES = 4_000


def opened(directory):
    return FileStorage(directory, SEGMENT_BYTES, cache_bytes=0, is_known=True)


def written(directory, rng, *, is_closed=True):
    """Write some hundred records, perhaps thinned out and with a start; return values by offset, start and end."""
    storage = FileStorage(directory, SEGMENT_BYTES, compression=rng.choice(["none", "zstd"]))
    offset = sequence = 0
    for _ in range(90):
        numbers = range(offset, offset + rng.randrange(1, 6))
        stamp = ProducerStamp(7, 0, sequence) if rng.random() < 0.5 else None
        keys, contents = [b"%d" % (n % 17) for n in numbers], [b"%d." % n + rng.randbytes(60) for n in numbers]
        storage.append(Block(keys, contents, [1] * len(numbers), None, range(len(numbers)), stamp))
        offset += len(numbers)
        sequence += len(numbers) if stamp else 0
    if rng.random() < 0.4:
        newest = set(
            {
                key: at for part in storage.read(0, 9_999) for key, at in zip(part.keys, part.offsets, strict=True)
            }.values()
        )

        def keep(part):
            indexes = [index for index, at in enumerate(part.offsets) if at in newest]
            return picked(part, indexes) if indexes else None

        storage.compact(storage.sealed_offset, keep)
    if rng.random() < 0.3:
        storage.truncate_before(rng.randrange(offset))
    found = read(storage), storage.start_offset, storage.end_offset
    if is_closed:
        storage.close()
    return found


def read(storage):
    """Return the values by offset, as a reader gets them that goes from the start to the end."""
    found, offset = {}, storage.start_offset
    while offset < storage.end_offset:
        blocks = storage.read(offset, 50)
        assert blocks, f"a reader at {offset} never gets to the end at {storage.end_offset}"
        for block in blocks:
            if block.producer is None or not block.producer.is_control:
                found.update(zip(block.offsets, block.values, strict=True))
        offset = blocks[-1].offsets[-1] + 1
    return found


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def damage(directory, rng):
    path = rng.choice([path for path in sorted(directory.glob("*.log")) if path.stat().st_size])
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data))
    match rng.choice(["flip", "flip in a header", "truncate", "zero page", "junk", "doubled tail", "delete"]):
        case "flip":
            data[place] ^= 1 << rng.randrange(8)
        case "flip in a header":
            at = rng.choice([at for at, _ in batch.headers(bytes(data))])
            data[at + rng.randrange(batch.HEADER_SIZE)] ^= 1 << rng.randrange(8)
        case "truncate":
            del data[place:]
        case "zero page":
            data[place : place + 512] = bytes(len(data[place : place + 512]))
        case "junk":
            data += rng.randbytes(rng.randrange(1, 300))
        case "doubled tail":
            data += data[-rng.randrange(1, min(600, len(data))) :]
        case "delete":
            path.unlink()
            return
    path.write_bytes(data)


@pytest.mark.case(5)
@pytest.mark.parametrize("seed", range(40))
def test_no_damage_gives_a_wrong_value_or_takes_a_byte_away(tmp_path, seed):
    rng = Random(seed)
    is_closed = rng.random() < 0.6
    values, _, end = written(tmp_path, rng, is_closed=is_closed)
    damage(tmp_path, rng)
    before = contents(tmp_path)

    try:
        storage = opened(tmp_path)
        lost = []
    except DamagedLogError:
        assert repair(tmp_path, is_trial=True)
        lost = repair(tmp_path, is_trial=False)
        storage = opened(tmp_path)

    found, gone = read(storage), {offset for loss in lost for offset in range(loss.offset, loss.next_offset)}
    assert {offset: value for offset, value in found.items() if values.get(offset) != value} == {}
    missing = sorted(set(values) - set(found) - gone)
    # Of a log that nobody closed the end may go: it is a torn tail as far as anybody can tell.
    assert missing == (sorted(values)[-len(missing) :] if missing and not is_closed else [])
    assert storage.end_offset == end or not is_closed
    after = contents(tmp_path)
    kept = b"".join(data for name, data in after.items() if ".cut-" in name or ".damaged-" in name)
    for name, data in before.items():
        now = after.get(name, b"")
        assert now == data or data[len(now) :].strip(b"\0") in kept or data in kept, name
    storage.close()


def test_damage_with_whole_batches_behind_it_is_an_error_with_its_place(tmp_path):
    """Not closed: were it the tail, it would be cut."""
    storage = FileStorage(tmp_path)
    for number in range(10):
        storage.append(Block([None], [b"%d" % number], [0]))
    path = tmp_path / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    size = len(data) // 10
    data[4 * size - 1] ^= 1
    path.write_bytes(data)

    with pytest.raises(DamagedLogError, match=r"at offset 3.*byte 207.*nothing was changed.*--repair") as caught:
        opened(tmp_path)

    error = caught.value
    assert (error.code, error.partition, error.path) == (56, tmp_path.name, str(path))
    assert (error.position, error.offset) == (3 * size, 3)
    assert path.read_bytes() == data
    (loss,) = repair(tmp_path, is_trial=True)
    assert (loss.offset, loss.next_offset, loss.size) == (3, 4, size)
    assert path.read_bytes() == data, "shown only"
    assert repair(tmp_path, is_trial=False) == [loss]
    storage = opened(tmp_path)
    assert read(storage) == {number: b"%d" % number for number in range(10) if number != 3}
    assert storage.append(Block([None], [b"next"], [0])) == 10
    assert (tmp_path / f"{path.name}.damaged-1").read_bytes() == data


def test_a_log_that_was_closed_has_no_torn_tail(tmp_path):
    """Its last batch is gone, and no offset is given twice after the repair."""
    storage = FileStorage(tmp_path)
    for number in range(5):
        storage.append(Block([None], [b"%d" % number], [0]))
    storage.close()
    path = tmp_path / "00000000000000000000.log"
    os.truncate(path, path.stat().st_size // 5 * 4)

    with pytest.raises(DamagedLogError, match="ends there, though it was whole up to 5"):
        opened(tmp_path)

    repair(tmp_path, is_trial=False)
    storage = opened(tmp_path)
    assert read(storage) == {number: b"%d" % number for number in range(4)}
    assert storage.append(Block([None], [b"new"], [0])) == 5


def test_a_missing_segment_in_the_middle_is_an_error(tmp_path):
    written(tmp_path, Random(3))
    sorted(tmp_path.glob("*.log"))[2].unlink()

    with pytest.raises(DamagedLogError, match="are missing before segment"):
        opened(tmp_path)


def test_junk_behind_a_sealed_segment_is_kept_aside_and_nothing_is_missing(tmp_path):
    values, _, _ = written(tmp_path, Random(3))
    path = sorted(tmp_path.glob("*.log"))[1]
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"junk")

    assert read(opened(tmp_path)) == values
    assert (tmp_path / f"{path.name}.cut-{size}").read_bytes() == b"junk"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *itertools.product(
            ["log-start-offset", "recovery-point"], [b"garbage", b"5\n", b"00000000000000000120 00000000\n"]
        ),
        ("log-start-offset", b""),
    ],
)
def test_a_changed_note_of_offsets_is_named(tmp_path, name, content):
    storage = FileStorage(tmp_path, SEGMENT_BYTES)
    for number in range(100):
        storage.append(Block([None], [b"%d" % number], [0]))
    storage.truncate_before(10)
    storage.close()
    (tmp_path / name).write_bytes(content)

    with pytest.raises(DamagedLogError, match=f"{name}.*(is not an offset with its checksum|empty, and deleted)"):
        opened(tmp_path)
    repair(tmp_path, is_trial=False)
    assert opened(tmp_path).end_offset == 100


def test_a_file_with_another_name_is_left_alone(tmp_path):
    values, _, _ = written(tmp_path, Random(3))
    (tmp_path / "abc.log").write_bytes(b"somebody else's")

    assert read(opened(tmp_path)) == values
    assert (tmp_path / "abc.log").read_bytes() == b"somebody else's"


def test_a_known_partition_without_its_folder_is_an_error(tmp_path):
    with pytest.raises(DamagedLogError, match="the folder is missing"):
        opened(tmp_path / "words-0")
