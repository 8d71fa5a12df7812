"""How often records go round a cycle of topics, where a run must come to an end.

A topology that writes a topic which it also reads may send a record round any number of times.  Live
that is the application's business; a bounded run, a replay and the test driver end when nothing is
left, so they end what never would.  Pure: no clock, no I/O; imports core only.
"""

from collections.abc import Callable, Iterable

from attrs import define

from streams.core.errors import TopologyError

#: A cycle with more records than this after some rounds, and so many times those of its first, grows without end.
_MANY_RECORDS = 100_000
_MANY_TIMES = 1_000
_SOME_ROUNDS = 10


@define
class Rounds:
    """Counts the rounds of one cycle, from when all its inputs are at hand.

    A round ends when as many records have been processed as waited at its start, inputs included: a record
    that goes round may come before an input of the same time.  ``limit`` is the number of rounds that may
    be, 0 for any (``max_cycle_rounds``).
    """

    limit: int
    count: int = 0
    _processed: int = 0
    #: Records processed at the end of this round.
    _round_end: int = 0
    #: Records that waited at the start of the first round.
    _first_size: int = 0

    def note(self, processed: int, left: Callable[[], int], topics: Callable[[], Iterable[str]]) -> None:
        """Take note of records processed; ``left`` tells how many wait, 0 while inputs go on.

        Raises:
            TopologyError: the records go round too often, or are ever more.
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
