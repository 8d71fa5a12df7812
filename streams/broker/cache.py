"""The newest batches of partitions that lie in files, in memory: one budget for all partitions of a broker.

What a batch takes beside its bytes counts too: of a batch of one record that is most of it.  Where the budget is
used up, the partition that was written to longest ago gives up what it has; its readers go to the file.  Under
``file``.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final

from attrs import define, field

from streams.broker.array import ArrayStorage
from streams.broker.limits import CACHE_BYTES, PARTITION_CACHE_BYTES
from streams.broker.storage import payload_size
from streams.core.records import Block
from streams.protocol.wire import EncodedBlock

#: What a batch takes beside its bytes (objects for itself, its header and its place), and a record beside key and
#: value; measured on CPython 3.11.
BATCH_OVERHEAD: Final = 640
_OBJECT_OVERHEAD: Final = 128
# Bytes that are given up at once where one partition has too many.
_MARK_BYTES: Final = 65_536


@define(eq=False)
class CacheBudget:
    """Memory that the caches of a broker may take together, and which of them was used last."""

    max_bytes: int = CACHE_BYTES
    used_bytes: int = field(default=0, init=False)
    # Those that hold anything, the one written to longest ago first.
    _caches: "OrderedDict[RecentBatches, None]" = field(factory=OrderedDict, init=False)

    def take(self, cache: "RecentBatches", size: int) -> None:
        """Note that a cache has grown; others give up theirs, and at last it itself, where that is too much."""
        self.used_bytes += size
        self._caches[cache] = None
        self._caches.move_to_end(cache)
        while self.used_bytes > self.max_bytes:
            next(iter(self._caches)).clear()

    def give(self, cache: "RecentBatches", size: int) -> None:
        """Note that a cache has shrunk."""
        self.used_bytes -= size
        if not cache.used_bytes:
            self._caches.pop(cache, None)


@define(eq=False)
class RecentBatches:
    """What was last appended to one partition, from ``start_offset`` on."""

    budget: CacheBudget
    #: Offset behind the last record.
    end_offset: int = 0
    max_bytes: int = PARTITION_CACHE_BYTES
    used_bytes: int = field(default=0, init=False)
    _batches: ArrayStorage = field(init=False)
    # (offset, bytes) by which it is cut from below.
    _marks: deque[tuple[int, int]] = field(factory=deque, init=False)
    _unmarked_bytes: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._batches = ArrayStorage(self.end_offset, self.end_offset, keeps_decoded=False)

    @property
    def start_offset(self) -> int:
        """The lowest offset that is here; the end where nothing is."""
        return self._batches.start_offset

    def append(self, block: Block, size: int) -> None:
        """Keep a block that follows; ``size`` is that of its bytes in the file."""
        self._batches.append(block)
        self.end_offset = self._batches.end_offset
        cost = size + BATCH_OVERHEAD
        if not isinstance(block, EncodedBlock):
            content = size if block.compression == "none" else payload_size(block)
            cost = content + BATCH_OVERHEAD + _OBJECT_OVERHEAD * len(block)
        self.used_bytes += cost
        self._unmarked_bytes += cost
        if self._unmarked_bytes >= min(_MARK_BYTES, self.max_bytes):
            self._marks.append((self.end_offset, self._unmarked_bytes))
            self._unmarked_bytes = 0
        self.budget.take(self, cost)
        while self.used_bytes > self.max_bytes and self._marks:
            offset, freed = self._marks.popleft()
            self._batches.truncate_before(offset)
            self._free(freed)

    def read(self, offset: int, max_records: int) -> list[Block]:
        """Return records from an offset on that is here."""
        return self._batches.read(offset, max_records)

    def batches(self, offset: int) -> Iterator[EncodedBlock]:
        """Yield the batches from the one that holds ``offset`` on up to the first that did not come encoded."""
        return self._batches.kept_encoded(offset)

    def truncate_before(self, offset: int) -> None:
        """Forget what lies below an offset."""
        self._batches.truncate_before(offset)
        self.end_offset = self._batches.end_offset
        while self._marks and self._marks[0][0] <= offset:
            self._free(self._marks.popleft()[1])
        if offset >= self.end_offset:
            self.clear()

    def clear(self) -> None:
        """Forget everything; what is appended next is kept again."""
        self._batches.truncate_before(self.end_offset)
        self._marks.clear()
        self._unmarked_bytes = 0
        self._free(self.used_bytes)

    def _free(self, size: int) -> None:
        self.used_bytes -= size
        self.budget.give(self, size)
