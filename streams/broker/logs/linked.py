"""In-memory log storage as a linked list, with one node per append.

An append never moves existing records, and dropping the oldest records frees them node by node.
Sequential readers find their node without a search.  This storage is suitable for logs that are used as
short-lived queues; ``array`` is faster for random access.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from attrs import define, field

from streams.broker.logs.array import blocks_from, extent_of, index_of, joined, kept_below, numbered
from streams.broker.logs.batches import EncodedRun, pieces, run_of
from streams.broker.logs.steps import Keep, Steps, whole
from streams.broker.logs.storage import LogExtent, StorageContext
from streams.core.blocks.records import Block
from streams.protocol.wire import EncodedBlock

# Number of readers whose position is cached.
_MAX_CURSORS: Final = 64


@define(eq=False)
class _Node:
    """A node of the linked list, with one non-empty block of records."""

    block: Block
    next: "_Node | None" = None

    @property
    def last_offset(self) -> int:
        return self.block.offsets[-1]


@define(eq=False)
class LinkedStorage:
    """The storage of one partition, which keeps blocks of records in a singly linked list in memory."""

    start_offset: int = field(default=0, init=False)
    end_offset: int = field(default=0, init=False)
    _head: _Node | None = field(default=None, init=False)
    _tail: _Node | None = field(default=None, init=False)
    # Where sequential readers continue: the node, by the next offset to read.
    _cursors: dict[int, _Node] = field(factory=dict, init=False)

    def append(self, block: Block) -> int:
        """Append a block of records; see ``LogStorage.append``."""
        base = self.end_offset
        count = len(block)
        if count:
            self._link(numbered(block, base))
            self.end_offset = base + count
        return base

    def read(self, offset: int, max_records: int) -> list[Block]:
        """Return records from ``offset`` on; adjacent small blocks are merged."""
        result: list[Block] = []
        position = max(offset, self.start_offset)
        node = self._cursors.pop(position, self._head)
        while node is not None and max_records > 0:
            first = index_of(node.block.offsets, position)
            count = len(node.block) - first
            if count > 0:
                block = node.block.slice(first, first + max_records) if first or count > max_records else node.block
                result.append(block)
                max_records -= len(block)
                position = block.offsets[-1] + 1
            if max_records > 0:
                if node.next is None:
                    break
                node = node.next
        if node is not None and result:
            self._remember(position, node)
        return list(joined(result)) if len(result) > 1 else result

    def read_encoded(self, offset: int, max_bytes: int, upto: int, *, is_first: bool) -> EncodedRun:
        """Return whole record batches; see ``EncodedStorage.read_encoded``."""
        position = max(offset, self.start_offset)
        node: _Node | None = self._cursors.pop(position, self._head)
        while node is not None and node.last_offset < position:
            node = node.next
        place = node

        def batches() -> Iterator[EncodedBlock]:
            nonlocal place
            current = node
            while current is not None:
                place = current
                yield self._encoded(current)
                current = current.next

        run = run_of(batches(), position, max_bytes, upto, is_first=is_first)
        if run.chunks and place is not None:
            self._remember(run.next_offset, place)
        return run

    def truncate_before(self, offset: int) -> None:
        """Raise the start offset to ``offset``, and unlink the nodes that are entirely below it."""
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self.end_offset = max(offset, self.end_offset)
        node = self._head
        while node is not None and node.last_offset < self.start_offset:
            node = node.next
        self._head = node
        if node is None:
            self._tail = None
        self._cursors.clear()

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Scan the list, and return (offset, timestamp) of the first record at or after a timestamp, or None."""
        for node in self._nodes():
            for offset, timestamp in zip(node.block.offsets, node.block.timestamps, strict=True):
                if timestamp >= timestamp_ms and offset >= self.start_offset:
                    return offset, timestamp
        return None

    def extents(self) -> Sequence[LogExtent]:
        """Return one extent for each node of the list."""
        return [extent_of(node.block) for node in self._nodes()]

    @property
    def sealed_offset(self) -> int:
        """The offset below which compaction may rewrite records: the end of the log."""
        return self.end_offset

    def compact(self, upto: int, keep: Keep) -> int:
        """Compact the nodes below the offset ``upto``; adjacent small nodes are merged."""
        return whole(self.compaction(upto, keep))

    def compaction(self, upto: int, keep: Keep) -> Steps[int]:
        """Compact like ``compact``, but in steps; readers see the result after the last step."""
        below = yield from kept_below((node.block for node in self._nodes()), upto, keep)
        # Since the first step, records may have been appended, and records at the start may have been deleted.
        below = [block for block in joined(below) if block.offsets[-1] >= self.start_offset]
        above = blocks_from((node.block for node in self._nodes()), upto)
        self._head = self._tail = None
        self._cursors.clear()
        for block in (*below, *above):
            self._link(block)
        return sum(map(len, below))

    def flush(self) -> None:
        """Do nothing: records in memory are not durable."""

    def close(self) -> None:
        """Free the records."""
        self._head = self._tail = None
        self._cursors.clear()

    def delete(self) -> None:
        """Free the records and restart at offset 0."""
        self.start_offset = self.end_offset = 0
        self.close()

    def _link(self, block: Block) -> None:
        node = _Node(block)
        if self._tail is None:
            self._head = node
        else:
            self._tail.next = node
        self._tail = node

    def _encoded(self, node: _Node) -> EncodedBlock:
        """Return the encoded batch of a node and cache it; a node with a large block is split into several nodes."""
        if isinstance(node.block, EncodedBlock):
            return node.block
        first, *others = pieces(node.block)
        block = node.block = EncodedBlock.of(first, first.offsets[0])
        for part in reversed(others):
            node.next = _Node(part, node.next)
            if self._tail is node:
                self._tail = node.next
        return block

    def _nodes(self) -> Iterator[_Node]:
        node = self._head
        while node is not None:
            yield node
            node = node.next

    def _remember(self, position: int, node: _Node) -> None:
        self._cursors[position] = node
        if len(self._cursors) > _MAX_CURSORS:
            del self._cursors[next(iter(self._cursors))]


def linked_storage(context: StorageContext) -> LinkedStorage:
    """Return a storage for a partition of a topic with ``storage="linked"``."""
    return LinkedStorage()
