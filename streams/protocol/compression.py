"""Record batch compression, compatible with Kafka clients.

gzip and zstd are plain streams.  snappy uses the framing of the xerial library, which Kafka's Java
clients read and write.  lz4 uses the frame format with independent blocks, the only one that Java
clients read.  The codecs are implemented by ``cramjam``, which only this module imports.  The decompressed size
is limited, because a few bytes can expand to any size.  The layout of a record batch is in ``batch``.
"""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Any, Final, TypeVar

import cramjam

from streams.core.errors import BrokerError, ConfigError
from streams.protocol.error_codes import ErrorCode

F = TypeVar("F", bound=Callable[..., bytes])

#: Codec names by their number in the batch attributes.
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

#: Default limit on decompressed bytes: the size limit of a request (Kafka's ``socket.request.max.bytes``).
MAX_BYTES: Final = 104_857_600

_NUMBERS: Final = {name: number for number, name in enumerate(CODECS)}
# Compression levels: Kafka's defaults, which are the library defaults.
_ZSTD_LEVEL: Final = 3
_GZIP_LEVEL: Final = 6

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_XERIAL_SIZE: Final = Struct(">i")

# Size of the first output buffer relative to the input; large enough for most batches.
_USUAL_RATIO: Final = 8
_LEAST_ROOM: Final = 4_096
#: Error messages of the codecs when the output buffer is too small.
_NO_ROOM: Final = "failed to write whole buffer"


class CompressionError(BrokerError):
    """The bytes cannot be decompressed, or the codec is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.CORRUPT_MESSAGE)


class DecompressedSizeError(CompressionError):
    """Decompressed records would exceed the size limit."""

    def __init__(self, codec: str, size: int, limit: int) -> None:
        super().__init__(
            f"{codec}: {size} bytes stand for more than {limit}, the most that is taken; "
            "have the producer send less at once"
        )


def codec_number(name: str) -> int:
    """Return the number that represents a codec in the batch attributes.

    Raises:
        ConfigError: the codec is unknown.
    """
    number = _NUMBERS.get(name)
    if number is None:
        raise ConfigError(f"compression {name!r} is unknown: choose one of {', '.join(CODECS)}")
    return number


def compress(number: int, data: bytes) -> bytes:
    """Compress data with a codec, given its number (see ``codec_number``).

    Raises:
        CompressionError: the codec is unknown.
    """
    return _codec(number, _COMPRESS)(data)


def decompress(number: int, data: bytes, limit: int = MAX_BYTES) -> bytes:
    """Decompress data that was compressed by ``compress`` or by a Kafka client, given the number of the codec.

    Raises:
        DecompressedSizeError: the result would exceed ``limit`` bytes; at most ``limit`` bytes are allocated.
        CompressionError: the codec is unknown, or the bytes are damaged.
    """
    try:
        return _codec(number, _DECOMPRESS)(data, limit)
    except cramjam.DecompressionError as error:
        raise CompressionError(f"{CODECS[number]} cannot decompress {len(data)} bytes: {error}") from error


def _codec(number: int, functions: Sequence[F]) -> F:
    if not 0 <= number < len(functions):
        raise CompressionError(f"compression number {number} is unknown: Kafka has 0 to {len(functions) - 1}")
    return functions[number]


def _plain(data: bytes) -> bytes:
    return data


def _lz4(data: bytes) -> bytes:
    # ``cramjam.lz4.compress`` writes linked blocks, which Java clients reject.
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def _xerial(data: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        packed = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_XERIAL_SIZE.pack(len(packed)), packed)
    return b"".join(parts)


def _bounded(codec: Any, name: str) -> Callable[[bytes, int], bytes]:
    """Return a function that decompresses a stream into a buffer, which grows up to a limit in bytes."""

    def decompressed(data: bytes, limit: int) -> bytes:
        room = min(limit, max(_LEAST_ROOM, _USUAL_RATIO * len(data)))
        while True:
            output = bytearray(room)
            try:
                size = codec.decompress_into(data, output)
            except cramjam.DecompressionError as error:
                if _NO_ROOM not in str(error):
                    raise
                if room == limit:
                    raise DecompressedSizeError(name, len(data), limit) from error
                room = min(limit, 4 * room)
            else:
                return bytes(memoryview(output)[:size])

    return decompressed


def _from_xerial(data: bytes, limit: int) -> bytes:
    # Some clients, such as old librdkafka versions, send one raw block without framing.
    blocks = list(_xerial_blocks(data)) if data.startswith(_XERIAL_MAGIC) else [data]
    # Each block begins with its decompressed length.
    if sum(map(cramjam.snappy.decompress_raw_len, blocks)) > limit:
        raise DecompressedSizeError("snappy", len(data), limit)
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)


def _xerial_blocks(data: bytes) -> Iterator[bytes]:
    position = len(_XERIAL_HEADER)
    end = len(data)
    while position < end:
        start = position + _XERIAL_SIZE.size
        size = _XERIAL_SIZE.unpack_from(data, position)[0] if start <= end else -1
        position = start + size
        if size < 0 or position > end:
            raise CompressionError(f"snappy cannot decompress {len(data)} bytes: a block has a wrong length")
        yield data[start:position]


_COMPRESS: Final[Sequence[Callable[[bytes], bytes]]] = (
    _plain,
    lambda data: bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL)),
    _xerial,
    _lz4,
    lambda data: bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL)),
)
_DECOMPRESS: Final[Sequence[Callable[[bytes, int], bytes]]] = (
    lambda data, limit: data,
    _bounded(cramjam.gzip, "gzip"),
    _from_xerial,
    _bounded(cramjam.lz4, "lz4"),
    _bounded(cramjam.zstd, "zstd"),
)
