"""Rounds of records through a cycle of topics, in runs that must end.

A topology that writes a topic which it also reads may repeat a record without end.  A live application
may do so; a bounded run, a replay and the test driver end when no records are left, so they stop a
cycle that never would.  Pure: no clock, no I/O; imports core only.
"""

from collections.abc import Callable, Iterable

from attrs import define

from streams.core.errors import TopologyError

#: Number of records of a round, and factor over the first round, above which a cycle grows without end.
_MANY_RECORDS = 100_000
_MANY_TIMES = 1_000
_SOME_ROUNDS = 10


@define
class Rounds:
    """Counts the rounds of one cycle, once all its inputs are available.

    A round ends when as many records have been processed as waited at its start, including inputs: a
    repeated record may precede an input of the same time.  ``limit`` is the maximum number of rounds, 0
    for any (``max_cycle_rounds``).
    """

    limit: int
    count: int = 0
    _processed: int = 0
    #: Number of processed records at the end of this round.
    _round_end: int = 0
    #: Number of records waiting at the start of the first round.
    _first_size: int = 0

    def note(self, processed: int, left: Callable[[], int], topics: Callable[[], Iterable[str]]) -> None:
        """Add processed records; ``left`` is the number of waiting records, 0 before the inputs end.

        Raises:
            TopologyError: the cycle exceeds the limit of rounds, or its records grow without end.
        """
        self._processed += processed
        if self._processed < self._round_end or not self.limit:
            return
        size = left()
        self._round_end = self._processed + size
        if not size:
            self.count = 0
            return
        self.count += 1
        if self.count == 1:
            self._first_size = size
        is_growing = self.count > _SOME_ROUNDS and size > max(_MANY_RECORDS, _MANY_TIMES * self._first_size)
        if self.count > self.limit or is_growing:
            names = ", ".join(repr(topic) for topic in sorted(topics()))
            many = "have become ever more" if is_growing else "go on"
            raise TopologyError(
                f"the topology reads what it writes to {names}, and does not come to an end: all inputs are read, but "
                f"after {self.count - 1:,} rounds {size:,} records {many}; drop what needs no further round before it "
                "is written, or set max_cycle_rounds (0 = no limit)"
            )
