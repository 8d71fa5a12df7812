"""The lines of a file, in chunks with line numbers.

This module is between open files and the row formats.  It imports only ``core`` and ``kinds``.
"""

import re
from collections.abc import Iterator

from streams.core.errors import InputError
from streams.files.compression import DAMAGE, is_damage
from streams.files.kinds import WHOLE, FileKind, FileSource, Part, open_binary

#: Number of bytes read at a time; also the approximate size of a batch of rows.
CHUNK_BYTES = 1 << 19
#: Number of bytes read at a time of what is cut off somewhere.
_FIRST_BYTES = 1 << 14
#: Maximum number of rows in a batch.
BATCH_ROWS = 4096
#: A longer line means that the file's kind does not match its suffix.
MAX_LINE_BYTES = 64 << 20

#: Start of a line that may be blank, after the end of another line.
_BLANK_START = re.compile(rb"\n\s")
_BOM = b"\xef\xbb\xbf"


def line_chunks(
    source: FileSource,
    kind: FileKind,
    part: Part = WHOLE,
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    keeps_returns: bool = False,
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (number of the first line, lines without line ends) in file order.

    The bounds of ``part`` are line bounds.  A last line without a line end counts as a line; an empty remainder after
    the last line end does not.  With ``keeps_returns``, a line end is a line feed only, for rows that contain line
    ends; else a carriage return before it belongs to it.

    Raises:
        InputError: the file cannot be read to its end, or a line is longer than allowed.
    """
    number = part.first_line
    rest = b""
    for lines in source.lines or ():
        if not part.start and number == 1 and lines:
            lines[0] = lines[0].removeprefix(_BOM)
        if lines:
            yield number, lines if keeps_returns else _without_returns(lines)
        number += len(lines)
    if source.lines is not None:
        return
    try:
        for position, chunk in _chunks(source, kind, part):
            if not position:
                chunk = chunk.removeprefix(_BOM)
            has_returns = not keeps_returns and (b"\r" in chunk or rest.endswith(b"\r"))
            lines = (rest + chunk).split(b"\n") if b"\n" in chunk else [rest + chunk]
            rest = lines.pop()
            if len(rest) > max_line_bytes:
                raise InputError(
                    f"{source}:{number + len(lines)}: the line is longer than {max_line_bytes} bytes; "
                    "is this the right file?"
                )
            for start in range(0, len(lines), BATCH_ROWS):
                some = lines[start : start + BATCH_ROWS]
                yield number, _without_returns(some) if has_returns else some
                number += len(some)
    except (OSError, *DAMAGE) as error:
        raise unreadable(f"{source}:{number}", kind, error) from error
    if rest:
        yield number, [rest] if keeps_returns else _without_returns([rest])


def whole_content(source: FileSource, kind: FileKind, part: Part, most_bytes: int) -> bytes:
    """Return the content of a file or part, without white space around it.

    Raises:
        InputError: the file cannot be read to its end, or is larger than ``most_bytes``.
    """
    content = bytearray()
    try:
        for _, chunk in _chunks(source, kind, part):
            content += chunk
            if len(content) > most_bytes:
                raise InputError(
                    f"{source}: has more than {most_bytes} bytes of JSON, which are in memory at once; write a value "
                    "on each line, as in .jsonl files, such as with jq -c '.[]'"
                )
    except (OSError, *DAMAGE) as error:
        raise unreadable(str(source), kind, error) from error
    return bytes(content.removeprefix(_BOM).strip())


def first_content(source: FileSource, kind: FileKind, *, is_whole: bool) -> bytes:
    """Return the content of the beginning of a file; compressed, it ends with what can be read.

    Raises:
        InputError: the file cannot be read.
    """
    content = bytearray()
    try:
        with open_binary(source, kind) as stream:
            while chunk := stream.read(_FIRST_BYTES):
                content += chunk
    except (OSError, *DAMAGE) as error:
        if is_whole or not content:
            raise unreadable(str(source), kind, error) from error
    return bytes(content)


def unreadable(place: str, kind: FileKind, error: Exception) -> InputError:
    """Return the error of a file that cannot be read further than ``place``."""
    if kind.compression and is_damage(error):
        return InputError(f"{place}: the compressed file is damaged or cut off here: {error}; make it again")
    return InputError(f"{place}: cannot be read further: {getattr(error, 'strerror', None) or error}")


def _chunks(source: FileSource, kind: FileKind, part: Part) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) for consecutive chunks of the part."""
    position = part.start
    with open_binary(source, kind) as stream:
        if position:
            stream.seek(position)
        while True:
            size = CHUNK_BYTES if part.end is None else min(CHUNK_BYTES, part.end - position)
            chunk = stream.read(size) if size > 0 else b""
            if not chunk:
                return
            yield position, chunk
            position += len(chunk)


def count_lines(source: FileSource, kind: FileKind, part: Part, *, skip_blank: bool) -> tuple[int, int]:
    """Return the number of rows and of lines in a part; with ``skip_blank``, blank lines are not rows.

    Raises:
        InputError: the file cannot be read to its end.
    """
    rows = lines = 0
    rest = b""
    try:
        for position, chunk in _chunks(source, kind, part):
            if not position:
                chunk = chunk.removeprefix(_BOM)
            whole, newline, tail = chunk.rpartition(b"\n")
            if not newline:
                rest += chunk
                continue
            whole_lines = whole.count(b"\n") + 1
            lines += whole_lines
            rows += whole_lines - (_blank_lines(rest + whole) if skip_blank else 0)
            rest = tail
    except (OSError, *DAMAGE) as error:
        raise unreadable(str(source), kind, error) from error
    if rest:
        lines += 1
        rows += 0 if skip_blank and not rest.strip() else 1
    return rows, lines


def _blank_lines(data: bytes) -> int:
    """Return the number of blank lines in ``data``; fast if no line starts with white space."""
    if data and not data[:1].isspace() and not data.endswith(b"\n") and not _BLANK_START.search(data):
        return 0
    return sum(1 for line in data.split(b"\n") if not line.strip())


def _without_returns(lines: list[bytes]) -> list[bytes]:
    """Return the lines without the carriage returns of Windows line ends."""
    return [line.removesuffix(b"\r") for line in lines]
