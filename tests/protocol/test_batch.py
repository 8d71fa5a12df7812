"""Record batch v2: what goes in comes out, and what is damaged is refused."""

import struct

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks.records import Block, ProducerStamp
from streams.protocol import batch
from streams.protocol.batch import CorruptBatchError, IncompleteBatchError
from streams.protocol.compression import CompressionError, codec_number
from streams.protocol.error_codes import ErrorCode

_bytes = st.none() | st.binary(max_size=300)
_headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
_int64 = st.integers(-(2**62), 2**62)


@st.composite
def blocks(draw, with_holes=True):
    count = draw(st.integers(1, 20))

    def column(items):
        return draw(st.lists(items, min_size=count, max_size=count))

    base = draw(st.integers(0, 2**40))
    offsets = range(base, base + count)
    if with_holes and draw(st.booleans()):
        steps = column(st.integers(1, 100_000))
        offsets = [base + sum(steps[1 : index + 1]) for index in range(count)]
    headers = column(_headers) if draw(st.booleans()) else None
    return Block(column(_bytes), column(_bytes), column(_int64), headers, offsets)


def plain(count=3, base=0):
    return Block([b"k"] * count, [b"value"] * count, list(range(count)), None, range(base, base + count))


@given(blocks())
def test_decoding_gives_back_what_was_encoded(block):
    data = batch.encode(block, block.offsets[0])

    decoded = batch.decode(data)

    assert list(decoded.rows()) == list(block.rows())
    assert batch.read_header(data).next_offset == block.offsets[-1] + 1
    assert batch.read_header(data).max_timestamp == max(block.timestamps)


@given(blocks(), st.data())
def test_one_changed_byte_is_noticed(block, data):
    """Offset and leader epoch lie outside the checksum: the broker sets them after the producer."""
    encoded = bytearray(batch.encode(block, 0))
    position = data.draw(st.integers(16, len(encoded) - 1))
    encoded[position] ^= data.draw(st.integers(1, 255))

    with pytest.raises(CorruptBatchError):
        batch.decode(bytes(encoded))


@given(blocks(), st.data())
def test_a_batch_cut_short_is_incomplete(block, data):
    encoded = batch.encode(block, 0)

    with pytest.raises(IncompleteBatchError):
        batch.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.binary(max_size=200), st.integers(0, 10))
def test_garbage_with_a_right_checksum_is_refused_or_read_but_never_crashes(garbage, count):
    checked = struct.pack(">hiqqqhii", 0, max(count - 1, 0), 0, 0, -1, -1, -1, count) + garbage
    lead = struct.pack(">qiibI", 7, 9 + len(checked), 0, 2, google_crc32c.value(checked))

    try:
        decoded = batch.decode(lead + checked)
    except CorruptBatchError:
        return
    assert len(decoded) == count


def test_bytes_are_those_of_kafka():
    """Laid out by hand from the protocol guide: one record "k" -> "v" at offset 5, time 1000, header h=x."""
    record = bytes([0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + bytes([2, 2]) + b"h" + bytes([2]) + b"x"
    checked = struct.pack(">hiqqqhii", 0, 0, 1000, 1000, -1, -1, -1, 1) + bytes([len(record) << 1]) + record
    expected = struct.pack(">qiibI", 5, 9 + len(checked), 0, 2, google_crc32c.value(checked)) + checked

    block = Block([b"k"], [b"v"], [1000], [(("h", b"x"),)])

    assert batch.encode(block, 5) == expected
    assert batch.batch_size(b"k", b"v", (("h", b"x"),)) == len(expected)


def test_headers_that_cannot_be_hashed_are_written_as_well():
    block = Block([None] * 2, [b"v"] * 2, [0, 0], [(["h", bytearray(b"x")],), ()])

    assert batch.decode(batch.encode(block, 0)).headers == [(("h", b"x"),), ()]


def test_headers_that_records_share_are_one_object_when_read():
    row = (("h", b"x"), ("i", None))
    block = Block([None] * 3, [b"v"] * 3, [0] * 3, [row, (), (("h", b"x"), ("i", None))])

    first, none, again = batch.decode(batch.encode(block, 0)).headers

    assert (first, none) == (row, ())
    assert again is first


@given(blocks(with_holes=False))
def test_size_of_a_record_alone_is_exact(block):
    row = block.slice(0, 1)

    headers = row.headers[0] if row.headers else ()

    assert batch.batch_size(row.keys[0], row.values[0], headers) == len(batch.encode(row, 0))


def test_several_batches_are_read_one_after_another_and_a_cut_one_is_left_out():
    first, second = batch.encode(plain(3), 0), batch.encode(plain(2), 3)

    whole = batch.decode_all(first + second + first[:-1])

    assert [list(block.offsets) for block in whole] == [[0, 1, 2], [3, 4]]
    assert [position for position, _ in batch.headers(first + second)] == [0, len(first)]


def test_log_append_time_is_the_time_of_all_records():
    data = batch.encode(plain(3), 0, attributes=batch.LOG_APPEND_TIME)

    assert list(batch.decode(data).timestamps) == [2, 2, 2]


@pytest.mark.parametrize("stamp", [ProducerStamp(77, 3, 12, True, True), ProducerStamp(5, 0, 0), None])
def test_stamp_of_the_producer_is_carried(stamp):
    block = plain(1)
    block.producer = stamp
    data = batch.encode(block, 9)

    header = batch.read_header(data)

    assert batch.decode(data).producer == stamp
    assert header.stamp == (stamp or ProducerStamp(-1, -1))
    assert header.base_offset == 9
    assert len(batch.decode_all(data)) == (0 if stamp is not None and stamp.is_control else 1)


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read_again(name):
    data = batch.encode(plain(1000), 7, attributes=codec_number(name))

    assert batch.read_header(data).compression == name
    assert len(data) < len(batch.encode(plain(1000), 7))
    assert list(batch.decode(data).rows()) == list(batch.decode(batch.encode(plain(1000), 7)).rows())


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_damage_behind_a_right_checksum_is_an_error_that_names_the_offset(name):
    data = bytearray(batch.encode(plain(1000), 7, attributes=codec_number(name)))
    data[61:] = data[61:][::-1]
    data[17:21] = struct.pack(">I", google_crc32c.value(bytes(data[21:])))

    with pytest.raises(CorruptBatchError, match=rf"offset 7.*{name}") as caught:
        batch.decode(bytes(data))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_compression_that_kafka_does_not_have_is_refused():
    data = bytearray(batch.encode(plain(), 0))
    data[22] = 5
    data[17:21] = struct.pack(">I", google_crc32c.value(bytes(data[21:])))

    with pytest.raises(CorruptBatchError, match="number 5"):
        batch.decode(bytes(data))
    with pytest.raises(CompressionError, match="number 6"):
        batch.encode(plain(), 0, attributes=6)


def test_another_magic_is_refused():
    data = bytearray(batch.encode(plain(), 0))
    data[16] = 1

    with pytest.raises(CorruptBatchError, match="magic 1"):
        batch.read_header(bytes(data))


def test_an_empty_block_makes_no_batch():
    with pytest.raises(ValueError, match="empty"):
        batch.encode(Block([], [], []), 0)


def test_a_batch_emptied_by_compaction_is_read_as_an_empty_block():
    checked = struct.pack(">hiqqqhii", 0, 4, 0, 0, -1, -1, -1, 0)
    data = struct.pack(">qiibI", 7, 9 + len(checked), 0, 2, google_crc32c.value(checked)) + checked

    assert len(batch.decode(data)) == 0
    assert batch.read_header(data).next_offset == 12
