"""Compression: what goes in comes out, in the framing that Kafka's clients read."""

import gzip
import random
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.errors import ConfigError
from streams.protocol.compression import (
    CODECS,
    CompressionError,
    DecompressedSizeError,
    codec_number,
    compress,
    decompress,
)


@given(st.sampled_from(range(len(CODECS))), st.binary(max_size=300), st.integers(0, 500))
def test_decompression_gives_back_what_was_compressed(number, data, times):
    assert decompress(number, compress(number, data * times)) == data * times


def test_numbers_are_those_of_the_attributes_of_a_batch():
    assert [codec_number(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == [0, 1, 2, 3, 4]
    with pytest.raises(ConfigError, match="brotli"):
        codec_number("brotli")


def test_snappy_is_framed_in_blocks_of_32_kib_as_by_xerial():
    data = bytes(range(256)) * 300
    packed = compress(2, data)

    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    blocks, position = [], 16
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size])))
        position += 4 + size
    assert [len(block) for block in blocks] == [32_768, 32_768, 11_264]
    assert b"".join(blocks) == data


def test_snappy_without_framing_is_read_as_well():
    assert decompress(2, bytes(cramjam.snappy.compress_raw(b"raw" * 100))) == b"raw" * 100


def test_lz4_is_a_frame_of_independent_blocks():
    """Java's clients refuse blocks that refer to earlier ones."""
    packed = compress(3, b"lz4" * 100_000)

    assert packed[:4] == bytes.fromhex("04224d18")
    assert packed[4] & 0b1110_0000 == 0b0110_0000


def test_gzip_and_zstd_are_plain_streams():
    assert gzip.decompress(compress(1, b"gzip")) == b"gzip"
    assert decompress(1, gzip.compress(b"gzip")) == b"gzip"
    assert compress(4, b"zstd")[:4] == bytes.fromhex("28b52ffd")


@given(st.sampled_from([1, 2, 3, 4]), st.binary(min_size=200, max_size=300), st.data())
def test_bytes_cut_short_are_a_named_error(number, data, draw):
    packed = compress(number, data)
    # A snappy stream that ends between two blocks is a whole one.
    cut = packed[: draw.draw(st.integers(17 if number == 2 else 0, len(packed) - 1))]

    with pytest.raises(CompressionError, match=f"{CODECS[number]} cannot decompress {len(cut)} bytes"):
        decompress(number, cut)


@given(st.sampled_from([1, 2, 3, 4]), st.integers(0, 300_000), st.booleans())
def test_no_more_is_decompressed_than_the_limit(number, size, is_alike):
    data = bytes(size) if is_alike else random.Random(size).randbytes(size)
    packed = compress(number, data)

    assert decompress(number, packed, size) == data
    if size:
        with pytest.raises(DecompressedSizeError, match=f"stand for more than {size - 1}"):
            decompress(number, packed, size - 1)


def test_a_codec_that_does_not_exist_is_named():
    for number in (5, 7, -1):
        with pytest.raises(CompressionError, match=str(number)):
            compress(number, b"")
        with pytest.raises(CompressionError, match=str(number)):
            decompress(number, b"")
