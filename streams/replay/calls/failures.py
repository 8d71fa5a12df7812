"""Failures of calls to an executor, with node, file and record but without the executor's own tracebacks.

Executors can only return text, so the details of a failure are packed into that text, and unpacked here.
"""

import json
import re
import traceback
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from streams.core.blocks.records import TopicPartition
from streams.core.errors import ConfigError, InputError, StreamsError, TopologyError, WallClockError
from streams.core.user_code import place_in_user_code
from streams.replay.errors import ReplayError, ReplayTaskError, SnapshotError

#: Errors that keep their class when they come from an executor.
_KNOWN: dict[str, type[StreamsError]] = {
    kind.__name__: kind for kind in (ConfigError, InputError, ReplayError, SnapshotError, TopologyError)
}

_MARK = "streams-replay-failure:"
#: Maximum number of characters of a message and of a traceback; some executors limit their size.
_LONGEST_MESSAGE = 4_000
_LONGEST_TRACE = 8_000


class TaskFailure(Exception):
    """A failure of a call, raised in a worker, whose text includes all details."""


class WorkerTraceback(Exception):
    """The traceback of a worker; it is the cause of the error that the driver raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def packed(work: Any, error: BaseException) -> TaskFailure:
    """Return an error whose text includes all details that the driver needs."""
    fields = {
        "name": work.name,
        "stage": work.stage,
        "type": type(error).__name__,
        "message": str(error)[:_LONGEST_MESSAGE],
        "is_known": isinstance(error, StreamsError),
        "place": place_in_user_code(error.__cause__ or error) or None,
    }
    fields |= {name: getattr(error, name, None) for name in ("node", "topic", "partition", "offset")}
    fields["trace"] = "".join(traceback.format_exception(error))[-_LONGEST_TRACE:]
    text = urlsafe_b64encode(zlib.compress(json.dumps(fields, default=str).encode())).decode()
    return TaskFailure(f"{_MARK}{text}:")


def failure_text(text: str) -> str | None:
    """Return the part of ``text`` that ``packed`` has written, or None if there is none."""
    marks = re.findall(rf"{_MARK}[\w=-]+:", text)
    return str(marks[-1]) if marks else None


def unpacked(text: str) -> dict[str, Any] | None:
    """Return the details that ``packed`` has stored in ``text``, or None if there are none."""
    message = failure_text(text)
    if message is None:
        return None
    return dict(json.loads(zlib.decompress(urlsafe_b64decode(message.removeprefix(_MARK)[:-1]))))


def explained_failure(session: Any, error: Exception) -> Exception:
    """Return the error to show to the user for a failed call, with its cause."""
    explained = _explained(session, error)
    if explained is not error:
        trace = (unpacked(str(error)) or {}).get("trace")
        explained.__cause__ = WorkerTraceback(trace) if trace else error
    return explained


def _explained(session: Any, error: Exception) -> Exception:
    if isinstance(error, ReplayTaskError):
        return error
    fields = unpacked(str(error))
    if fields is None:
        if isinstance(error, StreamsError):
            return error
        return ReplayError(f"the replay failed: {type(error).__name__}: {_first_lines(str(error))}")
    if fields.get("type") == WallClockError.__name__:
        return ReplayError(fields["message"])
    error_of = _KNOWN.get(fields.get("type", ""))
    if error_of is not None:
        return error_of(fields["message"])
    message = fields["message"] if fields["is_known"] else f"{fields.get('type')}: {fields['message']}"
    where = _where(session, fields)
    if fields.get("stage") is not None and fields["stage"] >= 0:
        message = f"stage {fields['stage']}, {message}"
    return ReplayTaskError(
        message + where + (f"\n  in {fields['place']}" if fields.get("place") else ""),
        stage=None if fields.get("stage") is None else str(fields["stage"]),
        task=fields.get("name"),
        node=fields.get("node"),
        topic=fields.get("topic"),
        partition=fields.get("partition"),
        offset=fields.get("offset"),
        place=fields.get("place"),
    )


def _where(session: Any, fields: dict[str, Any]) -> str:
    """Return the file and row of a failed record, as the end of a message."""
    topic = fields.get("topic")
    partition = fields.get("partition")
    offset = fields.get("offset")
    if topic is None or partition is None or offset is None:
        return ""
    origin = session.inputs.origin(TopicPartition(topic, partition), offset)
    return "" if origin is None else f" (row {origin[1]:,} of {origin[0]})"


def _first_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[:3])
