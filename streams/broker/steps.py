"""Work on many blocks in steps: generators that tell after each how many records it was."""

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final, TypeAlias, TypeVar

from streams.core.records import Block

T = TypeVar("T")

#: Yields the number of records of each step; between two of them others may use the log.
Steps: TypeAlias = Generator[int, None, T]
#: What stays of a block.
Keep: TypeAlias = Callable[[Block], Block | None]

#: About as many records are worked on at once: five to fifteen milliseconds.
STEP_RECORDS: Final = 4_096


def whole(steps: Steps[T]) -> T:
    """Take all steps at once, and return what comes of them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def portions(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Split blocks into portions of at least ``STEP_RECORDS`` records, but for the last; one block may have more."""
    portion: list[Block] = []
    count = 0
    for block in blocks:
        portion.append(block)
        count += len(block)
        if count >= STEP_RECORDS:
            yield portion
            portion, count = [], 0
    if portion:
        yield portion


def records_in(blocks: Iterable[Block]) -> int:
    """Return the number of records of blocks."""
    return sum(map(len, blocks))
