"""ksqlDB's recorded queries in other ways than one driver: three partitions, a replay in slices, a broker."""

import re
from collections.abc import Iterator
from decimal import localcontext

from tests.outside.ksql.runs import run_queries, why_not
from tests.outside.ksql.schemas import SkippedError
from tests.outside.suite import Outcome, Room, Suite
from tests.outside.suites.ksql import ORIGIN, VERSION, fetched_plans
from tests.outside.ways import WAYS, NoOrderError, Piped


def run(room: Room) -> Iterator[Outcome]:
    """Run each query of each plan in each way; what is not translated is left out by the suite ``ksql``."""
    with localcontext(prec=80):
        for plan in fetched_plans(room):
            if why_not(plan.name, plan.case) is not None:
                continue
            queries: list[Piped] = []
            try:
                run_queries(plan.commands, plan.case, queries.append)
            except SkippedError:
                continue
            for way, compare in WAYS.items():
                test = f"{plan.name} [{way}]"
                if room.only not in test or not queries:
                    continue
                try:
                    note = next((note for query in queries if (note := compare(query)) is not None), None)
                except NoOrderError as reason:
                    yield Outcome(test, "left out", str(reason))
                    continue
                except Exception as error:
                    note = f"{type(error).__name__}: {error}"
                yield Outcome(test, "failed" if note else "passed", re.sub(r"\s+", " ", note or ""))


SUITE = Suite(
    name="ksql_ways",
    title="ksqlDB's recorded queries in other ways",
    version=VERSION,
    origin=f"{ORIGIN}; each query with three partitions as with one, in a replay of three slices as in a bounded run,"
    " record for record, and on a broker, by the last value of each key",
    needs=("git",),
    run=run,
)
