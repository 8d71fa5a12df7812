"""The record cache between operators: whose updates it holds together."""

from streams import StreamsBuilder, Topic
from streams.testing import TopologyTestDriver

visits = Topic("visits", key=str, value=int)
totals = Topic("totals", key=str, value=int)


def test_operators_of_a_cogroup_hold_back_one_update_per_key():
    """One record goes through both; what comes out last is the aggregate of both."""

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(visits)
        (
            stream.group_by_key()
            .cogroup(lambda key, value, total: total + value, value=int)
            .cogroup(
                stream.map_values(lambda value: value * 10).group_by_key(), lambda key, value, total: total + value
            )
            .aggregate(lambda: 0, "totals-store")
            .to_stream()
            .to(totals)
        )

    driver = TopologyTestDriver(topology, cache_max_bytes=10_000)
    driver.pipe(visits, 1, key="ann", timestamp_ms=0)
    driver.pipe(visits, 2, key="ann", timestamp_ms=1)

    assert driver.read(totals) == [("ann", 11), ("ann", 33)]
