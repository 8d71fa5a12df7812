"""As-of joins against ``join_asof`` of polars, on any number of partitions, and in runs that stop and go on."""

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import StreamsBuilder, Topic
from tests.properties.plans import TOPICS
from tests.properties.profile import examples
from tests.properties.runs import drive, run
from tests.properties.strategies import Row

#: Topic, key, by how much time goes on, and by how much the record is late.
ROWS = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.sampled_from("xxy"), st.sampled_from([0, 1, 4, 30]), st.sampled_from([0, 0, 2, 9])
    ),
    max_size=30,
)
out = Topic("out", key=str, value=list)


class Joined:
    """A left join of the topics a and b, as a plan; the values are the numbers of the records."""

    inputs = ("a", "b")
    outputs = ("out",)

    def __init__(self, tolerance_ms: int, direction: Any, grace_ms: int) -> None:
        self.times = {"tolerance": timedelta(milliseconds=tolerance_ms), "grace": timedelta(milliseconds=grace_ms)}
        self.direction = direction

    def __call__(self, builder: StreamsBuilder) -> None:
        left, right = builder.stream(TOPICS["a"]), builder.stream(TOPICS["b"])
        options: Any = {**self.times, "direction": self.direction, "value": int, "other_value": int, "name": "join"}
        left.left_join_latest(right, lambda one, two: [one, two], **options).to(out)


def expected(rows: list[Row], tolerance_ms: int, direction: Any) -> list[tuple[str, int, int | None]]:
    """Return key, left and right number of all left records, by polars."""
    sides = []
    for topic, number in (("a", "left"), ("b", "right")):
        # Of equal times polars takes the last one backward; the first one forward, as a join does.
        found = [(row.key, row.timestamp_ms, row.value) for row in rows if row.topic == topic]
        frame = pl.DataFrame(found, schema={"key": pl.String, "at": pl.Int64, number: pl.Int64}, orient="row")
        sides.append(frame.sort("at", maintain_order=True))
    joined = sides[0].join_asof(
        sides[1], on="at", by="key", strategy=direction, tolerance=tolerance_ms, check_sortedness=False
    )
    return sorted(joined.select("key", "left", "right").rows())


@pytest.mark.world
@examples(12)
@given(ROWS, st.sampled_from([0, 3, 20]), st.sampled_from(["backward", "forward"]), st.integers(0, 30))
def test_each_left_record_meets_the_right_record_that_polars_finds(
    drawn: list[tuple[str, str, int, int]], tolerance_ms: int, direction: str, half: int
) -> None:
    """No record is out of order by more than the grace period, and later records let all results come out."""
    now_ms, rows = 100, []
    for number, (topic, key, step_ms, late_ms) in enumerate(drawn):
        now_ms += step_ms
        rows.append(Row(topic, key, number, now_ms - late_ms))
    ends = [Row(topic, key, -1, now_ms + 1000) for key in "xy" for topic in "ba"]
    ends += [Row("b", key, -2, now_ms + 3000) for key in "xy"]
    plan: Any = Joined(tolerance_ms, direction, 9)
    wanted = expected(rows, tolerance_ms, direction)

    def found(records: list[Any]) -> list[tuple[str, int, int | None]]:
        pairs = [(key.decode(), *out.value_serde.deserialize(value)) for key, value, _ in records]
        return sorted(pair for pair in pairs if pair[1] >= 0)

    for partitions in (1, 3):
        assert found(drive(plan, rows + ends, partitions=partitions).outputs["out"]) == wanted
    with tempfile.TemporaryDirectory() as folder:
        for part in (rows[:half], rows + ends):
            stopped = run(plan, part, partitions=3, state_dir=Path(folder), max_poll_records=5)
    assert found(stopped.joined("out")) == wanted
