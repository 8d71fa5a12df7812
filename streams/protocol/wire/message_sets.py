"""Message sets in formats 0 and 1, which preceded record batches (up to Kafka 0.10).

Message sets can only be decoded: upgraded brokers may have them in their logs, and return them in Fetch responses.
Compressed messages are nested in a wrapper message.  The layout is described in Kafka's protocol guide ("Message
sets"), KIP-31 and KIP-32.  lz4 in format 0, whose frames have a wrong checksum, is not supported.
"""

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from streams.core.blocks.records import NO_TIMESTAMP, Block
from streams.protocol import compression
from streams.protocol.batch import COMPRESSION_MASK, LOG_APPEND_TIME, CorruptBatchError
from streams.protocol.compression import CODECS, CompressionError

_ENTRY: Final = Struct(">qi")
_HEADER: Final = Struct(">Ibb")
_TIMESTAMP: Final = Struct(">q")
_LENGTH: Final = Struct(">i")


class _Message(NamedTuple):
    offset: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    magic: int


def decode_message_set(data: bytes, *, verify: bool = True) -> list[Block]:
    """Decode messages into blocks of records.

    Each compressed message becomes one block, and so does each run of consecutive uncompressed messages.  A truncated
    message at the end is left out.  ``verify=False`` skips the checksums.

    Raises:
        CorruptBatchError: the bytes are damaged.
    """
    blocks: list[Block] = []
    run: list[_Message] = []
    for message in _messages(data, verify=verify):
        codec = message.attributes & COMPRESSION_MASK
        if not codec:
            run.append(message)
            continue
        if run:
            blocks.append(_block(run, "none"))
            run = []
        inside = _unwrapped(message, codec, verify=verify)
        if inside:
            blocks.append(_block(inside, CODECS[codec]))
    if run:
        blocks.append(_block(run, "none"))
    return blocks


def _block(messages: list[_Message], codec: str) -> Block:
    offsets = [message.offset for message in messages]
    first = offsets[0]
    last = offsets[-1]
    if any(after <= before for before, after in pairwise(offsets)):
        raise CorruptBatchError(f"messages at offset {first}: their offsets do not ascend")
    return Block(
        [message.key for message in messages],
        [message.value for message in messages],
        [message.timestamp for message in messages],
        None,
        range(first, last + 1) if last - first + 1 == len(offsets) else offsets,
        None,
        codec,
    )


def _unwrapped(wrapper: _Message, codec: int, *, verify: bool) -> list[_Message]:
    """Return the messages inside a compressed message, with their offsets and timestamps."""
    if wrapper.value is None:
        raise CorruptBatchError(f"message at offset {wrapper.offset}: compressed, and without value")
    try:
        data = compression.decompress(codec, wrapper.value)
    except CompressionError as error:
        raise CorruptBatchError(f"message at offset {wrapper.offset}: {error}") from error
    inside = list(_messages(data, verify=verify))
    if any(message.attributes & COMPRESSION_MASK for message in inside):
        raise CorruptBatchError(f"message at offset {wrapper.offset}: compressed messages within a compressed one")
    if not inside or wrapper.magic == 0:
        return inside
    # In format 1, inner offsets start at 0; the wrapper has the offset of the last message (KIP-31).
    shift = wrapper.offset - inside[-1].offset
    if wrapper.attributes & LOG_APPEND_TIME:
        return [message._replace(offset=message.offset + shift, timestamp=wrapper.timestamp) for message in inside]
    return [message._replace(offset=message.offset + shift) for message in inside]


def _messages(data: bytes, *, verify: bool) -> Iterator[_Message]:
    position = 0
    end = len(data)
    while end - position >= _ENTRY.size:
        offset, size = _ENTRY.unpack_from(data, position)
        start = position + _ENTRY.size
        position = start + size
        if size < _HEADER.size:
            raise CorruptBatchError(f"message at offset {offset}: {size} bytes are too few")
        if position > end:
            return
        yield _message(data[start:position], offset, verify=verify)


def _message(data: bytes, offset: int, *, verify: bool) -> _Message:
    crc, magic, attributes = _HEADER.unpack_from(data)
    if magic not in (0, 1):
        raise CorruptBatchError(f"message at offset {offset}: magic {magic} in a message set; 0 and 1 are read")
    if verify and crc32(data[4:]) != crc:
        raise CorruptBatchError(f"message at offset {offset}: wrong checksum; the bytes are damaged")
    position = _HEADER.size
    timestamp = NO_TIMESTAMP
    if magic == 1:
        if len(data) < position + _TIMESTAMP.size:
            raise CorruptBatchError(f"message at offset {offset}: the bytes end before its timestamp")
        (timestamp,) = _TIMESTAMP.unpack_from(data, position)
        position += _TIMESTAMP.size
    key, position = _sized(data, position, offset)
    value, position = _sized(data, position, offset)
    if position != len(data):
        raise CorruptBatchError(f"message at offset {offset}: {len(data) - position} bytes are left over")
    return _Message(offset, attributes, timestamp, key, value, magic)


def _sized(data: bytes, position: int, offset: int) -> tuple[bytes | None, int]:
    start = position + _LENGTH.size
    length = _LENGTH.unpack_from(data, position)[0] if start <= len(data) else -2
    if length == -1:
        return None, start
    if length < 0 or start + length > len(data):
        raise CorruptBatchError(f"message at offset {offset}: wrong length of its key or value")
    return data[start : start + length], start + length
