"""The lines of a file, in chunks with line numbers.

This module is between open files and the row formats.  It imports only ``core`` and ``kinds``.
"""

import codecs
import io
import re
from collections.abc import Iterator, Sized
from itertools import chain

from streams.core.errors import InputError
from streams.files.compression import DAMAGE, is_damage
from streams.files.kinds import WHOLE, FileKind, FileSource, Kind, Part, open_binary

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
#: The marks at the beginning of files by encoding.
_MARKS = {_BOM: "utf-8", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def line_chunks(
    source: FileSource,
    kind: FileKind,
    part: Part = WHOLE,
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (number of the first line, lines without line ends) in file order.

    The bounds of ``part`` are line bounds.  A last line without a line end counts as a line; an empty remainder after
    the last line end does not.  A mark of UTF-8 at the beginning of a line is left out: files that begin with it may
    have been joined.

    Raises:
        InputError: the file cannot be read to its end, or a line is longer than allowed.
    """
    number = part.first_line
    rest = b""
    for lines in source.lines or ():
        if lines:
            yield number, _plain(lines)
        number += len(lines)
    if source.lines is not None:
        return
    try:
        for chunk in _chunks(source, kind, part):
            data = rest + chunk
            # The search for one byte is faster.
            is_plain = b"\r" not in data and (b"\xef" not in data or _BOM not in data)
            lines = data.split(b"\n")
            rest = lines.pop()
            _check_length(rest, max_line_bytes, f"{source}:{number + len(lines)}")
            for start in range(0, len(lines), BATCH_ROWS):
                some = lines[start : start + BATCH_ROWS]
                yield number, some if is_plain else _plain(some)
                number += len(some)
    except (OSError, *DAMAGE) as error:
        raise unreadable(f"{source}:{number}", kind, error) from error
    if rest:
        yield number, _plain([rest])


def text_lines(source: FileSource, kind: FileKind, part: Part = WHOLE) -> Iterator[list[str]]:
    """Yield the lines of a file in its encoding, with their line ends: a line feed, a carriage return, or both.

    Bytes that are malformed in the encoding become lone surrogates.

    Raises:
        InputError: the file cannot be read to its end, or a line is longer than allowed.
    """
    encoding = kind.csv.encoding
    if source.lines is not None:
        for lines in source.lines:
            yield [line.decode(encoding, "surrogateescape") + "\n" for line in lines]
        return
    number = part.first_line
    rest = ""
    # It keeps a carriage return back until it is known whether a line feed follows.
    decode = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)("surrogateescape"), False).decode
    try:
        for chunk in chain(_chunks(source, kind, part), (b"",)):
            texts = io.StringIO(rest + decode(chunk, not chunk), newline="").readlines()
            rest = texts.pop() if texts and not texts[-1].endswith(("\n", "\r")) else ""
            _check_length(rest, MAX_LINE_BYTES, f"{source}:{number + len(texts)}")
            yield texts
            number += len(texts)
    except UnicodeError as error:
        raise InputError(f"{source}:{number}: is not {encoding}: {error}") from error
    except (OSError, *DAMAGE) as error:
        raise unreadable(f"{source}:{number}", kind, error) from error
    if rest:
        yield [rest]


def _check_length(line: Sized, most: int, place: str) -> None:
    if len(line) > most:
        raise InputError(f"{place}: the line is longer than {most} bytes; is this the right file?")


def whole_content(source: FileSource, kind: FileKind, part: Part, most_bytes: int) -> bytes:
    """Return the content of a file or part, without white space around it.

    Raises:
        InputError: the file cannot be read to its end, or is larger than ``most_bytes``.
    """
    content = bytearray()
    try:
        for chunk in _chunks(source, kind, part):
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


def _chunks(source: FileSource, kind: FileKind, part: Part) -> Iterator[bytes]:
    """Yield consecutive chunks of the part.

    Raises:
        InputError: the file is in another encoding.
    """
    position = part.start
    with open_binary(source, kind) as stream:
        if position:
            stream.seek(position)
        while True:
            size = CHUNK_BYTES if part.end is None else min(CHUNK_BYTES, part.end - position)
            chunk = stream.read(size) if size > 0 else b""
            if not chunk:
                return
            if not position:
                _check_encoding(source, kind, chunk)
            yield chunk
            position += len(chunk)


def _check_encoding(source: FileSource, kind: FileKind, chunk: bytes) -> None:
    """Check the first bytes of a file for those of UTF-16, and of another encoding than that of the options."""
    start = chunk[:1024]
    encoding = next((name for mark, name in _MARKS.items() if start.startswith(mark)), "")
    excess = start[1::2].count(0) - start[::2].count(0)
    if not encoding and abs(excess) > len(start) // 3:
        encoding = "utf-16-le" if excess > 0 else "utf-16-be"
    if not encoding or codecs.lookup(kind.csv.encoding).name.startswith(encoding[:6]):
        return
    if kind.kind is Kind.CSV:
        remedy = kind.advice(source, encoding=encoding)
    else:
        remedy = f"convert it, as with iconv -f {encoding} -t utf-8"
    raise InputError(f"{source}: is in {encoding.upper()}, not in {kind.csv.encoding.upper()}; {remedy}")


def count_lines(source: FileSource, kind: FileKind, part: Part, *, skip_blank: bool) -> tuple[int, int]:
    """Return the number of rows and of lines in a part; with ``skip_blank``, blank lines are not rows.

    Raises:
        InputError: the file cannot be read to its end.
    """
    rows = lines = 0
    rest = b""
    try:
        for chunk in _chunks(source, kind, part):
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
        rows += 0 if skip_blank and not rest.removeprefix(_BOM).strip() else 1
    return rows, lines


def _blank_lines(data: bytes) -> int:
    """Return the number of blank lines in ``data``; fast if no line starts with white space."""
    if _BOM in data:
        data = data.removeprefix(_BOM).replace(b"\n" + _BOM, b"\n")
    if data and not data[:1].isspace() and not data.endswith(b"\n") and not _BLANK_START.search(data):
        return 0
    return sum(1 for line in data.split(b"\n") if not line.strip())


def _plain(lines: list[bytes]) -> list[bytes]:
    """Return the lines without the carriage returns of Windows line ends, and without marks of UTF-8 before them."""
    return [line.removeprefix(_BOM).removesuffix(b"\r") for line in lines]
