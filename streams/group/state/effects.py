"""What the coordinator asks of its driver: replies, records for the log, topics.  This module performs no I/O."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import field, frozen

from streams.core.blocks.records import ProducerStamp
from streams.protocol.messages import TopicSpec
from streams.protocol.request import Response


@frozen
class Reply:
    """An effect of the coordinator: the reply to the request with ``token``."""

    token: object
    response: Response


@frozen
class Persist:
    """An effect of the coordinator: append a record to ``__consumer_offsets`` before any later reply.

    The log is compacted, and a ``value`` of None is a tombstone.  With ``producer``, the record belongs to this
    producer's transaction.  ``undo`` restores the previous state after a failed append.
    """

    key: bytes
    value: bytes | None
    producer: ProducerStamp | None = None
    undo: Callable[[], None] | None = field(default=None, eq=False, repr=False)


@frozen
class CreateInternalTopics:
    """An effect of the coordinator: create topics of a streams group, before any later reply.

    The driver passes what it could not create to ``Coordinator.note_creation``.
    """

    group_id: str
    topics: Sequence[TopicSpec]


Effect: TypeAlias = Reply | Persist | CreateInternalTopics


def undone(persists: Sequence[Persist]) -> None:
    """Restore the state before ``persists``, because none of these records was appended."""
    for persist in reversed(persists):
        if persist.undo is not None:
            persist.undo()
