"""The record cache between operators: whose updates it holds together."""

from collections.abc import Iterator

from streams import StreamsBuilder, Topic
from streams.bounded import run_bounded
from streams.core.records import Block
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


def test_commit_leaves_nothing_held_back():
    """What the first cache gives out is held back by the second, which must be flushed after it.

    In the chain and in the join with itself the operator further down is bound first.
    """

    def topology(builder: StreamsBuilder) -> None:
        counts = builder.stream(visits).group_by_key().count("counts")
        both = counts.join(counts, lambda left, right: left + right, store="both", value=int)
        both.filter(lambda key, value: True, store="kept").to_stream().to(totals)

    def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        yield [(0, Block([b"ann"] * 3, [visits.value_serde.serialize(1)] * 3, [0, 1, 2], None, range(3)))]

    with run_bounded(
        topology, {"visits": read}, application_id="app", settings={"cache_max_bytes": 10_000}
    ) as finished:
        values = [
            totals.value_serde.deserialize(v) for _, block in finished.read_output("totals") for v in block.values
        ]

    assert values == [6]
