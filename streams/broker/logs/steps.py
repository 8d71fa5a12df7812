"""Work on many blocks of records in steps.

The steps of a task are a generator, which yields the number of records that each step has processed.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final, TypeAlias, TypeVar

from streams.core.blocks.records import Block

T = TypeVar("T")

#: Yields the number of records processed in each step; the log may be used between steps.
Steps: TypeAlias = Generator[int, None, T]
#: Returns the remaining records of a block.
Keep: TypeAlias = Callable[[Block], Block | None]

#: Approximate number of records per step, which takes five to fifteen milliseconds.
STEP_RECORDS: Final = 4_096


def whole(steps: Steps[T]) -> T:
    """Run all remaining steps of a task at once, and return the result of the task."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def portions(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Group blocks into lists of at least ``STEP_RECORDS`` records; only the last list may have fewer."""
    portion: list[Block] = []
    count = 0
    for block in blocks:
        portion.append(block)
        count += len(block)
        if count >= STEP_RECORDS:
            yield portion
            portion = []
            count = 0
    if portion:
        yield portion


def records_in(blocks: Iterable[Block]) -> int:
    """Return the total number of records in the blocks."""
    return sum(map(len, blocks))
