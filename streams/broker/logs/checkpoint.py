"""Checkpoint files in the folder of a log: the start offset and the recovery point.

Each file has one line with an offset and a checksum, and is overwritten in place: a power failure leaves either the
old or the new line.
"""

import os
from pathlib import Path

import google_crc32c

from streams.broker.logs.files import FILE_MODE, write_at
from streams.core.folders import naming


class CheckpointError(ValueError):
    """The content of a checkpoint file is invalid."""


def overwrite_checkpoint(descriptor: int, offset: int) -> None:
    """Write an offset to an open checkpoint file."""
    digits = b"%020d" % offset
    write_at(descriptor, b"%b %08x\n" % (digits, google_crc32c.value(digits)), 0)


def write_checkpoint(path: Path, offset: int, *, is_durable: bool) -> None:
    """Write an offset to a checkpoint file; with ``is_durable``, the file is synced to disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        with naming(path):
            overwrite_checkpoint(descriptor, offset)
            if is_durable:
                os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_checkpoint(path: Path) -> int | None:
    """Return the offset in a checkpoint file, or None if there is no file or a power failure left the file empty.

    Raises:
        CheckpointError: the file has invalid content.
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
