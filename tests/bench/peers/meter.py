"""Wall time and CPU of a run, said in one line of JSON, in the words in which the peers say theirs."""

import json
import resource
import time
from collections.abc import Mapping
from typing import NamedTuple

from attrs import define, field


class Moment(NamedTuple):
    """What has been used up to a moment; CPU is of the process with all its threads."""

    wall_s: float
    cpu_s: float
    records: int = 0


def now(records: int = 0) -> Moment:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Moment(time.perf_counter(), used.ru_utime + used.ru_stime, records)


@define
class Meter:
    """From the moment at which it runs to the last record, and on until it is committed."""

    records_in: int
    moments: list[Moment] = field(factory=list)
    #: When half of the records were processed.
    half: Moment | None = None
    #: Records left out as late.
    dropped: int = 0

    def mark(self, records: int = 0) -> None:
        """Begin; then end; then be committed."""
        self.moments.append(now(records))

    def mark_half(self, records: int) -> None:
        self.half = now(records)

    def line(self, facts: Mapping[str, str | int], out: int) -> str:
        begin, end, committed = self.moments
        assert self.half is not None
        wall_s, cpu_s = end.wall_s - begin.wall_s, end.cpu_s - begin.cpu_s
        # Records are counted in steps: what lies behind the half is what was counted there.
        share = (end.records - self.half.records) / end.records
        late = share * self.records_in
        figures = {
            "rate": round(self.records_in / wall_s),
            "rate_committed": round(self.records_in / (committed.wall_s - begin.wall_s)),
            "rate_2nd_half": round(late / (end.wall_s - self.half.wall_s)),
            "cpu_per_m": round(cpu_s / self.records_in * 1e6, 2),
            "cpu_per_m_committed": round((committed.cpu_s - begin.cpu_s) / self.records_in * 1e6, 2),
            "cpu_per_m_2nd_half": round((end.cpu_s - self.half.cpu_s) / late * 1e6, 2),
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        return json.dumps({**facts, "n": self.records_in, "out": out, **figures})
