"""The same input gives the same bytes, however the work is cut."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.plans import Plan
from tests.properties.profile import examples
from tests.properties.runs import compacted, drive, run
from tests.properties.strategies import Row, plans, rows

_TOPOLOGIES = plans()


@pytest.mark.slow
@examples(60)
@given(st.data(), st.sampled_from([1, 1, 3]), st.sampled_from([0, 7, 40]))
def test_two_runs_in_the_test_driver_are_the_same(data: st.DataObject, partitions: int, pause_ms: int) -> None:
    """Outputs, changelogs and stores, record by record; pauses make inputs idle."""
    plan, given_rows = example(data)

    first, second = (drive(plan, given_rows, partitions=partitions, pause_ms=pause_ms, rest_ms=1000) for _ in range(2))

    assert first.outputs == second.outputs
    assert first.changelogs == second.changelogs
    assert first.stores == second.stores


@pytest.mark.world
@examples(100)
@given(st.data(), st.sampled_from([1, 3, 4]))
def test_bounded_runs_do_not_depend_on_polls_threads_commits_and_reading(data: st.DataObject, partitions: int) -> None:
    """All outputs are the same by partition and offset, the changelogs once they are compacted."""
    plan, given_rows = example(data)

    whole = run(plan, given_rows, partitions=partitions)
    others: tuple[dict[str, Any], ...] = (
        {"max_poll_records": 1, "commit_interval_ms": 0},
        {"num_stream_threads": 3, "max_poll_records": 3},
        {"num_stream_threads": 3, "commit_interval_ms": 0, "batch": 2, "buffered_records_per_partition": 1},
    )
    for settings in others:
        other = run(plan, given_rows, partitions=partitions, **settings)

        assert other.outputs(plan) == whole.outputs(plan), settings
        for topic in whole.topics:
            if topic.endswith("-changelog"):
                assert compacted(other.joined(topic)) == compacted(whole.joined(topic)), (settings, topic)


def example(data: st.DataObject) -> tuple[Plan, list[Row]]:
    """Draw a topology, and input for it."""
    plan = data.draw(_TOPOLOGIES, label="topology")
    return plan, data.draw(rows(plan), label="input")
