"""In-memory cache of the newest batches of file-backed partitions, with one budget for all partitions of a broker.

The overhead of a batch counts towards the budget: it is most of the memory of a single-record batch.  When the
budget is used up, the least recently written partition is evicted, and its readers read the file.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final

from attrs import define, field

from streams.broker.logs.array import ArrayStorage
from streams.broker.logs.limits import CACHE_BYTES, PARTITION_CACHE_BYTES
from streams.broker.logs.storage import payload_size
from streams.core.blocks.records import Block
from streams.protocol.wire import EncodedBlock

#: Overhead in bytes of a batch (its objects, header and position), and of a record in addition to its key and
#: value, as measured on CPython 3.11.
BATCH_OVERHEAD: Final = 640
_OBJECT_OVERHEAD: Final = 128
# Number of bytes to evict at once when a partition exceeds its share.
_MARK_BYTES: Final = 65_536


@define(eq=False)
class CacheBudget:
    """The memory budget shared by all caches of a broker, which also tracks when each cache was last written."""

    max_bytes: int = CACHE_BYTES
    used_bytes: int = field(default=0, init=False)
    # The caches that are not empty, least recently written first.
    _caches: "OrderedDict[RecentBatches, None]" = field(factory=OrderedDict, init=False)

    def take(self, cache: "RecentBatches", size: int) -> None:
        """Add the ``size`` in bytes by which a cache has grown.

        If the budget is exceeded, caches are cleared, beginning with the least recently written; ``cache`` comes last.
        """
        self.used_bytes += size
        self._caches[cache] = None
        self._caches.move_to_end(cache)
        while self.used_bytes > self.max_bytes:
            next(iter(self._caches)).clear()

    def give(self, cache: "RecentBatches", size: int) -> None:
        """Subtract the ``size`` in bytes by which a cache has shrunk."""
        self.used_bytes -= size
        if not cache.used_bytes:
            self._caches.pop(cache, None)


@define(eq=False)
class RecentBatches:
    """The cached end of the log of one partition: all batches from ``start_offset`` on."""

    budget: CacheBudget
    #: Offset after the last record.
    end_offset: int = 0
    max_bytes: int = PARTITION_CACHE_BYTES
    used_bytes: int = field(default=0, init=False)
    _batches: ArrayStorage = field(init=False)
    # (offset, bytes) of the units of eviction, oldest first.
    _marks: deque[tuple[int, int]] = field(factory=deque, init=False)
    _unmarked_bytes: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._batches = ArrayStorage(self.end_offset, self.end_offset, keeps_decoded=False)

    @property
    def start_offset(self) -> int:
        """The lowest cached offset, or the end of the log if nothing is cached."""
        return self._batches.start_offset

    def append(self, block: Block, size: int) -> None:
        """Append the next block of records to the cache; ``size`` is the size of the block in the file in bytes."""
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
        """Return the cached records from ``offset`` on; ``offset`` must be cached."""
        return self._batches.read(offset, max_records)

    def batches(self, offset: int) -> Iterator[EncodedBlock]:
        """Yield the cached batches from the one that contains ``offset`` on.

        The iteration ends before the first block that did not arrive encoded.
        """
        return self._batches.kept_encoded(offset)

    def truncate_before(self, offset: int) -> None:
        """Drop the cached records below an offset."""
        self._batches.truncate_before(offset)
        self.end_offset = self._batches.end_offset
        while self._marks and self._marks[0][0] <= offset:
            self._free(self._marks.popleft()[1])
        if offset >= self.end_offset:
            self.clear()

    def clear(self) -> None:
        """Drop all cached records; later appends are cached again."""
        self._batches.truncate_before(self.end_offset)
        self._marks.clear()
        self._unmarked_bytes = 0
        self._free(self.used_bytes)

    def _free(self, size: int) -> None:
        self.used_bytes -= size
        self.budget.give(self, size)
