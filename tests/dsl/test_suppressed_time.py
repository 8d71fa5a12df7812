"""Windows close at their time, also if no row of theirs or of later windows passes an operator before ``suppress``."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import StreamsBuilder, Suppressed, TimeWindows, Topic
from streams.testing import TopologyTestDriver

clicks = Topic("clicks", key=str, value=int)
out = Topic("out", key=str, value=int)
MINUTE_MS = 60_000
AT_CLOSE = Suppressed.until_window_closes()


def _counts(builder: StreamsBuilder, name: str = "counts", grace_ms: int = 0):
    windows = TimeWindows.of(timedelta(minutes=1), grace=timedelta(milliseconds=grace_ms))
    return builder.stream(clicks).group_by_key().windowed_by(windows).count(name)


def _many(_, count):
    return count >= 3


def _few(_, count):
    return count < 3


def _joined(builder):
    frequent = _counts(builder, "frequent").filter(_many)
    return _counts(builder).join(frequent, lambda count, _: count)


#: Tables of counts per minute that have only those of three and more.
TABLES = {
    "filter": lambda builder: _counts(builder).filter(_many),
    "filter_not": lambda builder: _counts(builder).filter_not(_few),
    "filter with a store": lambda builder: _counts(builder).filter(_many, store="many"),
    "filters": lambda builder: _counts(builder).filter(_many).filter(lambda *_: True, store="all"),
    "mapping behind": lambda builder: _counts(builder).filter(_many).map_values(lambda count: count),
    "mapping with a store behind": lambda builder: (
        _counts(builder).filter(_many).map_values(lambda count: count, store="mapped")
    ),
    "mapping before": lambda builder: _counts(builder).map_values(lambda count: count).filter(_many),
    "join": _joined,
}


def _alerts(table, suppressed=AT_CLOSE):
    return TopologyTestDriver(
        lambda builder: TABLES[table](builder).suppress(suppressed).to_stream(lambda key, _: key.key).to(out)
    )


@pytest.mark.parametrize("table", TABLES)
def test_a_window_closes_with_a_row_that_does_not_pass(table):
    """Ann clicks three times in the first minute, and Bob once in each minute."""
    with _alerts(table) as driver:
        for at_ms in (1, 2, 3):
            driver.pipe(clicks, 1, key="ann", timestamp_ms=at_ms)
        driver.pipe(clicks, 1, key="bob", timestamp_ms=MINUTE_MS - 1)
        assert driver.read(out) == []

        driver.pipe(clicks, 1, key="bob", timestamp_ms=MINUTE_MS)
        assert driver.read(out) == [("ann", 3)]


def test_a_time_limit_is_measured_by_the_rows_that_pass():
    """As in Kafka Streams: an update is held until a row that passes is later by the limit."""
    limit = Suppressed.until_time_limit(timedelta(minutes=1))
    with _alerts("filter", suppressed=limit) as driver:
        for at_ms in (1, 2, 3):
            driver.pipe(clicks, 1, key="ann", timestamp_ms=at_ms)
        driver.pipe(clicks, 1, key="bob", timestamp_ms=10 * MINUTE_MS)
        assert driver.read(out) == []

        for at_ms in (1, 2):
            driver.pipe(clicks, 1, key="bob", timestamp_ms=10 * MINUTE_MS + at_ms)
        assert driver.read(out) == [("ann", 3)]


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6 * MINUTE_MS)), max_size=30)


@given(ROWS, st.sampled_from([0, MINUTE_MS]), st.integers(1, 4))
def test_filtered_and_suppressed_is_suppressed_and_filtered(rows, grace_ms, least):
    """The final results of closed windows do not depend on which operator comes first, nor does their order."""

    def passes(_, count):
        return count >= least and count % 3 != 0

    def topology(builder: StreamsBuilder) -> None:
        counts = _counts(builder, grace_ms=grace_ms)
        for name, table in (
            ("before", counts.filter(passes).suppress(AT_CLOSE)),
            ("stored", counts.filter(passes, store="passed").map_values(lambda count: count).suppress(AT_CLOSE)),
            ("after", counts.suppress(AT_CLOSE).filter(passes)),
        ):
            # A deletion stands for a row that did not pass, and nothing was emitted for its window before.
            stream = table.to_stream(tombstones=False)
            stream.map(lambda key, count: (f"{key.key}@{key.window.start_ms}", count)).to(name)

    with TopologyTestDriver(topology) as driver:
        results = {name: [] for name in ("before", "stored", "after")}
        for number, (key, at_ms) in enumerate(rows):
            driver.pipe(clicks, 1, key=key, timestamp_ms=at_ms)
            for name, found in results.items():
                found += [
                    (number, record.key, record.value, record.timestamp_ms)
                    for record in driver.read_bytes(Topic(name, key=str, value=int))
                ]

        assert results["before"] == results["after"]
        assert results["stored"] == results["after"]
