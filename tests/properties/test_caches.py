"""The record cache holds back updates, and changes no result."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.profile import examples
from tests.properties.runs import compacted, run
from tests.properties.strategies import Demand, plans, rows

_DEMAND = Demand(cached=True, has_global=False)


@pytest.mark.world
@examples(100)
@given(st.data(), st.sampled_from([1, 3]), st.sampled_from([1, 300, 10_000_000]))
def test_cached_and_uncached_runs_agree_on_tables_and_stores(
    data: st.DataObject, partitions: int, cache_max_bytes: int
) -> None:
    """Last values of outputs and changelogs: the cache is flushed at commits, or whenever it is full.

    Streams that come of tables are compared only where nothing counts their updates; see ``rules``.
    What suppressions and foreign-key subscriptions hold is not compared: it says what was before, which
    without cache is the value before the last update, and for a new row of an aggregate its initial value.
    """
    plan = data.draw(plans(_DEMAND), label="topology")
    given_rows = data.draw(rows(plan), label="input")

    uncached = run(plan, given_rows, partitions=partitions)
    cached = run(plan, given_rows, partitions=partitions, cache_max_bytes=cache_max_bytes)

    closing = [number for number, step in enumerate(plan.steps) if step.verb == "suppress_close"]
    suppressed = {f"app-n{number}-store-changelog" for number in closing}
    for topic in uncached.topics:
        is_state = topic.endswith("-changelog") and "-SUBSCRIPTION-" not in topic and topic not in suppressed
        if topic in plan.outputs or is_state:
            assert compacted(cached.joined(topic)) == compacted(uncached.joined(topic)), topic
