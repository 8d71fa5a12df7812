"""Lines of a file, in chunks, each with its number.

Between an open file and the formats of its rows.  Imports core and kinds only.
"""

from collections.abc import Iterator
from pathlib import Path

from streams.core.errors import InputError
from streams.files.kinds import GZIP_ERRORS, FileKind, open_binary

#: Bytes read at a time; also about what a batch of rows holds.
CHUNK_BYTES = 1 << 19
#: Rows of one batch at most.
BATCH_ROWS = 4096
#: A longer line means that the file is not what its suffix says.
MAX_LINE_BYTES = 64 << 20

_BOM = b"\xef\xbb\xbf"


def line_chunks(
    path: Path, kind: FileKind, *, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (number of the first line, lines without their ends) in file order.

    A last line without an end counts; nothing counts behind the last end.

    Raises:
        InputError: the file cannot be read to its end, or a line is longer than allowed.
    """
    number = 1
    rest = b""
    try:
        with open_binary(path, kind) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                if number == 1 and not rest:
                    chunk = chunk.removeprefix(_BOM)
                lines = (rest + chunk).split(b"\n") if b"\n" in chunk else [rest + chunk]
                rest = lines.pop()
                if len(rest) > max_line_bytes:
                    raise InputError(
                        f"{path}:{number + len(lines)}: the line is longer than {max_line_bytes} bytes; "
                        "is this the right file?"
                    )
                for start in range(0, len(lines), BATCH_ROWS):
                    part = lines[start : start + BATCH_ROWS]
                    yield number, _without_returns(part)
                    number += len(part)
    except GZIP_ERRORS as error:
        raise InputError(
            f"{path}:{number}: the compressed file is damaged or cut off here: {error}; make it again"
        ) from error
    except OSError as error:
        raise InputError(f"{path}:{number}: cannot be read on: {error.strerror or error}") from error
    if rest:
        yield number, _without_returns([rest])


def _without_returns(lines: list[bytes]) -> list[bytes]:
    """Return the lines without the carriage returns of another system's line ends."""
    if lines[0].endswith(b"\r") or lines[-1].endswith(b"\r"):
        return [line.removesuffix(b"\r") for line in lines]
    return lines
