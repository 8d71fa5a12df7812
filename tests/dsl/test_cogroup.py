"""A cogroup applies each of its aggregators, in their order, also if they have the same grouped stream."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import SessionWindows, StreamsBuilder, TimeWindows, Topic
from streams.testing import TopologyTestDriver

amounts = Topic("amounts", key=str, value=int)
others = Topic("others", key=str, value=int)
out = Topic("out", key=str, value=int)


def _added(key: str, value: int, total: int) -> int:
    return total + value


def _a_hundred_more(key: str, value: int, total: int) -> int:
    return total + 100


GROUPS = {
    "by key": lambda stream, name: stream.group_by_key(),
    "by another key": lambda stream, name: stream.group_by(lambda key, _: key, name=name),
}
AGGREGATES = {
    "of all": lambda cogrouped: cogrouped.aggregate(lambda: 0, name="c").to_stream(),
    "per window": lambda cogrouped: (
        cogrouped.windowed_by(TimeWindows.of(timedelta(seconds=1)))
        .aggregate(lambda: 0, name="c")
        .to_stream(lambda key, _: key.key)
    ),
    "per session": lambda cogrouped: (
        cogrouped.windowed_by(SessionWindows.of(timedelta(seconds=1)))
        .aggregate(lambda: 0, lambda key, left, right: left + right, name="c")
        .to_stream(lambda key, _: key.key, tombstones=False)
    ),
}


@pytest.mark.parametrize("optimization", ["none", "all"])
@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("group", GROUPS)
def test_both_aggregators_of_one_grouped_stream_apply_in_order(group, aggregate, optimization):
    def topology(builder: StreamsBuilder) -> None:
        grouped = GROUPS[group](builder.stream(amounts), "amounts-by-key")
        cogrouped = grouped.cogroup(_added, value=int).cogroup(grouped, _a_hundred_more)
        AGGREGATES[aggregate](cogrouped).to(out)

    with TopologyTestDriver(topology, topology_optimization=optimization) as driver:
        driver.pipe(amounts, 1, key="a", timestamp_ms=1)
        driver.pipe(amounts, 2, key="a", timestamp_ms=1)

        assert driver.read(out) == [("a", 1), ("a", 101), ("a", 103), ("a", 203)]


@given(st.lists(st.tuples(st.booleans(), st.integers(2, 9)), min_size=1, max_size=5), st.sampled_from(sorted(GROUPS)))
def test_aggregators_are_applied_as_a_loop_over_them_would(members, group):
    """Each member is one of two streams and its factor: total * factor + value shows every order and omission."""

    def topology(builder: StreamsBuilder) -> None:
        groups = [GROUPS[group](builder.stream(topic), f"{topic.name}-by-key") for topic in (amounts, others)]
        aggregators = [
            (groups[of_others], lambda _, value, total, factor=factor: total * factor + value)
            for of_others, factor in members
        ]
        (first, aggregator), *rest = aggregators
        cogrouped = first.cogroup(aggregator, value=int)
        for grouped, aggregator in rest:
            cogrouped = cogrouped.cogroup(grouped, aggregator)
        cogrouped.aggregate(lambda: 0, name="c").to_stream().to(out)

    total = 0
    expected = []
    with TopologyTestDriver(topology) as driver:
        for number, of_others in enumerate((False, True, True, False)):
            # A topic that no member of the cogroup reads is not a source of the topology.
            if of_others not in dict(members):
                continue
            driver.pipe((amounts, others)[of_others], number, key="a", timestamp_ms=number)
            for member, factor in members:
                if member == of_others:
                    total = total * factor + number
                    expected.append(("a", total))

        assert driver.read(out) == expected
