"""Why a row with a TTL was deleted, and of which records the next one is made."""

from datetime import timedelta

from streams import StreamsBuilder, Topic
from streams.testing import TopologyTestDriver

visits = Topic("visits", key=str, value=str)
counts = Topic("counts", key=str, value=int | None)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(visits).group_by_key().count("counts", ttl=timedelta(seconds=10)).to_stream().to(counts)


def test_deletion_names_the_ttl_and_the_next_count_has_only_later_records() -> None:
    driver = TopologyTestDriver(topology)
    for key, time_ms in (("ann", 0), ("ann", 5), ("ann", 20_000), ("bob", 40_000)):
        driver.pipe(visits, "/", key=key, timestamp_ms=time_ms)

    deleted, again = driver.why("ann", counts, at=30_000).outputs[-1], driver.why("ann", counts, at=20_000).outputs[-1]

    text = "counts: 1 record of key 'ann', store counts, which expired 10,000 ms after its last update"
    assert [cause.text for cause in deleted.causes] == [text]
    assert [cause.offset for cause in again.causes[0].causes] == [2]
