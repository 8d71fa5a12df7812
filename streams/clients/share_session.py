"""The client side of a share session (KIP-932): what one broker acquires records of, and the epoch of the next request.

Fetches and acknowledgements of a session have one sequence of epochs, so one request at a time is in flight.
Pure: no requests are sent here.  Of the other packages, this module imports only ``protocol``.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from attrs import define, field

from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import INITIAL_EPOCH
from streams.protocol.share_group_messages import TopicIdPartition

_MOST: Final = 0x7FFF_FFFF
#: Errors after which the broker has no session, or another one than the client believes.
SESSION_LOST: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})


class ShareChanges(NamedTuple):
    """The fields of a fetch that depend on its session: partitions to add and to forget, and the epoch."""

    added: tuple[TopicIdPartition, ...]
    forgotten: tuple[TopicIdPartition, ...]
    epoch: int


@define(eq=False)
class ClientShareSession:
    """The share session of one consumer with one broker."""

    _partitions: dict[TopicIdPartition, None] = field(factory=dict, init=False)
    _epoch: int = field(default=INITIAL_EPOCH, init=False)

    @property
    def is_open(self) -> bool:
        """Whether the broker has the session, so that acknowledgements can be sent."""
        return self._epoch != INITIAL_EPOCH

    @property
    def epoch(self) -> int:
        """The epoch of the next request."""
        return self._epoch

    def begin_fetch(self, wanted: Collection[TopicIdPartition]) -> ShareChanges:
        """Return what the next fetch names, so that the broker acquires records of the ``wanted`` partitions only."""
        before, self._partitions = self._partitions, dict.fromkeys(wanted)
        if not self.is_open:
            return ShareChanges(tuple(wanted), (), self._epoch)
        added = tuple(partition for partition in wanted if partition not in before)
        forgotten = tuple(partition for partition in before if partition not in self._partitions)
        return ShareChanges(added, forgotten, self._epoch)

    def on_response(self, error: ErrorCode) -> None:
        """Note the error code of a whole response; the broker counts every request of a session that it knows."""
        if error is ErrorCode.NONE:
            self._epoch = 1 if self._epoch == _MOST else self._epoch + 1
        else:
            self.on_failure()

    def on_failure(self) -> None:
        """Note that the broker may have performed a request or not: the next fetch begins another session."""
        self._epoch = INITIAL_EPOCH
        self._partitions = {}
