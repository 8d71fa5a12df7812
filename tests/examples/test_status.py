"""The status example against windows counted in plain Python."""

import gzip
import re
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

HOUR_MS = 3_600_000
QUARTER_MS = HOUR_MS // 4
LINE = re.compile(r'^\S+ \S+ \S+ \[(?P<time>[^]]+)\] "(?:[^"\\]|\\.)*" (?P<status>\d{3}) ')


def windows_of(path: Path) -> Counter[tuple[str, int, int]]:
    """Return how many errors lie in each window [start, end) of each class; starts are whole quarters."""
    counts: Counter[tuple[str, int, int]] = Counter()
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as stream:
        for line in stream:
            match = LINE.match(line)
            assert match, line
            if match["status"][0] in "45":
                time = int(datetime.strptime(match["time"], "%d/%b/%Y:%H:%M:%S %z").timestamp()) * 1000
                latest = time // QUARTER_MS * QUARTER_MS
                for start in range(latest, time - HOUR_MS, -QUARTER_MS):
                    counts[f"{match['status'][0]}xx", start, start + HOUR_MS] += 1
    return counts


@pytest.mark.case
@pytest.mark.parametrize("partitions", [1, 4, 7])
def test_final_counts_equal_those_of_plain_python(access_log, partitions, run_stream, table_of):
    """Each window of each class comes exactly once, with all its errors, whatever the order of the lines."""
    rows = run_stream(
        "03_status.py", {"access": access_log}, ["errors"], partitions=partitions, options=["--final-flush"]
    )["errors"]

    expected = windows_of(access_log)
    assert table_of(rows) == expected
    assert len(rows) == len(expected), "a final result comes once"


def test_without_final_flush_only_closed_windows_come(access_log, run_stream, table_of):
    """Stream time never passes the end of the last windows, so these stay open; the others are the same."""
    rows = run_stream("03_status.py", {"access": access_log}, ["errors"], partitions=1)["errors"]

    expected = windows_of(access_log)
    found = table_of(rows)
    assert 0 < len(found) < len(expected)
    assert found.items() <= expected.items()
