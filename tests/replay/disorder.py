"""Rows whose times are in any order, and the hourly counts of a topology that drops the late ones."""

from datetime import timedelta
from typing import Any

from streams import StreamsBuilder, TimeWindows, Topic

HOUR = 3_600_000
DAY = 24 * HOUR
rows = Topic(
    "rows", key=str, value=dict[str, int], timestamp=lambda row: row["at"], key_from=lambda row: f"k{row['n']}"
)
hours = Topic("hours", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    """Count rows by the hour and by five keys, behind a repartition topic."""
    stream = builder.stream(rows).select_key(lambda _, row: f"k{row['n'] % 5}").repartition("by-key", partitions=2)
    windows = TimeWindows.of(timedelta(hours=1), grace=timedelta(minutes=5))
    counted = stream.group_by_key().windowed_by(windows).count("by-hour")
    counted.to_stream().map(lambda key, count: (key.key, count)).to(hours)


def local(partitions: int) -> dict[str, Any]:
    """Options of a replay in this process with so many partitions of the input."""
    return {"executor": "local", "processes": 1, "application_id": "app", "partitions": partitions}
