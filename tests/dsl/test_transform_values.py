"""``ValueTransformer``: what its context has of the change or the row, as in Kafka Streams."""

from typing import Any

import pytest

from streams import StreamsBuilder, Topic, ValueTransformer
from streams.testing import TopologyTestDriver

rows = Topic("rows", key=str, value=int)
clicks = Topic("clicks", key=str, value=str)
out = Topic("out", key=str, value=str)
SENT = (("sent", b"x"),)


class Seen(ValueTransformer[str, int, str]):
    def transform(self, key: str, value: int | None) -> str:
        return f"{value} at {self.context.timestamp_ms} with {self.context.headers}"


@pytest.mark.parametrize("options", [{}, {"store": "seen"}])
def test_a_transformer_sees_the_time_and_headers_of_the_change(options: dict[str, Any]) -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.table(rows).transform_values(Seen, value=str, **options).to_stream(tombstones=False).to(out)

    driver = TopologyTestDriver(topology)
    driver.pipe(rows, 7, key="ann", timestamp_ms=5, headers=SENT)
    driver.pipe(rows, None, key="ann", timestamp_ms=9)
    assert driver.read(out) == [("ann", f"7 at 5 with {SENT}"), ("ann", "None at 9 with ()")]


def test_a_row_that_a_join_reads_has_its_time_and_no_headers() -> None:
    """The headers are of the record that asks; a row that is not there has no time."""

    def topology(builder: StreamsBuilder) -> None:
        table = builder.table(rows, name="rows").transform_values(Seen, value=str)
        builder.stream(clicks).join(table, lambda click, seen: f"{click}: {seen}").to(out)

    driver = TopologyTestDriver(topology)
    driver.pipe(rows, 7, key="ann", timestamp_ms=5, headers=SENT)
    driver.pipe(clicks, "a", key="ann", timestamp_ms=20, headers=SENT)
    driver.pipe(clicks, "b", key="bob", timestamp_ms=21)
    assert driver.read(out) == [("ann", "a: 7 at 5 with ()"), ("bob", "b: None at -1 with ()")]
