"""What becomes of deletions where a table turns into a stream."""

from datetime import timedelta

import pytest

from streams import SessionWindows, StreamsBuilder, Suppressed, Topic
from streams.testing import TopologyTestDriver

amounts = Topic("amounts", key=str, value=int)
others = Topic("others", key=str, value=int)
out = Topic("out", key=str, value=int)
GAP = timedelta(seconds=1)

#: Ways to a table that deletes rows: what is written for a, 5, a deletion (or 1, which is filtered) and 7.
TABLES = {
    "source": lambda builder: builder.table(amounts),
    "filtered": lambda builder: builder.table(amounts, name="all").filter(lambda _, amount: amount > 3),
    "filtered with a store": lambda builder: builder.table(amounts).filter(lambda _, amount: amount > 3, store="large"),
    "mapped": lambda builder: builder.table(amounts).map_values(lambda amount: amount),
    "joined": lambda builder: builder.table(amounts).left_join(builder.table(others), lambda amount, _: amount),
    "suppressed": lambda builder: builder.table(amounts, name="all").suppress(
        Suppressed.until_time_limit(timedelta(0), max_records=9)
    ),
    "regrouped": lambda builder: (
        builder.table(amounts)
        .group_by(lambda key, amount: (key, amount))
        .reduce(lambda total, new: total + new, lambda total, old: total - old or None)
    ),
}
SETTINGS = {"plain": {}, "isolated": {"processing_handler": "continue"}, "cached": {"cache_max_bytes": 10_000}}


@pytest.mark.case(5)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("table", TABLES)
def test_tombstones_pass_or_are_left_out_and_everything_else_is_the_same(table, settings):
    """With several nodes behind the table, which see the same change."""
    changes = {}
    for tombstones in (True, False):
        for keyed in (True, False):

            def topology(builder: StreamsBuilder, tombstones=tombstones, keyed=keyed) -> None:
                made = TABLES[table](builder)
                if keyed:
                    made.to_stream(lambda key, amount: key.upper(), tombstones=tombstones).to(out)
                else:
                    made.to_stream(tombstones=tombstones).to(out)
                made.to_stream().to("all-changes")

            driver = TopologyTestDriver(topology, **SETTINGS[settings])
            for value in (5, 1 if "filtered" in table else None, 7):
                driver.pipe(amounts, value, key="a", timestamp_ms=0)
            changes[tombstones, keyed] = driver.read(out)
            assert None in [record.value for record in driver.read_bytes("all-changes")]

    assert None in [value for _, value in changes[True, False]]
    for keyed in (True, False):
        assert changes[False, keyed] == [pair for pair in changes[True, keyed] if pair[1] is not None]


def test_sessions_that_grow_give_no_none_without_tombstones():
    def topology(builder: StreamsBuilder) -> None:
        sessions = builder.stream(amounts).group_by_key().windowed_by(SessionWindows.of(GAP)).count()
        sessions.to_stream(tombstones=False).map(lambda session, count: (session.key, count + 1)).to(out)

    driver = TopologyTestDriver(topology)
    driver.pipe_all(amounts, [("a", 1, 0), ("a", 1, 10)])

    assert driver.read(out) == [("a", 2), ("a", 3)]


def test_names_and_numbers_are_the_same_with_and_without_tombstones():
    def built(**options):
        builder = StreamsBuilder()
        builder.table(amounts).to_stream(**options).to(out)
        return list(builder.build().nodes)

    assert built(tombstones=False) == built()


def test_driver_reads_with_or_without_tombstones():
    driver = TopologyTestDriver(lambda builder: builder.stream(amounts).to(out))
    for _ in range(2):
        driver.pipe_all(amounts, [("a", 1, 0), ("a", None, 1)])

    assert driver.read(out) == [("a", 1), ("a", None)] * 2
    driver.pipe_all(amounts, [("a", 1, 0), ("a", None, 1)])
    assert driver.read(out, tombstones=False) == [("a", 1)]
    assert driver.read(out) == []
