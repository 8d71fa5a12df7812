"""The top-N example against a ranking in plain Python."""

import gzip
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path

import pytest

HOUR_MS = 3_600_000


def rankings_of(path: Path) -> dict[int, list[list]]:
    """Return the three most wanted pages of each hour; of equal counts, the first by name is better."""
    hours: dict[int, Counter[str]] = defaultdict(Counter)
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as stream:
        for line in stream:
            time = datetime.strptime(line[line.index("[") + 1 : line.index("]")], "%d/%b/%Y:%H:%M:%S %z")
            words = line.split('"')[1].split(" ")
            start = int(time.timestamp()) * 1000 // HOUR_MS * HOUR_MS
            hours[start][words[1].split("?")[0] if len(words) > 1 else words[0]] += 1
    return {
        start: [[page, count] for page, count in sorted(pages.items(), key=lambda item: (-item[1], item[0]))[:3]]
        for start, pages in hours.items()
    }


@pytest.mark.case
@pytest.mark.parametrize("partitions", [1, 4])
def test_rankings_equal_those_of_plain_python(access_log, partitions, run_stream, table_of):
    """Rows without a key lie in any partition; the counts of one hour meet from all of them."""
    rows = run_stream("07_top_n.py", {"access": access_log}, ["top"], partitions=partitions, options=["--final-flush"])

    assert table_of(rows["top"]) == rankings_of(access_log)
