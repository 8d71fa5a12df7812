"""One partition and many, record by record and bounded: where Kafka Streams promises it, they agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.profile import examples
from tests.properties.runs import by_key, compacted, drive, run
from tests.properties.strategies import Demand, plans, rows

_DEMAND = Demand(by_partition=True, has_global=True, null_keys=False)


@examples(150)
@given(st.data(), st.sampled_from([3, 4]))
def test_one_partition_and_many_agree_on_each_key(data: st.DataObject, partitions: int) -> None:
    """The same records in the same order for each key of each output; ``rules`` says of which topologies.

    The input has a key everywhere and is in the order of time, for what is late depends on the
    other keys of a task.
    """
    plan = data.draw(plans(_DEMAND), label="topology")
    given_rows = data.draw(rows(plan, in_order=True, null_keys=False), label="input")

    one, many = drive(plan, given_rows), drive(plan, given_rows, partitions=partitions)

    for topic in plan.outputs:
        assert by_key(many.outputs[topic]) == by_key(one.outputs[topic]), topic


@pytest.mark.world
@examples(100)
@given(st.data(), st.sampled_from([1, 3]))
def test_bounded_run_ends_with_the_values_of_the_test_driver(data: st.DataObject, partitions: int) -> None:
    """The last value of each key; the driver reads records one by one, the run as its tasks get at them.

    Both read in the order of time, which is certain: no two records have the same time.
    """
    plan = data.draw(plans(Demand(by_partition=True, has_global=False, null_keys=False)), label="topology")
    given_rows = data.draw(rows(plan, in_order=True, null_keys=False), label="input")

    driven, bounded = drive(plan, given_rows), run(plan, given_rows, partitions=partitions)

    for topic in plan.outputs:
        assert compacted(bounded.joined(topic)) == compacted(driven.outputs[topic]), topic
