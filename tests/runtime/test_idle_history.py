"""A log fed at many times its pace, with gaps: windows close within their limit, and every record is accounted for.

``python -m tests.runtime.test_idle_history access.log.gz`` feeds a log in Apache's format.
"""

import gzip
import random
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path

from streams import DropNote, EmitStrategy, StreamsBuilder, TimeWindows, Topic
from streams.testing import TopologyTestDriver

LIMIT_MS, WINDOW_MS, PACE, GAP_EVERY, GAP_MS = 5_000, 60_000, 100, 500, 90_000
requests = Topic("requests", key=str, value=str)
closed = Topic("closed", key=str, value=int)
dropped = Topic("dropped", key=str, value=str)


def topology(builder: StreamsBuilder) -> None:
    stream = builder.stream(requests, idle_close=timedelta(milliseconds=LIMIT_MS))
    windowed = stream.group_by_key().windowed_by(TimeWindows.of(timedelta(milliseconds=WINDOW_MS)))
    counts = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("counts")
    counts.to_stream(tombstones=False).map(lambda key, count: (key.key, count)).to(closed)
    windowed.dropped().to(dropped)


def feed(rows: list[tuple[str | None, str, int]]) -> dict[str, int]:
    """Feed (host, line, time) at ``PACE`` times their pace, with a gap after each ``GAP_EVERY``; return the sums.

    After a gap, which is longer than a window, all windows have closed: each record is in a result or was dropped.
    """
    sums = {"in": 0, "out": 0, "late": 0, "null key": 0, "gaps": 0}
    with TopologyTestDriver(topology, now_ms=1_700_000_000_000) as driver:
        before_ms = rows[0][2]
        for number, (host, line, time_ms) in enumerate(rows, 1):
            driver.advance_wall_clock(max(0, time_ms - before_ms) // PACE)
            before_ms = max(before_ms, time_ms)
            driver.pipe(requests, line, key=host, timestamp_ms=time_ms)
            sums["in"] += 1
            if number % GAP_EVERY and number < len(rows):
                continue
            # Stream time goes on from the last record, so the last window closes within its own size.
            driver.advance_wall_clock(max(LIMIT_MS, WINDOW_MS))
            sums["out"] += sum(count for _, count in driver.read(closed))
            for record in driver.read_records(dropped):
                note = DropNote.of(record.headers)
                assert note is not None
                sums[note.reason] += 1
            sums["gaps"] += 1
            assert sums["in"] == sums["out"] + sums["late"] + sums["null key"], sums
            driver.advance_wall_clock(GAP_MS - WINDOW_MS)
        assert driver.metric("dropped-records") == sums["late"] + sums["null key"]
    return sums


def test_every_record_is_in_a_window_or_was_dropped():
    chance = random.Random(7)
    rows: list[tuple[str | None, str, int]] = []
    for number in range(2_000):
        host = f"host-{chance.randrange(9)}" if chance.random() < 0.99 else None
        rows.append((host, "GET /", 1_000_000 + number * 400 - chance.randrange(30_000)))

    sums = feed(rows)

    assert (sums["in"], sums["gaps"]) == (2_000, 4)
    assert min(sums["out"], sums["late"], sums["null key"]) > 0


def parsed(path: Path) -> list[tuple[str | None, str, int]]:
    """Return the rows of a log in Apache's format; a line without a time has no key and the time of the line before."""
    rows: list[tuple[str | None, str, int]] = []
    time_ms = 0
    for line in gzip.decompress(path.read_bytes()).decode("latin-1").splitlines():
        found = re.match(r"(\S+) \S+ \S+ \[([^\]]+)\]", line)
        if found is not None:
            time_ms = int(datetime.strptime(found[2], "%d/%b/%Y:%H:%M:%S %z").timestamp() * 1000)
        rows.append((found[1] if found is not None else None, line, time_ms))
    return rows


if __name__ == "__main__":
    sys.stdout.write(f"{feed(parsed(Path(sys.argv[1])))}\n")
