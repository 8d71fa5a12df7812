"""Consumed records of repartition topics are deleted: nobody else reads them.

Sent without waiting; what is refused or lost is asked for again the next time.  Imports clients.
"""

from collections.abc import Mapping

from attrs import define, field

from streams.clients.network import ANY_NODE, Network
from streams.core.clock import Clock
from streams.core.records import TopicPartition
from streams.protocol.messages import DeleteRecords, OffsetAndMetadata


@define(eq=False)
class Purger:
    """Deletes what one thread has consumed and committed, now and then.

    ``interval_ms`` is the setting ``repartition_purge_interval_ms``.
    """

    _network: Network
    _clock: Clock
    _interval_ms: int
    _next_ms: int = field(init=False)
    _consumed: dict[TopicPartition, int] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._next_ms = self._clock.monotonic_ms() + self._interval_ms

    def note(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Take note of offsets of repartition topics that have just been committed."""
        for partition, found in committed.items():
            self._consumed[partition] = found.offset

    def poll(self) -> None:
        """Ask for the deletion when it is due."""
        now = self._clock.monotonic_ms()
        if now < self._next_ms:
            return
        self._next_ms = now + self._interval_ms
        # Answers tell nothing that matters; they are only taken in.
        self._network.poll(0)
        if self._consumed:
            self._network.send(ANY_NODE, DeleteRecords(self._consumed))
            self._consumed = {}

    def close(self) -> None:
        """Close the connection."""
        self._network.close()
