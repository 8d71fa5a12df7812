"""The limit on how often records pass through a cycle of topics, in runs that must end.

A topology that reads a topic to which it also writes may process the same record again and again.  A live application
may do so.  A bounded run, a replay and the test driver end when no records are left, so they fail if a cycle would
never end.  The module is pure and imports only ``core``.
"""

from collections.abc import Callable, Iterable

from attrs import define

from streams.core.errors import TopologyError

#: After ``_SOME_ROUNDS``, a cycle with more records than this, and this many times its first round, is endless.
_MANY_RECORDS = 100_000
_MANY_TIMES = 1_000
_SOME_ROUNDS = 10


@define
class Rounds:
    """Counts the rounds of records through one cycle of topics, once all input records of the cycle are buffered.

    A round ends when as many records have been processed as were buffered at its start.  Input records are included,
    since a repeated record may precede an input record with the same timestamp.  ``limit`` is the maximum number of
    rounds (``max_cycle_rounds``); 0 means no limit.
    """

    limit: int
    count: int = 0
    _processed: int = 0
    #: Number of processed records at which this round ends.
    _round_end: int = 0
    #: Number of records to process at the start of the first round.
    _first_size: int = 0

    def note(self, processed: int, left: Callable[[], int], topics: Callable[[], Iterable[str]]) -> None:
        """Add ``processed`` records to the current round.

        ``left`` returns the number of remaining records, or 0 until the inputs have ended.  ``topics`` returns the
        topics for the error message.

        Raises:
            TopologyError: the cycle exceeds the maximum number of rounds, or grows endlessly.
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
            many = "are left, more in each round" if is_growing else "are left"
            raise TopologyError(
                f"the topology reads what it writes to {names}, and does not end: all inputs are read, but after "
                f"{self.count - 1:,} rounds {size:,} records {many}; filter out records that need no further round, or "
                "set max_cycle_rounds (0 = no limit)"
            )
