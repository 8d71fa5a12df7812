"""The weather example against all pairs computed in plain Python."""

import csv
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path

import pytest

HOUR = timedelta(hours=1)


def by_day(path: Path) -> dict[str, list[tuple[datetime, str]]]:
    days = defaultdict(list)
    with path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            days[row["time_hour"][:10]].append((datetime.fromisoformat(row["time_hour"]), row["temp"]))
    return days


def triples_of(files: dict[str, Path]) -> Counter:
    """Return every (day, three times, three temperatures) that lie together, with how often.

    Two observations lie together if they are at most an hour apart; the third is measured from the
    later of the two.
    """
    ewr, jfk, lga = (by_day(files[name]) for name in ("ewr", "jfk", "lga"))
    found: Counter = Counter()
    for day in ewr:
        for first, first_temp in ewr[day]:
            for second, second_temp in jfk[day]:
                if abs(first - second) > HOUR:
                    continue
                for third, third_temp in lga[day]:
                    if abs(max(first, second) - third) <= HOUR:
                        found[day, (first, second, third), (first_temp, second_temp, third_temp)] += 1
    return found


@pytest.mark.case
@pytest.mark.seeds("partitions, poll", [(4, 10_000), (1, 10), (7, 10), (7, 10_000), (1, 10_000), (4, 10)], 2)
def test_no_pair_is_lost(weather, partitions, poll, run_stream):
    """Three files are read as fast as they come; the join sees them in the order of their times."""
    rows = run_stream(
        "04_weather.py", weather, ["weather"], partitions=partitions, options=["--set", f"max_poll_records={poll}"]
    )["weather"]

    found = Counter(
        (row["key"], tuple(map(datetime.fromisoformat, row["value"]["times"])), tuple(row["value"]["temps"]))
        for row in rows
    )
    assert found == triples_of(weather)
    assert {row["partition"] for row in rows} == set(range(partitions))
    assert all(
        row["timestamp"] == max(datetime.fromisoformat(time) for time in row["value"]["times"]).timestamp() * 1000
        for row in rows
    )


@pytest.mark.slow
def test_records_are_the_same_whatever_is_polled_at_once(weather, run_stream):
    """Not merely the same set: the same topic."""
    runs = [
        run_stream("04_weather.py", weather, ["weather"], partitions=4, options=["--set", f"max_poll_records={poll}"])
        for poll in (10, 10_000)
    ]

    assert runs[0] == runs[1]
