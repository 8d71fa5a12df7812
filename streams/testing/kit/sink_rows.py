"""Compares the rows of a target with the records that were produced."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from streams.connect import Guarantee
from streams.core.errors import StreamsError
from streams.testing.kit.victims import differences


class SinkKitError(StreamsError, AssertionError):
    """A sink violates its guarantee; the message has the step, the seed, and the rows."""


@frozen
class SinkReport:
    """The counts of the faults in a passed check of a sink.

    ``faults`` is the number of kills, errors and takeovers by step.  ``duplicates`` is the number of duplicate
    rows, which only an at-least-once sink may have.  ``fenced`` is the number of takeovers that the
    replaced sink detected.
    """

    guarantee: Guarantee
    faults: Mapping[str, int]
    records: int
    duplicates: int
    fenced: int


@define(eq=False)
class Judge:
    """Compares the rows of a target with those that the produced records require."""

    guarantee: Guarantee
    is_keyed: bool
    seed: int
    #: Records as (key, value), in the order in which they were produced.
    records: list[tuple[Any, Any]] = field(factory=list)
    duplicates: int = 0

    def judge(self, rows: Iterable[Any], when: str) -> None:
        """Compare the rows of the target.

        Raises:
            SinkKitError: rows are missing, duplicated or unexpected.
        """
        present: Counter[Any] = Counter(tuple(row) for row in rows)
        expected: Counter[Any] = Counter(self._expected())
        if self.guarantee is Guarantee.AT_LEAST_ONCE:
            again = Counter({row: number for row, number in (present - expected).items() if row in expected})
            self.duplicates = again.total()
            present = present - again
        if problems := differences(expected, present, "rows"):
            raise SinkKitError(
                f"the sink is not {self.guarantee.replace('_', ' ')}, {when}: {'; '.join(problems)} "
                f"({len(self.records)} records, seed={self.seed})"
            )

    def _expected(self) -> Sequence[Hashable]:
        if not self.is_keyed:
            return self.records
        return [(key, value) for key, value in dict(self.records).items() if value is not None]
