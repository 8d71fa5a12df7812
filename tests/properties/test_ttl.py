"""Counts with a TTL against a model, in the test driver and in bounded runs that stop and go on."""

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streams import StreamsBuilder
from tests.properties.plans import TOPICS
from tests.properties.profile import examples
from tests.properties.runs import Record, drive, run
from tests.properties.strategies import Row

#: Key, by how much time goes on, and by how much the record is late.
ROWS = st.lists(
    st.tuples(st.sampled_from("aabc"), st.sampled_from([0, 1, 4, 30]), st.sampled_from([0, 0, 0, 3, 25])), max_size=30
)


class Counts:
    """A count with a TTL, as a plan."""

    inputs = ("a",)
    outputs = ("out",)

    def __init__(self, ttl_ms: int) -> None:
        self.ttl = timedelta(milliseconds=ttl_ms)

    def __call__(self, builder: StreamsBuilder) -> None:
        counted = builder.stream(TOPICS["a"]).group_by_key().count("counts", ttl=self.ttl)
        counted.to_stream().to("out", value=int | None)


def expected(rows: list[Row], ttl_ms: int) -> list[tuple[str, int | None, int]]:
    """Return what must come out: deletions before a row is read again, or when their bucket has ended."""
    bucket_ms, now_ms = max(ttl_ms // 10, 1), -1
    counts: dict[str, tuple[int, int]] = {}
    found: list[tuple[str, int | None, int]] = []
    for row in rows:
        now_ms = max(now_ms, row.timestamp_ms)
        assert row.key is not None
        if row.key in counts and counts[row.key][1] + ttl_ms <= now_ms:
            found.append((row.key, None, counts.pop(row.key)[1] + ttl_ms))
        count, time_ms = counts.get(row.key, (0, row.timestamp_ms))
        time_ms = max(time_ms, row.timestamp_ms)
        if time_ms + ttl_ms > now_ms:
            counts[row.key] = (count + 1, time_ms)
            found.append((row.key, count + 1, time_ms))
        due = sorted(
            (time_ms + ttl_ms, key)
            for key, (_, time_ms) in counts.items()
            if ((time_ms + ttl_ms) // bucket_ms + 1) * bucket_ms <= now_ms
        )
        for expiry_ms, key in due:
            del counts[key]
            found.append((key, None, expiry_ms))
    return found


def _decoded(records: list[Record]) -> list[tuple[Any, Any, int]]:
    read_key, read_value = TOPICS["a"].key_serde.deserialize, TOPICS["a"].value_serde.deserialize
    return [(read_key(key), read_value(value), time_ms) for key, value, time_ms in records]


@examples(15)
@given(ROWS, st.sampled_from([1, 5, 30, 100]), st.integers(0, 30), st.sampled_from(["in_memory", "rocksdb"]))
def test_counts_expire_as_the_model_says_however_a_run_is_stopped(
    drawn: list[tuple[str, int, int]], ttl_ms: int, half: int, engine: str
) -> None:
    now_ms, rows = 100, []
    for key, step_ms, late_ms in drawn:
        now_ms += step_ms
        rows.append(Row("a", key, 1, now_ms - late_ms))
    plan: Any = Counts(ttl_ms)

    model = expected(rows, ttl_ms)

    assert _decoded(drive(plan, rows).outputs["out"]) == model
    with tempfile.TemporaryDirectory() as folder:
        for part in (rows[:half], rows):
            stopped = run(plan, part, state_dir=Path(folder), default_store=engine, max_poll_records=7)
    assert _decoded(stopped.joined("out")) == model
