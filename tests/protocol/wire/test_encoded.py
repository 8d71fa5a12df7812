"""Record batches on the wire: lazily decoded, checked without decoding, and as the oracle has them."""

import datetime
import io
import struct
from zlib import crc32

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, Record, RecordHeader
from kio.records.writers import write_new_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from streams.core.blocks.records import Block, ProducerStamp
from streams.protocol import batch
from streams.protocol.batch import CorruptBatchError, InvalidBatchError
from streams.protocol.compression import CODECS, codec_number, compress
from streams.protocol.error_codes import ErrorCode
from streams.protocol.markers import is_commit_marker, marker
from streams.protocol.wire import EncodedBlock, encoded, encoded_all, fetched, produced

_bytes = st.none() | st.binary(max_size=200)
_headers = st.lists(st.tuples(st.text(max_size=5), _bytes), max_size=3).map(tuple)
# The oracle makes times of timestamps, and of whole seconds only.
_seconds = st.integers(0, 2**31).map(lambda second: second * 1000)


@st.composite
def blocks(draw, timestamps=_seconds):
    count = draw(st.integers(1, 12))

    def column(items):
        return draw(st.lists(items, min_size=count, max_size=count))

    headers = column(_headers) if draw(st.booleans()) else None
    stamp = draw(st.none() | st.tuples(st.integers(0, 2**60), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)))
    producer = None if stamp is None else ProducerStamp(*stamp)
    return Block(column(_bytes), column(_bytes), column(timestamps), headers, range(count), producer)


def small(count=3, base=0, compression="none"):
    numbers = range(base, base + count)
    return Block([b"k"] * count, [b"value"] * count, list(range(count)), None, numbers, compression=compression)


# --- the oracle -------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(blocks(), st.integers(0, 2**40))
def test_the_oracle_reads_what_we_write(block, base):
    data = batch.encode(block, base, leader_epoch=3)

    found, size = read_batch(data, 0)

    assert size == len(data)
    assert (found.base_offset, found.partition_leader_epoch) == (base, 3)
    stamp = block.producer or ProducerStamp(-1, -1)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == stamp[:3]
    rows = [
        (
            record.offset - base,
            record.key,
            record.value,
            round(record.timestamp.timestamp() * 1000),
            tuple((header.key.decode(), header.value) for header in record.headers),
        )
        for record in found.records
    ]
    assert rows == list(block.rows())


@settings(deadline=None, max_examples=60)
@given(blocks())
def test_we_read_what_the_oracle_writes(block):
    records = tuple(
        Record(
            attributes=i8(0),
            timestamp=TZAwareMicros.parse(datetime.datetime.fromtimestamp(timestamp / 1000, datetime.UTC)),
            offset=i64(offset),
            key=key,
            value=value,
            headers=tuple(RecordHeader(key=name.encode(), value=content) for name, content in headers),
        )
        for offset, key, value, timestamp, headers in block.rows()
    )
    stamp = block.producer or ProducerStamp(-1, -1)
    with io.BytesIO() as buffer:
        write_new_batch(
            buffer,
            NewRecordBatch(
                producer_id=i64(stamp.producer_id),
                producer_epoch=i16(stamp.epoch),
                base_sequence=i32(stamp.sequence),
                attributes=i16(0),
                records=records,
            ),
        )
        data = buffer.getvalue()

    found = produced(data)

    assert list(found.rows()) == list(block.rows())
    assert found.producer == block.producer
    assert encoded(found, 0) == data


# --- blocks that stay encoded -------------------------------------------------------------


@given(blocks(timestamps=st.integers(0, 2**60)), st.integers(0, 2**40), st.sampled_from(CODECS))
def test_a_batch_is_moved_without_being_decoded(block, base, codec):
    """The base offset lies outside the checksum: all but the first 16 bytes stay as they came."""
    block.compression = codec
    sent = produced(encoded(block, 0))

    moved = EncodedBlock.of(sent, base)

    assert moved.data[16:] == sent.data[16:]
    batch.check(moved.data)
    assert (len(moved), moved.offsets, moved.next_offset) == (
        len(block),
        range(base, base + len(block)),
        base + len(block),
    )
    assert (moved.producer, moved.compression) == (block.producer, codec)
    (read,) = fetched(encoded(moved))
    assert list(read.rows()) == list(EncodedBlock.of(block, base).rows())
    assert [row[1:] for row in read.rows()] == [row[1:] for row in block.rows()]


def test_columns_are_decoded_once_when_one_is_looked_at():
    sent = produced(encoded(small()))

    assert sent.keys is sent.keys
    assert list(sent.values) == [b"value"] * 3
    assert list(sent.slice(1).timestamps) == [1, 2]
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = sent.colour


def test_a_block_from_memory_keeps_its_columns_beside_its_bytes():
    block = small()

    both = EncodedBlock.of(block, 7)

    assert both.keys is block.keys
    assert list(both.offsets) == [7, 8, 9]
    assert encoded(both) is both.data


def test_damage_behind_the_checksum_is_found_where_someone_looks():
    data = bytearray(encoded(small()))
    data[70:] = bytes(len(data) - 70)
    data[17:21] = struct.pack(">I", google_crc32c.value(bytes(data[21:])))

    (block,) = fetched(bytes(data))

    with pytest.raises(CorruptBatchError, match="malformed"):
        _ = block.keys


# --- what producers may send ----------------------------------------------------------------


def lying(records=None, **changes):
    """A batch with another count, last offset or other records, and a right checksum."""
    data = bytearray(encoded(small()))
    if records is not None:
        data[61:] = records
        struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, changes.get("count", 3))
    struct.pack_into(">i", data, 23, changes.get("last", 2))
    struct.pack_into(">h", data, 21, changes.get("attributes", 0))
    data[17:21] = struct.pack(">I", google_crc32c.value(bytes(data[21:])))
    return bytes(data)


MOST = {"count": 2**31 - 1, "last": 2**31 - 2}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (encoded(small())[:-4], ErrorCode.CORRUPT_MESSAGE),
        (encoded(small())[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (encoded(small()) + b"!", ErrorCode.INVALID_RECORD),
        (encoded(small()) * 2, ErrorCode.INVALID_RECORD),
        (lying(count=2), ErrorCode.INVALID_RECORD),
        (lying(count=4), ErrorCode.INVALID_RECORD),
        (lying(count=2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
        (lying(count=0, last=-1), ErrorCode.CORRUPT_MESSAGE),
        (lying(last=7), ErrorCode.INVALID_RECORD),
        (lying(attributes=batch.CONTROL | batch.TRANSACTIONAL), ErrorCode.INVALID_RECORD),
    ],
)
def test_what_no_producer_may_send_is_refused_with_its_code(data, code):
    with pytest.raises((CorruptBatchError, InvalidBatchError)) as caught:
        produced(data)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "data",
    [
        *(lying(b"garbage" * 9, attributes=codec) for codec in range(1, 5)),
        lying(b"", attributes=4),
        lying(compress(4, b"garbage" * 9), attributes=4),
        lying(compress(2, encoded(small())[61:-1]), attributes=2),
        lying(compress(1, encoded(small())[61:] + b"!"), attributes=1),
        lying(compress(3, encoded(small(4))[61:]), attributes=3),
        # 2^31 - 1 records in a few bytes, which a count alone does not tell of compressed ones.
        lying(compress(4, encoded(small())[61:]), attributes=4, **MOST),
        # The offsets of the records do not count through.
        lying(encoded(Block([None] * 3, [b""] * 3, [0] * 3, None, [0, 2, 4]))[61:]),
    ],
)
@pytest.mark.parametrize("decodes", [False, True])
def test_records_that_no_reader_can_read_are_refused(data, decodes):
    sent = produced(data)
    with pytest.raises(InvalidBatchError) as caught:
        sent.check_inside(1 << 20, decodes=decodes)
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("compression", CODECS)
def test_records_that_can_be_read_are_taken(compression):
    for decodes in (False, True):
        produced(encoded(small(compression=compression))).check_inside(1 << 20, decodes=decodes)


# --- what brokers answer ----------------------------------------------------------------------


def test_several_batches_are_fetched_with_markers_and_without_a_cut_tail():
    end = marker(9, 2, is_commit=True, timestamp_ms=5)
    end.offsets = range(5, 6)
    parts = encoded_all([small(3), small(2, base=3, compression="lz4"), end])

    found = fetched(b"".join(parts) + parts[0][:-1])

    assert [list(block.offsets) for block in found] == [[0, 1, 2], [3, 4], [5]]
    assert found[1].compression == "lz4"
    assert found[2].producer == ProducerStamp(9, 2, -1, is_transactional=True, is_control=True)
    assert is_commit_marker(found[2])


def test_an_emptied_batch_says_where_to_go_on():
    """Compaction took away all of its records, but not its place in the log."""
    checked = struct.pack(">hiqqqhii", 0, 4, 0, 0, -1, -1, -1, 0)
    data = struct.pack(">qiibI", 7, 9 + len(checked), 0, 2, google_crc32c.value(checked)) + checked

    (found,) = fetched(data)

    assert len(found) == 0
    assert found.next_offset == 12
    assert list(found.rows()) == []


@given(st.binary(max_size=200))
def test_random_records_are_blocks_or_an_error_of_the_broker(data):
    for read in (fetched, produced):
        try:
            read(data)
        except (CorruptBatchError, InvalidBatchError):
            continue


@given(blocks(), st.data())
def test_changed_records_are_blocks_or_corrupt(block, data):
    changed = bytearray(encoded(block))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))

    try:
        for found in fetched(bytes(changed), verify=False):
            list(found.rows())
    except CorruptBatchError:
        return


# --- formats 0 and 1 --------------------------------------------------------------------------


def message(offset, key, value, magic=1, attributes=0, timestamp=1000):
    """One message, laid out by hand from the protocol guide."""
    rest = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        rest += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    rest = struct.pack(">I", crc32(rest)) + rest
    return struct.pack(">qi", offset, len(rest)) + rest


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_of_old_formats_are_one_block(magic):
    data = message(5, b"k", b"v", magic) + message(7, None, None, magic, timestamp=2000)

    (found,) = fetched(data + data[:10])

    times = [1000, 2000] if magic else [-1, -1]
    assert list(found.rows()) == [(5, b"k", b"v", times[0], ()), (7, None, None, times[1], ())]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_compressed_messages_of_format_1_count_from_their_wrapper(codec):
    """KIP-31: inside they count from 0, the wrapper has the offset of the last."""
    number = codec_number(codec)
    inside = message(0, b"a", b"1") + message(1, b"b", b"2")
    wrapper = message(41, None, compress(number, inside), attributes=number)

    old, new = fetched(wrapper + encoded(small(2, base=42)))

    assert list(old.rows()) == [(40, b"a", b"1", 1000, ()), (41, b"b", b"2", 1000, ())]
    assert old.compression == codec
    assert list(new.offsets) == [42, 43]


def test_log_append_time_of_a_wrapper_is_that_of_all_inside():
    wrapper = message(1, None, compress(1, message(0, b"a", b"1")), attributes=1 | batch.LOG_APPEND_TIME, timestamp=99)

    assert list(fetched(wrapper)[0].timestamps) == [99]


def test_compressed_messages_of_format_0_have_their_own_offsets():
    inside = message(40, b"a", b"1", 0) + message(41, b"b", b"2", 0)

    (found,) = fetched(message(41, None, compress(1, inside), 0, attributes=1))

    assert list(found.offsets) == [40, 41]


@given(st.data())
def test_changed_messages_are_blocks_or_corrupt(data):
    wrapper = message(9, None, compress(1, message(0, b"a", b"1")), attributes=1)
    changed = bytearray(message(5, b"k", b"v") + wrapper)
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))

    try:
        fetched(bytes(changed), verify=data.draw(st.booleans()))
    except CorruptBatchError:
        return
