"""ksqlDB's recorded queries, translated into topologies, in the test driver: ``tests/outside/ksql``.

ksqlDB is in no registry with its tests: they are fetched from its repository, or read from the git directory that
``KSQL_GIT`` names.
"""

import re
from collections.abc import Iterator
from decimal import localcontext

from tests.outside.ksql.plans import Plan, plans
from tests.outside.ksql.runs import difference, run_queries, sinks_of, why_not
from tests.outside.ksql.schemas import SkippedError
from tests.outside.repositories import repository
from tests.outside.suite import Outcome, Room, Suite

REPOSITORY = "https://github.com/confluentinc/ksql.git"
COMMIT = "354e3d1c2d217dc846460ea757f62278586ec61a"
VERSION = f"8.5.0 ({COMMIT[:8]})"
ORIGIN = (
    f"the plans that {REPOSITORY} has recorded, as topologies in the test driver (`KSQL_GIT`: a git directory of it)"
)
#: Kafka Streams never emits the final results of windows that leave the retention of their store when stream time
#: jumps by more than a window; streams emits them before.  What is seen instead of the outputs of the test: the start
#: of each window, and its count.
DIFFERENT = {
    "suppress_-_should_drop_out_of_order_event_after_window_end_plus_grace_period_passes": [(0, 4), (2, 1)],
    "suppress_-_should_handle_null_values": [(0, 1), (2, 1)],
    "suppress_-_should_include_out_of_order_events_before_window_end_plus_grace_period_passes": [(0, 4), (2, 1)],
    "suppress_-_should_support_final_results_for_hopping_windows": [(0, 4), (2, 3), (4, 2)],
    "suppress_-_should_support_final_results_for_tumbling_windows": [(0, 4), (2, 1)],
    "suppress_-_should_suppress_after_a_filter_WHERE_clause": [(0, 1), (2, 1)],
    "suppress_-_should_suppress_multiple_keys": [(0, 2), (0, 2), (2, 1)],
}


def fetched_plans(room: Room) -> Iterator[Plan]:
    """Fetch the commit, and yield its plans.

    Raises:
        UnavailableError: it cannot be had.
    """
    yield from plans(repository(room, "KSQL_GIT", REPOSITORY, COMMIT), COMMIT)


def judged(plan: Plan) -> str | None:
    """Return None if the outputs are as expected, else the difference.

    Raises:
        SkippedError: the test is not translated.
    """
    if (reason := why_not(plan.name, plan.case)) is not None:
        raise SkippedError(reason)
    topics, sinks = run_queries(plan.commands, plan.case), sinks_of(plan.commands)
    if plan.name in DIFFERENT:
        seen = [(record["window"]["start"], record["value"]["COUNT"]) for record in topics["OUTPUT"]]
        if seen == DIFFERENT[plan.name]:
            raise SkippedError("known difference: streams emits all windows that close, Kafka Streams not all of them")
        return f"expected {DIFFERENT[plan.name]}, seen {seen}"
    result = difference(topics, plan.case["outputs"], sinks)
    newer = plan.current_outputs() if result else []
    return result if not newer or difference(topics, newer, sinks) else None


def run(room: Room) -> Iterator[Outcome]:
    """Run the newest plan of each test."""
    with localcontext(prec=80):
        for plan in fetched_plans(room):
            if room.only not in plan.name:
                continue
            try:
                note = judged(plan)
            except SkippedError as reason:
                yield Outcome(plan.name, "left out", str(reason))
                continue
            except Exception as error:
                note = f"{type(error).__name__}: {error}"
            yield Outcome(plan.name, "failed" if note else "passed", re.sub(r"\s+", " ", note or ""))


SUITE = Suite(name="ksql", title="ksqlDB's recorded queries", version=VERSION, origin=ORIGIN, needs=("git",), run=run)
