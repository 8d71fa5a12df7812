"""Conversion of exceptions to messages and exit statuses.

The message for a user mistake states what is wrong, where, and what to do, without a traceback.  If user code
failed on a record, the message includes the failing line.
"""

import traceback
from types import TracebackType

from streams.cli.lines import fail
from streams.core.errors import ProcessingError, StreamsError
from streams.core.folders import full_disk
from streams.core.user_code import place_in_user_code

#: Exit status of a failure that a restart may cure: a record that cannot be processed, an unavailable broker, a
#: state directory in use, an internal error.
FAILED = 1
#: Exit status for a user mistake, which a restart would repeat.
MISTAKE = 2


class UsageError(StreamsError):
    """A command-line argument does not match the topology or the other arguments."""

    is_mistake = True


class ScriptError(StreamsError):
    """A script cannot be loaded, or its topology cannot be built."""

    is_mistake = True


def is_mistake(error: BaseException) -> bool:
    """Whether an error is a mistake of the user, which a restart would repeat."""
    return isinstance(error, StreamsError) and error.is_mistake


def traced(error: BaseException | None) -> str:
    """Return the traceback of an error as lines, "" for None."""
    return "" if error is None else "".join(traceback.format_exception(error))


def report(error: BaseException, *, is_debug: bool = False) -> int:
    """Print an error to standard error; return the exit status."""
    trace = traced(error if is_debug else None)
    fail(_message(error, is_debug=is_debug), trace, is_mistake=is_mistake(error))
    return MISTAKE if is_mistake(error) else FAILED


def _message(error: BaseException, *, is_debug: bool) -> str:
    if isinstance(error, ProcessingError):
        return "\n".join([str(error), *_details(error, is_debug=is_debug)])
    if isinstance(error, StreamsError):
        hint = "\n  fix the code, or skip such records with --set processing_handler=continue" if error.place else ""
        return f"{error}{hint}"
    hint = "" if is_debug else "; --debug shows the traceback"
    if isinstance(error, OSError):
        return full_disk(error) or f"{error}{hint}"
    if isinstance(error, MemoryError):
        return f"out of memory{hint}"
    return f"unexpected {type(error).__name__}: {error}{_in_user_code(error)}{hint}"


def _details(error: ProcessingError, *, is_debug: bool) -> list[str]:
    """Return the lines to print after the message: record position and user error, if the message lacks them."""
    message = str(error)
    place = {"node": error.node, "topic": error.topic, "partition": error.partition, "offset": error.offset}
    position = {name: str(value) for name, value in place.items() if value is not None}
    lines = []
    if any(value not in message for value in position.values()):
        lines.append(f"  at {', '.join(f'{name} {value}' for name, value in position.items())}")
    cause = error.__cause__
    if cause is not None and not isinstance(cause, StreamsError):
        if str(cause) not in message:
            lines.append(f"  {type(cause).__name__}: {cause}")
        if isinstance(cause, Exception):
            # Without an offset no record is to blame, as in init().
            skips = ", or skip such records with --set processing_handler=continue" if error.offset is not None else ""
            lines.append(f"  fix the code{skips}")
    where = "" if cause is None else _in_user_code(cause)
    if where:
        lines.insert(0, where.removeprefix("\n"))
    if not is_debug:
        lines.append("  --debug shows the traceback")
    return lines


def _in_user_code(error: BaseException) -> str:
    place = place_in_user_code(error)
    return f"\n  in {place}" if place else ""


def frame_in(trace: TracebackType | None, file: str) -> traceback.FrameSummary | None:
    """Return the innermost frame of a traceback that is in the given file, None if there is none."""
    frames = [frame for frame in traceback.extract_tb(trace) if frame.filename == file]
    return frames[-1] if frames else None
