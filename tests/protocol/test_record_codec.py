"""Compiled loops give what the plain ones give: bytes, columns and refusals."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streams.core.blocks.records import Block
from streams.protocol import plain_codec as plain
from streams.protocol import record_codec

compiled = pytest.importorskip("streams.protocol.compiled_codec", reason="installed without a C compiler")

_buffers = st.binary(max_size=200) | st.binary(max_size=20).map(bytearray) | st.binary(max_size=20).map(memoryview)
_contents = st.none() | _buffers | st.integers(0, 20_000).map(bytes)
_headers = st.lists(st.tuples(st.text(max_size=5), st.none() | _buffers), max_size=3).map(tuple)
_numbers = st.integers(-100, 100) | st.integers(-(2**62), 2**62 - 1)


@st.composite
def calls(draw):
    """Return block, base timestamp and offset deltas of one call."""
    count = draw(st.integers(0, 12))

    def column(items):
        return draw(st.lists(items, min_size=count, max_size=count))

    headers = column(_headers) if draw(st.booleans()) else None
    deltas = sorted(column(st.integers(0, 2**31 - 1))) if draw(st.booleans()) else range(count)
    return Block(column(_contents), column(_contents), column(_numbers), headers, range(count)), draw(_numbers), deltas


def outcome(decode, *call):
    try:
        return decode(*call)
    except (IndexError, ValueError):
        return "refused"


def test_the_installation_uses_the_compiled_loops():
    assert record_codec.IS_COMPILED
    assert record_codec.decode_records is compiled.decode_records


@given(calls())
def test_same_bytes_and_same_columns(call):
    encoded = compiled.encode_records(*call)

    assert encoded == plain.encode_records(*call)
    block, base_timestamp, _ = call
    decoded = compiled.decode_records(encoded, len(block), base_timestamp)
    assert decoded == plain.decode_records(encoded, len(block), base_timestamp)
    assert decoded.timestamps == block.timestamps


@given(calls(), st.data())
def test_damaged_bytes_are_read_alike(call, data):
    encoded = bytearray(plain.encode_records(*call))
    for _ in range(data.draw(st.integers(1, 3))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(encoded[: data.draw(st.integers(0, len(encoded)))] if data.draw(st.booleans()) else encoded)
    count = len(call[0]) + data.draw(st.integers(-1, 1))

    assert outcome(compiled.decode_records, cut, count, 0) == outcome(plain.decode_records, cut, count, 0)


@given(st.binary(max_size=60), st.integers(0, 4))
@example(b"\xff" * 11, 1)
@example(b"\x0e\0\0\0\0\0\0", 1)
@example(b"\x0d\0\0\0\0\0\0", 1)
@example(b"\x0c\0\0\0\x01\xfe\xff\xff\xff\x0f", 1)
def test_garbage_is_read_alike(garbage, count):
    assert outcome(compiled.decode_records, garbage, count, 0) == outcome(plain.decode_records, garbage, count, 0)


@pytest.mark.parametrize("encode", [plain.encode_records, compiled.encode_records])
@pytest.mark.parametrize("wrong", ["text", 5])
def test_what_is_no_bytes_is_refused(encode, wrong):
    with pytest.raises(TypeError):
        encode(Block([wrong], [b"value"], [0], None, range(1)), 0, range(1))


@pytest.mark.parametrize("encode", [plain.encode_records, compiled.encode_records])
def test_columns_of_different_lengths_are_refused(encode):
    block = Block([b"key"], [b"value"], [0], None, range(1))

    with pytest.raises(ValueError):
        encode(block, 0, range(2))


@given(calls(), st.integers(0, 3), st.data())
def test_what_is_checked_can_be_read_and_counts_through(call, position, data):
    encoded = bytearray(plain.encode_records(*call))
    count = len(call[0])
    for _ in range(data.draw(st.integers(0, 2))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))

    decoded = outcome(compiled.decode_records, bytes(encoded), count, 0)
    is_sound = decoded != "refused" and decoded.offset_deltas is None

    for check in (compiled.check_records, plain.check_records):
        assert (outcome(check, bytes(position) + encoded, position, count) is None) == is_sound
