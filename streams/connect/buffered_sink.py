"""The base of sinks: they buffer blocks until a commit, and know the positions that the target has.

Of the other packages, this module imports only ``core``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from streams.connect.errors import SinkFencedError
from streams.connect.protocol import Guarantee, SinkBlock
from streams.core.topic import Topic


class BufferedSink(ABC):
    """A sink whose commit writes blocks and, to be exactly once, positions, if they are those of the last commit."""

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self) -> None:
        self._connector = ""
        self._topic = ""
        #: Position of each partition in the target, None for none.
        self._stored: dict[int, int | None] = {}
        self._blocks: list[SinkBlock[Any, Any]] = []

    def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        """Create or check the target, and return the positions that it has.

        Raises:
            ConfigError: the target does not fit the topic, is lost, or cannot be created.
        """
        self.abort()
        self._connector = connector
        self._topic = topic.name
        positions = self._opened(topic, partitions)
        self._stored = {partition: positions.get(partition) for partition in partitions}
        return {partition: positions[partition] for partition in partitions if partition in positions}

    def write(self, block: SinkBlock[Any, Any]) -> None:
        """Buffer a block until the next commit, so that a suspended worker holds no lock."""
        self._blocks.append(block)

    def commit(self) -> None:
        """Write the blocks and their positions as one.

        Raises:
            SinkFencedError: another worker has changed a stored position.
            ConnectError: the target rejects a record.
        """
        if not self._blocks:
            return
        moves = {block.partition: block.next_offset for block in self._blocks}
        self._commit(self._blocks, moves)
        self._stored.update(moves)
        self._blocks.clear()

    def abort(self) -> None:
        """Discard the blocks written since the last commit."""
        self._blocks.clear()

    @abstractmethod
    def is_retriable(self, error: Exception) -> bool:
        """Whether an error concerns the connection, a lock or a conflict, and not the records."""

    @abstractmethod
    def close(self) -> None:
        """Release what is open."""

    @abstractmethod
    def _opened(self, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        """Open the target, and return the positions of these partitions, or of more."""

    @abstractmethod
    def _commit(self, blocks: Sequence[SinkBlock[Any, Any]], moves: Mapping[int, int]) -> None:
        """Write blocks and the positions after them, ``moves``, if the positions are those that are stored."""

    def _fenced(self, partition: int, stored: str) -> SinkFencedError:
        return SinkFencedError(
            f"{self!r}: the position of {self._connector!r} in {self._topic}-{partition} is {stored}no longer "
            f"{self._stored[partition]}: another worker has written there"
        )
