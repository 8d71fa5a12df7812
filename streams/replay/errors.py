"""Errors of replay and hand-over, one class per cause that a caller treats differently."""

from collections.abc import Sequence
from typing import Any

from streams.core.errors import StreamsError
from streams.runtime.lateness import Late


class ReplayError(StreamsError):
    """A replay that cannot be planned or carried out; nothing that was complete before it is harmed."""


class ReplayTaskError(ReplayError):
    """A task of a replay failed.

    Fields: ``stage`` and ``task`` say which one, ``node``, ``topic``, ``partition`` and ``offset`` what it was
    working on, ``place`` the line of user code; None where unknown.
    """

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
    """More records were dropped because they were late than ``max_dropped`` allows; else the replay is whole.

    Fields: ``late`` says at which nodes, and which share; ``result`` is the ``ReplayResult``, to be closed.
    """

    def __init__(self, message: str, *, late: Sequence[Late], result: Any) -> None:
        super().__init__(message)
        self.late = tuple(late)
        self.result = result


class SnapshotError(ReplayError):
    """A snapshot that is damaged, not complete, or another application's."""


class HandOverError(ReplayError):
    """A snapshot that cannot go live where it was to: a gap, a group at work, topics that do not fit."""
