"""Batches that come encoded stay so: kept, placed, handed out as bytes; what is in memory is encoded when it leaves."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.broker.logs.array import ArrayStorage
from streams.broker.logs.batches import BATCH_BYTES, EncodedStorage, at_append_time, pieces
from streams.broker.logs.config import parse_config
from streams.broker.logs.file import FileStorage
from streams.broker.logs.linked import LinkedStorage
from streams.broker.logs.log import PartitionLog
from streams.core.blocks.records import Block, ProducerStamp, TopicPartition
from streams.core.errors import BrokerError, OffsetOutOfRangeError, RecordTooLargeError
from streams.protocol import batch
from streams.protocol.batch import LOG_APPEND_TIME, CorruptBatchError, InvalidBatchError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.markers import marker
from streams.protocol.messages import READ_COMMITTED, READ_UNCOMMITTED
from streams.protocol.wire import EncodedBlock, fetched, produced

PARTITION = TopicPartition("words", 0)
PLENTY = 1 << 30
MAKE = {
    "array": lambda folder: ArrayStorage(),
    "linked": lambda folder: LinkedStorage(),
    "file": lambda folder: FileStorage(folder, 2_000, cache_bytes=0),
    "file with memory": lambda folder: FileStorage(folder, 2_000),
}


@pytest.fixture(params=MAKE)
def storage(request, tmp_path):
    storage = MAKE[request.param](tmp_path)
    yield storage
    storage.close()


def block(*values, producer=None, compression="none", time_ms=5):
    return Block([None] * len(values), list(values), [time_ms] * len(values), None, range(0), producer, compression)


def sent(*values, **settings):
    """What a producer sends: a batch at offset 0."""
    return produced(batch.encode(block(*values, **settings), 0, attributes=_codec(settings)))


def _codec(settings):
    return {"none": 0, "gzip": 1, "zstd": 4}[settings.get("compression", "none")]


def read(storage, offset=0, max_bytes=PLENTY, upto=None, is_first=True):
    return storage.read_encoded(offset, max_bytes, storage.end_offset if upto is None else upto, is_first=is_first)


def values_of(run, offset=0):
    rows = [row for found in fetched(b"".join(run.chunks)) for row in found.rows()]
    return [row[2] for row in rows if row[0] >= offset]


def test_the_broker_s_own_storages_hand_out_batches(storage):
    assert isinstance(storage, EncodedStorage)


def test_a_batch_is_handed_out_as_it_came_but_for_its_offset(storage):
    first, second = sent(b"a", b"b"), sent(b"c", compression="zstd")
    storage.append(first)
    storage.append(second)

    found = b"".join(read(storage).chunks)

    assert found == first.data + batch.moved(second.data, 2)


def test_a_batch_goes_through_as_the_bytes_that_came():
    good = sent(b"aaaa", b"bbbb").data
    storage = ArrayStorage()
    log = PartitionLog(PARTITION, storage, parse_config({}))

    log.append([EncodedBlock(good, batch.read_header(good))], 0)

    run = log.fetch_encoded(0, PLENTY, 0, READ_UNCOMMITTED, is_first=True)
    assert b"".join(run.chunks) == good
    assert storage.extents()[0].size_bytes == len(good)


def test_a_batch_whose_records_nobody_can_read_is_refused_and_nothing_of_it_kept():
    good = sent(b"aaaa", b"bbbb").data
    damaged = bytearray(good)
    damaged[61:] = b"\xff" * (len(good) - 61)
    storage = ArrayStorage()
    log = PartitionLog(PARTITION, storage, parse_config({}))

    with pytest.raises(InvalidBatchError, match="cannot be read"):
        log.append([EncodedBlock(bytes(damaged), batch.read_header(good))], 0)

    assert storage.extents() == []


def test_readers_in_this_process_see_records(storage):
    storage.append(sent(b"a", b"b"))
    storage.append(block(b"c"))
    storage.append(sent(b"d", compression="gzip"))

    rows = [(row[0], row[2]) for part in storage.read(1, 10) for row in part.rows()]

    assert rows == [(1, b"b"), (2, b"c"), (3, b"d")]


def test_what_was_appended_in_this_process_is_encoded_when_it_leaves(storage):
    storage.append(block(b"a", b"b"))
    storage.append(sent(b"c"))
    storage.append(block(b"d"))

    assert values_of(read(storage)) == [b"a", b"b", b"c", b"d"]
    assert values_of(read(storage, 3), 3) == [b"d"]


def test_large_blocks_leave_as_several_batches():
    """A client takes a megabyte at once: a block of three of them is cut, once and for all."""
    storage = ArrayStorage()
    storage.append(block(*[bytes(1_000)] * 3_000))

    run = read(storage, 0, 1 << 20)

    assert len(run.chunks) == 1
    assert BATCH_BYTES // 2 < run.size < BATCH_BYTES * 1.1
    assert len(storage.read(0, 3_000)) == 4


def test_pieces_go_on_counting_the_producer_s_sequence():
    whole = block(*[bytes(400_000)] * 5, producer=ProducerStamp(7, 0, sequence=40))
    whole.offsets = range(5)

    found = pieces(whole)

    assert [(len(piece), piece.producer.sequence) for piece in found] == [(1, 40), (2, 41), (2, 43)]


def test_as_many_batches_come_as_fit(storage):
    for name in (b"a", b"b", b"c"):
        storage.append(sent(name))
    size = len(sent(b"a").data)

    assert values_of(read(storage, 0, 2 * size)) == [b"a", b"b"]
    assert values_of(read(storage, 0, 2 * size - 1)) == [b"a"]
    assert read(storage, 1, 2 * size).next_offset == 3


def test_the_first_batch_comes_whatever_its_size_unless_another_came_before(storage):
    """A reader whose limit lies below a batch would never get past it (KIP-74)."""
    storage.append(sent(bytes(5_000)))

    assert read(storage, 0, 10).size > 5_000
    assert read(storage, 0, 10, is_first=False).size == 0


def test_nothing_comes_from_the_bound_on(storage):
    storage.append(sent(b"a"))
    storage.append(sent(b"b"))

    assert values_of(read(storage, 0, upto=1)) == [b"a"]


def test_a_start_within_a_batch_brings_the_whole_batch(storage):
    storage.append(sent(b"a", b"b", b"c"))
    storage.append(sent(b"d"))
    storage.truncate_before(1)

    assert read(storage, 2).next_offset == 4
    assert values_of(read(storage, 2), 2) == [b"c", b"d"]


def test_batches_are_found_in_segments_of_the_past(tmp_path):
    storage = FileStorage(tmp_path, 2_000, cache_bytes=0)
    for number in range(300):
        storage.append(sent(b"%d" % number))

    seen, offset = [], 0
    while offset < 300:
        run = read(storage, offset, 500)
        seen += values_of(run)
        offset = run.next_offset

    assert seen == [b"%d" % number for number in range(300)]
    assert len(storage.extents()) > 5
    storage.close()


@pytest.mark.parametrize("segment_bytes", [200, 2_000, 100_000])
@pytest.mark.parametrize("max_bytes", [1, 300, PLENTY])
def test_nobody_is_given_what_stands_for_compacted_records(tmp_path, segment_bytes, max_bytes):
    """kafka-go takes it for a record.  A batch with a producer's numbers does not cover its neighbours' offsets."""
    storage = FileStorage(tmp_path, segment_bytes, cache_bytes=0)
    for number in range(600):
        storage.append(sent(b"%d" % number, producer=ProducerStamp(3, 1, number)))
    storage.append(sent(bytes(segment_bytes)))
    storage.seal(is_due=True)
    kept = [number for number in range(600) if number >= 20 and number // 100 != 3 and number % 4]
    storage.compact(600, lambda block: block if block.offsets[0] in kept else None)

    offset, seen = 3, []
    while offset < 600:
        run = read(storage, offset, max_bytes, 600)
        assert run.next_offset > offset
        assert run.size == len(b"".join(run.chunks))
        seen += values_of(run)
        offset = run.next_offset

    assert seen == [b"%d" % number for number in kept]
    storage.close()


def test_what_stands_for_compacted_records_leads_to_the_end_of_what_may_be_read(tmp_path):
    storage = FileStorage(tmp_path, 200)
    for number in range(10):
        storage.append(sent(b"%d" % number))
    storage.seal(is_due=True)
    storage.compact(10, lambda block: block if block.offsets[0] in (0, 9) else None)

    end = storage.extents()[0].end_offset
    assert read(storage, 1, upto=end).next_offset == end
    storage.close()


def test_batches_are_there_after_a_restart(tmp_path):
    storage = FileStorage(tmp_path)
    storage.append(sent(b"a", producer=ProducerStamp(3, 1, 0)))
    storage.append(sent(b"b", compression="gzip"))
    before = read(storage).chunks
    storage.close()

    again = FileStorage(tmp_path)

    assert b"".join(read(again).chunks) == b"".join(before)
    assert [found.stamp for found in again.stamped()] == [ProducerStamp(3, 1, 0)]
    again.close()


def test_a_file_that_was_changed_behind_our_back_is_named(tmp_path):
    storage = FileStorage(tmp_path, cache_bytes=0)
    for number in range(3_000):
        storage.append(sent(b"%d" % number))
    (path,) = tmp_path.glob("*.log")
    with open(path, "r+b") as file:
        file.seek(0)
        file.write(bytes(100))
    log = PartitionLog(PARTITION, storage, parse_config({}))

    with pytest.raises(CorruptBatchError, match=r"words-0 cannot be read from offset 0 on.*no batch at byte 0"):
        log.fetch_encoded(0, PLENTY, 0, READ_UNCOMMITTED, is_first=True)
    storage.close()


def test_a_topic_s_compression_is_that_of_its_files(tmp_path):
    storage = FileStorage(tmp_path, cache_bytes=0, compression="zstd")
    storage.append(sent(*[b"again and again"] * 100))

    (found,) = fetched(b"".join(read(storage).chunks))

    assert found.compression == "zstd"
    assert found.values == [b"again and again"] * 100
    storage.close()


# --- the log above ------------------------------------------------------------------------


@pytest.fixture(params=["array", "file"])
def make_log(request, tmp_path):
    storages = []

    def make(**config):
        storages.append(MAKE[request.param](tmp_path))
        names = {name.replace("_", "."): str(value) for name, value in config.items()}
        return PartitionLog(PARTITION, storages[-1], parse_config(names))

    yield make
    for storage in storages:
        storage.close()


def fetch(log, offset=0, now_ms=0, isolation_level=READ_UNCOMMITTED):
    return log.fetch_encoded(offset, PLENTY, now_ms, isolation_level, is_first=True)


def test_append_time_is_said_by_the_header(make_log):
    log = make_log(**{"message.timestamp.type": "LogAppendTime"})

    log.append([sent(b"a", b"b", compression="zstd")], 1_234)

    (found,) = fetched(b"".join(fetch(log).chunks))
    assert found.header.attributes & LOG_APPEND_TIME
    assert found.timestamps == [1_234, 1_234]


def test_append_time_leaves_the_records_alone():
    before = sent(b"a")

    after = at_append_time(before, 99)

    assert after.data[61:] == before.data[61:]
    assert batch.check(after.data).max_timestamp == 99


def test_a_batch_above_the_topic_s_limit_is_refused(make_log):
    log = make_log(max_message_bytes=200)

    with pytest.raises(RecordTooLargeError, match=r"words-0.*max.message.bytes"):
        log.append([sent(os.urandom(200))], 0)

    assert log.high_watermark == 0


def test_a_compacted_topic_refuses_a_batch_with_a_record_without_key(make_log):
    log = make_log(cleanup_policy="compact")

    with pytest.raises(BrokerError, match="without a key") as refused:
        log.append([sent(b"a")], 0)

    assert refused.value.code == ErrorCode.INVALID_RECORD


def test_expired_records_do_not_leave(make_log):
    log = make_log(**{"streams.record.ttl.ms": "100"})
    log.append([sent(b"old", time_ms=0), sent(b"young", time_ms=500)], 0)

    assert values_of(fetch(log, now_ms=550)) == [b"young"]


def test_offsets_outside_the_log_are_refused(make_log):
    log = make_log()
    log.append([sent(b"a")], 0)

    assert fetch(log, 1).size == 0
    with pytest.raises(OffsetOutOfRangeError):
        fetch(log, 2)


def test_read_committed_ends_before_an_open_transaction(make_log):
    log = make_log()
    log.append([sent(b"a"), sent(b"b", producer=ProducerStamp(1, 0, 0, is_transactional=True)), sent(b"c")], 0)

    assert values_of(fetch(log, isolation_level=READ_COMMITTED)) == [b"a"]

    log.append([marker(1, 0, is_commit=True, timestamp_ms=0)], 0)
    stable = values_of(fetch(log, isolation_level=READ_COMMITTED)) + values_of(fetch(log, 3, 0, READ_COMMITTED))
    assert stable[:3] == [b"a", b"b", b"c"]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 40), st.integers(0, 300)), min_size=1, max_size=12),
    st.integers(1, 3_000),
    st.sampled_from(sorted(MAKE)),
)
def test_however_it_came_all_of_it_leaves_in_order(tmp_path_factory, appends, max_bytes, kind):
    """Blocks and batches, any limit: every record once, in order, and the same for readers in this process."""
    storage = MAKE[kind](tmp_path_factory.mktemp("log"))
    expected = []
    for is_batch, count, size in appends:
        values = [b"%d-" % (len(expected) + index) + bytes(size) for index in range(count)]
        storage.append(sent(*values) if is_batch else block(*values))
        expected += values

    seen, offset = [], 0
    while offset < len(expected):
        run = read(storage, offset, max_bytes)
        seen += values_of(run, offset)
        assert run.next_offset > offset
        offset = run.next_offset

    assert seen == expected
    assert [value for part in storage.read(0, 10_000) for value in part.values] == expected
    storage.close()
