"""File storage: what survives, what is cut, what is deleted."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.broker.logs.file import FileStorage
from streams.core.blocks.records import Block
from streams.core.errors import ConfigError, DamagedLogError
from streams.protocol import batch
from streams.protocol.batch import CorruptBatchError


def one(value, key=None, time_ms=0):
    return Block([key], [value], [time_ms])


def values(storage):
    return [value for part in storage.read(0, 1_000_000) for value in part.values]


def filled(directory, count=10, **options):
    storage = FileStorage(directory, **options)
    for number in range(count):
        storage.append(one(b"%d" % number, time_ms=number))
    return storage


def last_segment(directory):
    return max(directory.glob("*.log"))


def test_segments_hold_record_batches_of_kafka(tmp_path):
    filled(tmp_path, 3).close()

    data = (tmp_path / "00000000000000000000.log").read_bytes()

    assert [block.values for block in batch.decode_all(data)] == [[b"0"], [b"1"], [b"2"]]


def test_everything_is_found_again_on_reopen(tmp_path):
    filled(tmp_path, 100, segment_bytes=500).close()

    storage = FileStorage(tmp_path, segment_bytes=500)

    assert values(storage) == [b"%d" % number for number in range(100)]
    assert storage.offset_for_timestamp(42) == (42, 42)
    assert storage.append(one(b"next")) == 100


POLICIES = pytest.mark.parametrize("fsync", ["never", "commit", "always"])


@POLICIES
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_batch_that_was_not_finished_is_cut(tmp_path_factory, fsync, data):
    """A killed process closes nothing.  Whatever its last append had written: the batches before it are left."""
    directory = tmp_path_factory.mktemp("log")
    storage = filled(directory, 5, fsync=fsync)
    storage.flush()
    size, noted = last_segment(directory).stat().st_size, (directory / "recovery-point").read_bytes()
    storage.append(one(b"unfinished"))
    os.truncate(last_segment(directory), data.draw(st.integers(size, last_segment(directory).stat().st_size - 1)))
    (directory / "recovery-point").write_bytes(noted)

    storage = FileStorage(directory)

    assert values(storage) == [b"0", b"1", b"2", b"3", b"4"]
    assert storage.append(one(b"again")) == 5
    storage.close()
    reopened = FileStorage(directory)
    assert values(reopened)[-1] == b"again"
    reopened.close()


@POLICIES
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_log_of_a_killed_process_that_has_lost_its_end_is_refused(tmp_path_factory, fsync, data):
    """As in a power failure, or in an incomplete copy: at any byte, and whole segments."""
    directory = tmp_path_factory.mktemp("log")
    filled(directory, 30, fsync=fsync, segment_bytes=500).flush()
    segments = sorted(directory.glob("*.log"))
    last = data.draw(st.integers(0, len(segments) - 1))
    for path in segments[last + 1 :]:
        path.unlink()
    os.truncate(segments[last], data.draw(st.integers(0, segments[last].stat().st_size - 1)))

    with pytest.raises(DamagedLogError, match=segments[last].name):
        FileStorage(directory)


@POLICIES
def test_the_last_segments_of_a_killed_process_are_missed(tmp_path, fsync):
    filled(tmp_path, 30, fsync=fsync, segment_bytes=500).flush()
    segments = sorted(tmp_path.glob("*.log"))
    for path in segments[3:]:
        path.unlink()

    with pytest.raises(DamagedLogError, match="the log ends there, though it was whole up to 30 before"):
        FileStorage(tmp_path)


def test_with_commit_the_end_is_known_when_it_is_on_disk(tmp_path):
    """After a power failure the batches behind the last sync may be lost; those before it may not."""
    storage = filled(tmp_path, 3, fsync="commit")
    storage.flush()
    size = last_segment(tmp_path).stat().st_size
    storage.append(one(b"lost"))
    os.truncate(last_segment(tmp_path), size)

    assert values(FileStorage(tmp_path)) == [b"0", b"1", b"2"]


def test_garbage_behind_the_last_batch_is_cut(tmp_path):
    filled(tmp_path, 3).close()
    with last_segment(tmp_path).open("ab") as file:
        file.write(b"\x00" * 500)

    storage = FileStorage(tmp_path)

    assert storage.end_offset == 3
    assert storage.append(one(b"3")) == 3
    storage.close()
    assert values(FileStorage(tmp_path)) == [b"0", b"1", b"2", b"3"]


def test_damage_found_while_reading_is_an_error(tmp_path):
    storage = filled(tmp_path, 3, cache_bytes=0)
    storage.close()
    storage = FileStorage(tmp_path, cache_bytes=0)
    segment = last_segment(tmp_path)
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)

    with pytest.raises(CorruptBatchError, match="checksum"):
        storage.read(0, 10)


def test_truncation_deletes_whole_segments_and_survives_reopen(tmp_path):
    storage = filled(tmp_path, 100, segment_bytes=500)
    before = len(list(tmp_path.glob("*.log")))
    storage.truncate_before(50)
    assert len(list(tmp_path.glob("*.log"))) < before
    storage.close()

    reopened = FileStorage(tmp_path, segment_bytes=500)

    assert (reopened.start_offset, reopened.end_offset) == (50, 100)
    assert values(reopened)[0] == b"50"


def test_an_emptied_log_goes_on_at_its_end_after_reopen(tmp_path):
    storage = filled(tmp_path, 10)
    storage.truncate_before(10)
    storage.close()

    reopened = FileStorage(tmp_path)

    assert (reopened.start_offset, reopened.end_offset) == (10, 10)
    assert reopened.append(one(b"x")) == 10


def test_a_large_block_is_written_as_batches_of_bounded_size(tmp_path):
    storage = FileStorage(tmp_path)
    storage.append(Block([None] * 50, [b"x" * 100_000] * 50, [0] * 50))
    storage.close()

    data = last_segment(tmp_path).read_bytes()

    assert max(header.size for _, header in batch.headers(data)) < 1_048_588
    assert FileStorage(tmp_path).end_offset == 50


def test_compaction_rewrites_sealed_segments_and_survives_reopen(tmp_path):
    storage = FileStorage(tmp_path, segment_bytes=500)
    for number in range(100):
        storage.append(one(b"%d" % number, key=b"%d" % (number % 3)))
    sealed = storage.sealed_offset
    newest = set(range(sealed - 3, sealed))

    def keep(part):
        kept = [index for index, offset in enumerate(part.offsets) if offset in newest]
        return part.slice(kept[0], kept[-1] + 1) if kept else None

    assert storage.compact(sealed, keep) == 3
    expected = [b"%d" % number for number in range(sealed - 3, 100)]
    assert values(storage) == expected
    storage.close()

    reopened = FileStorage(tmp_path, segment_bytes=500)

    assert values(reopened) == expected
    assert (reopened.start_offset, reopened.end_offset) == (0, 100)


def test_a_segment_left_over_from_a_crashed_compaction_is_removed(tmp_path):
    """The joined file is in place, the files joined into it are not deleted yet."""
    filled(tmp_path, 100, segment_bytes=500).close()
    first, second, third = sorted(tmp_path.glob("*.log"))[:3]
    first.write_bytes(first.read_bytes() + second.read_bytes() + third.read_bytes())
    (tmp_path / "00000000000000000000.cleaned").write_bytes(b"half")

    storage = FileStorage(tmp_path, segment_bytes=500)

    assert values(storage) == [b"%d" % number for number in range(100)]
    assert not second.exists()
    assert not third.exists()
    assert list(tmp_path.glob("*.cleaned")) == []


def test_an_unknown_fsync_policy_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="sometimes"):
        FileStorage(tmp_path, fsync="sometimes")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_files_are_compressed_as_the_topic_says(tmp_path, codec):
    storage = FileStorage(tmp_path, compression=codec, cache_bytes=0)
    storage.append(Block([None] * 100, [b"the same"] * 100, [0] * 100, compression="gzip"))
    storage.close()

    [(_, header)] = batch.headers(last_segment(tmp_path).read_bytes())

    assert header.compression == codec
    assert values(FileStorage(tmp_path)) == [b"the same"] * 100


def test_files_are_compressed_as_the_producer_says_where_the_topic_leaves_it_to_it(tmp_path):
    """Also after compaction has written them anew."""
    storage = FileStorage(tmp_path, segment_bytes=200)
    for codec in ("none", "zstd", "lz4", "lz4"):
        storage.append(Block([None] * 100, [b"the same"] * 100, [0] * 100, compression=codec))
    storage.compact(storage.sealed_offset, lambda part: part.slice(0, 50))
    storage.close()

    data = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("*.log")))

    assert [(header.compression, header.record_count) for _, header in batch.headers(data)] == [
        ("none", 50),
        ("zstd", 50),
        ("lz4", 50),
        ("lz4", 100),
    ]


def test_an_unknown_compression_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="brotli"):
        FileStorage(tmp_path, compression="brotli")


def test_a_segment_ends_where_records_are_younger_than_it_may_span(tmp_path):
    """As in Kafka by the records' times: the first of the segment, and the one that comes."""
    storage = FileStorage(tmp_path, segment_ms=1_000)
    for time_ms in (5_000, 5_900, 6_000, 6_001, 100, 7_500):
        storage.append(one(b"x", time_ms=time_ms))

    assert [extent.base_offset for extent in storage.extents()] == [0, 3, 5]


def test_records_without_a_time_do_not_end_a_segment(tmp_path):
    storage = FileStorage(tmp_path, segment_ms=1)
    for _ in range(3):
        storage.append(one(b"x", time_ms=-1))

    assert len(storage.extents()) == 1
