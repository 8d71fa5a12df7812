"""Checkpoint files in the folder of a log: its start offset and its recovery point.

One line with a checksum, overwritten in place: a power failure leaves the old line or the new one.  Under ``file``.
"""

import os
from pathlib import Path

import google_crc32c

from streams.broker.files import FILE_MODE, write_at


class CheckpointError(ValueError):
    """A checkpoint file with invalid content."""


def write_checkpoint(path: Path, offset: int, *, is_durable: bool) -> None:
    """Write an offset; ``is_durable``: with fsync."""
    digits = b"%020d" % offset
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        write_at(descriptor, b"%b %08x\n" % (digits, google_crc32c.value(digits)), 0)
        if is_durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_checkpoint(path: Path) -> int | None:
    """Return the stored offset; None without a file, or if a power failure left it empty.

    Raises:
        CheckpointError: the file has other content.
    """
    try:
        line = path.read_bytes()
    except FileNotFoundError:
        return None
    if not line.strip(b"\0 \n"):
        return None
    digits, _, checksum = line.rstrip(b"\n").partition(b" ")
    if len(digits) != 20 or not digits.isdigit() or checksum != b"%08x" % google_crc32c.value(digits):
        raise CheckpointError(f"{line[:40]!r} is not an offset with its checksum")
    return int(digits)
