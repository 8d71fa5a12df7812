"""A sample of the keys of one input partition, which shows whether they are in the partition of their hash.

The first records after a task is opened are looked at, then one in a thousand: by their number, so that the sample
does not depend on the sizes of blocks. The module is pure, and imports only ``core`` from outside ``runtime``.
"""

from collections.abc import Callable, Sequence

from attrs import define, field

from streams.core.blocks.key_places import KeyPlaces
from streams.core.blocks.records import Block
from streams.core.metrics import Counter

#: Number of records at the beginning that are all looked at.
_FIRST = 64
#: Then one of so many records; a prime, so that keys in a cycle do not have their turn together.
_STRIDE = 1_009


@define(eq=False)
class KeySampler:
    """Samples the keys of one input partition of a task.

    ``home`` has the partitions of the topic that the task reads. ``note`` is called with a block and the indices of its
    sampled records if some of their keys are misplaced; it returns the index of a record that fails the task, with the
    error, or None.
    """

    places: KeyPlaces
    partition: int
    home: frozenset[int]
    sampled: Counter
    note: "Callable[[KeySampler, Block, Sequence[int]], tuple[int, Exception] | None]"
    #: Counts the misplaced keys for the ``reason`` that explains them; looked up when there are any.
    misplaced: Counter | None = field(default=None, init=False)
    reason: str = field(default="", init=False)
    #: Number of records of the beginning that are still to come, and of those before the next one that is sampled.
    _first: int = field(default=_FIRST, init=False)
    _skip: int = field(default=0, init=False)

    def look(self, block: Block) -> tuple[int, Exception] | None:
        """Sample the next block of raw records; return the index of a record that fails the task, and the error."""
        keys = block.keys
        count = len(keys)
        skip = self._skip
        if skip >= count:
            self._skip = skip - count
            return None
        indices: Sequence[int] = range(skip, count, _STRIDE)
        if self._first:
            dense = min(count, self._first)
            self._first -= dense
            indices = [*range(dense), *range(dense - 1 + _STRIDE, count, _STRIDE)]
        self._skip = indices[-1] + (1 if self._first else _STRIDE) - count
        present = [key for index in indices if (key := keys[index]) is not None]
        self.sampled.value += len(present)
        if self.home.issuperset(self.places.expected(present)):
            self.places.place(self.partition, len(present))
            return None
        return self.note(self, block, indices)
