"""Compressed files, by suffix: gzip, bzip2 and Zstandard.

This module imports no other module of the project; pyarrow is imported on use.
"""

import bz2
import gzip
import zlib
from collections.abc import Callable
from typing import IO, Any, cast

from attrs import frozen


def _gzip_writer(stream: IO[bytes]) -> IO[bytes]:
    # Without a file name and time, equal records produce equal files.
    packed = gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=6, mtime=0)
    return cast(IO[bytes], packed)


def _zstd_reader(stream: IO[bytes]) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(stream, "zstd")


def _zstd_writer(stream: IO[bytes]) -> Any:
    import pyarrow as pa

    return pa.CompressedOutputStream(stream, "zstd")


@frozen
class Compression:
    """A way in which files are compressed; a file may have several compressed parts, one after the other."""

    name: str
    #: What a compressed file may begin with.
    magics: tuple[bytes, ...]
    #: Return the content of a compressed file, which is closed by itself.
    reader: Callable[[IO[bytes]], IO[bytes]]
    #: Return a file that compresses what is written to it, which ends when it is closed.
    writer: Callable[[IO[bytes]], IO[bytes]]


#: The compressions by suffix.
COMPRESSIONS = {
    ".gz": Compression(
        "gzip", (b"\x1f\x8b",), lambda stream: cast(IO[bytes], gzip.GzipFile(fileobj=stream, mode="rb")), _gzip_writer
    ),
    ".bz2": Compression(
        "bzip2",
        tuple(b"BZh%d" % level for level in range(1, 10)),
        lambda stream: cast(IO[bytes], bz2.BZ2File(stream)),
        lambda stream: cast(IO[bytes], bz2.BZ2File(stream, "wb")),
    ),
    # The second is a frame that is skipped, which parallel programs begin with.
    ".zst": Compression("Zstandard", (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"), _zstd_reader, _zstd_writer),
}
#: The suffixes, for messages.
COMPRESSED = ".gz, .bz2 or .zst"
#: Exceptions that reading a damaged or mislabelled compressed file raises besides ``OSError`` without a number.
DAMAGE = (EOFError, zlib.error)


def is_damage(error: BaseException) -> bool:
    """Return whether an error of a compressed file is about its content, rather than one of the file system."""
    return isinstance(error, DAMAGE) or (isinstance(error, OSError) and error.errno is None)
