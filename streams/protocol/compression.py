"""Compression of record batches, as Kafka's clients write and read it.

gzip and zstd are plain streams; snappy is framed as by xerial's library, which is what Kafka's
Java clients read and write; lz4 is the frame format with independent blocks, the only kind that
they read.  The codecs are those of ``cramjam``, imported here and nowhere else.
Layout of batches: ``batch``.  Imports core only.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

import cramjam

from streams.core.errors import BrokerError, ConfigError
from streams.protocol.error_codes import ErrorCode

#: Names of the codecs by their number in a batch's attributes.
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_NUMBERS: Final = {name: number for number, name in enumerate(CODECS)}
# Kafka's defaults: each library's own.
_ZSTD_LEVEL: Final = 3
_GZIP_LEVEL: Final = 6

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_XERIAL_SIZE: Final = Struct(">i")


class CompressionError(BrokerError):
    """Bytes that their codec cannot read, or a codec that does not exist."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.CORRUPT_MESSAGE)


def codec_number(name: str) -> int:
    """Return the number of a codec.

    Raises:
        ConfigError: there is no such codec.
    """
    number = _NUMBERS.get(name)
    if number is None:
        raise ConfigError(f"compression {name!r} is unknown: choose one of {', '.join(CODECS)}")
    return number


def compress(number: int, data: bytes) -> bytes:
    """Return the data, compressed by the codec with this number.

    Raises:
        CompressionError: there is no such codec.
    """
    return _codec(number, _COMPRESS)(data)


def decompress(number: int, data: bytes) -> bytes:
    """Return what ``compress``, or a client of Kafka's, has compressed.

    Raises:
        CompressionError: there is no such codec, or the bytes are damaged.
    """
    try:
        return _codec(number, _DECOMPRESS)(data)
    except cramjam.DecompressionError as error:
        raise CompressionError(f"{CODECS[number]} cannot decompress {len(data)} bytes: {error}") from error


def _codec(number: int, functions: tuple[Callable[[bytes], bytes], ...]) -> Callable[[bytes], bytes]:
    if not 0 <= number < len(functions):
        raise CompressionError(f"compression number {number} is unknown: Kafka has 0 to {len(functions) - 1}")
    return functions[number]


def _plain(data: bytes) -> bytes:
    return data


def _lz4(data: bytes) -> bytes:
    # The module's own function links the blocks, which Java's clients refuse.
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def _xerial(data: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        packed = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_XERIAL_SIZE.pack(len(packed)), packed)
    return b"".join(parts)


def _from_xerial(data: bytes) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        # Clients without the framing send one raw block, as librdkafka once did.
        return bytes(cramjam.snappy.decompress_raw(data))
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in _xerial_blocks(data))


def _xerial_blocks(data: bytes) -> Iterator[bytes]:
    position, end = len(_XERIAL_HEADER), len(data)
    while position < end:
        start = position + _XERIAL_SIZE.size
        size = _XERIAL_SIZE.unpack_from(data, position)[0] if start <= end else -1
        position = start + size
        if size < 0 or position > end:
            raise CompressionError(f"snappy cannot decompress {len(data)} bytes: a block's length does not fit")
        yield data[start:position]


_COMPRESS: Final[tuple[Callable[[bytes], bytes], ...]] = (
    _plain,
    lambda data: bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL)),
    _xerial,
    _lz4,
    lambda data: bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL)),
)
_DECOMPRESS: Final[tuple[Callable[[bytes], bytes], ...]] = (
    _plain,
    lambda data: bytes(cramjam.gzip.decompress(data)),
    _from_xerial,
    lambda data: bytes(cramjam.lz4.decompress(data)),
    lambda data: bytes(cramjam.zstd.decompress(data)),
)
