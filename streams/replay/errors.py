"""Errors of replays and of going live, one class for each cause that callers may handle differently."""

from collections.abc import Mapping, Sequence
from typing import Any

from streams.core.errors import StreamsError
from streams.runtime import Late


class ReplayError(StreamsError):
    """A replay cannot be planned or run.  Files that were complete before the failure are unchanged."""

    is_mistake = True


class ReplayTaskError(ReplayError):
    """A task of a replay failed.

    ``stage`` and ``task`` identify the task; ``node``, ``topic``, ``partition`` and ``offset`` locate the
    failed record; ``place`` is the line of user code.  Unknown fields are None.
    """

    is_mistake = False

    def __init__(
        self,
        message: str,
        *,
        stage: str | None = None,
        task: str | None = None,
        node: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        place: str | None = None,
    ) -> None:
        super().__init__(message)
        self.stage = stage
        self.task = task
        self.node = node
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.place = place


class LateRecordsError(ReplayError):
    """More late records were dropped than ``max_dropped`` allows; the replay is otherwise complete.

    ``late`` has the number and share of late records by node.  ``result`` is the ``ReplayResult``, which the
    caller closes.
    """

    def __init__(self, message: str, *, late: Sequence[Late], result: Any) -> None:
        super().__init__(message)
        self.late = tuple(late)
        self.result = result


class ExpectationError(ReplayError):
    """Outputs or stores of a replay are not as they are expected to be; ``failed`` has the rows of each such query."""

    def __init__(self, message: str, *, failed: Mapping[str, int]) -> None:
        super().__init__(message)
        self.failed = dict(failed)


class FolderLockedError(ReplayError):
    """Another process writes to the folder of a replay or archive; when it has ended, the same call succeeds."""

    is_mistake = False


class SnapshotError(ReplayError):
    """A snapshot is damaged or incomplete, or belongs to another application."""


class HandOverError(ReplayError):
    """An application cannot go live from a snapshot on this cluster.

    The reason is a gap after the history, an active consumer group, or topics that do not match the snapshot.
    """
