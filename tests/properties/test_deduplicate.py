"""``deduplicate`` against a model: a list of all records that passed."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from streams import StreamsBuilder, Topic
from streams.testing import TopologyTestDriver
from tests.properties.profile import examples

events = Topic("events", key=str, value=int)
once = Topic("once", key=str, value=int)

#: Key, value, by how much time goes on, and by how much the record is late.
ROWS = st.lists(
    st.tuples(
        st.sampled_from("aab"), st.integers(0, 9), st.sampled_from([0, 1, 4, 30]), st.sampled_from([0, 0, 3, 15])
    ),
    max_size=40,
)


@examples(60)
@given(ROWS, st.sampled_from([1, 5, 12]), st.booleans(), st.sampled_from([1, 3]), st.booleans())
def test_of_the_records_with_one_id_within_the_interval_the_first_passes(
    rows: list[tuple[str, int, int, int]], within_ms: int, has_by: bool, partitions: int, is_persistent: bool
) -> None:
    """No record is out of order by more than the grace period, so nothing is forgotten, on any number of partitions."""
    now_ms, records = 100, []
    for key, value, step_ms, late_ms in rows:
        now_ms += step_ms
        records.append((key, value, now_ms - late_ms))

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(events).deduplicate(
            (lambda _, value: value % 3) if has_by else None,
            within=timedelta(milliseconds=within_ms),
            grace=timedelta(milliseconds=15),
            persistent=is_persistent,
        ).to(once)

    with TopologyTestDriver(topology, partitions=partitions) as driver:
        for key, value, time_ms in records:
            driver.pipe(events, value, key=key, timestamp_ms=time_ms)
        found = [(record.key, record.value, record.timestamp_ms) for record in driver.read_records(once)]

    passed: list[tuple[str, int, int]] = []
    for key, value, time_ms in records:
        record_id = (key, value % 3 if has_by else 0)
        if not any(
            (other, number % 3 if has_by else 0) == record_id and abs(at_ms - time_ms) <= within_ms
            for other, number, at_ms in passed
        ):
            passed.append((key, value, time_ms))
    assert [row for row in found if row[0] == "a"] == [row for row in passed if row[0] == "a"]
    assert [row for row in found if row[0] == "b"] == [row for row in passed if row[0] == "b"]
