"""A bounded run, exactly once, that kills itself: ``python -m tests.runtime.killed_run FOLDER FSYNC INTERVAL``.

It adds 900 ones by key, of which there are 30.  Before it writes total number 507 it ends as by ``kill -9``.
``FSYNC`` is the setting ``fsync``, and it commits every ``INTERVAL`` milliseconds.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from streams import StreamsBuilder, Topic
from tests.runtime.bounded_runs import NUMBERS, run

TOTALS = Topic("totals", key=str, value=int)
KEYS = [f"k{number}" for number in range(30)]
ROWS = [(KEYS[number % 30], 1, number) for number in range(900)]
#: Many commits, and blocks of a few records.
SETTINGS: dict[str, Any] = {
    "processing_guarantee": "exactly_once_v2",
    "commit_interval_ms": 1,
    "max_poll_records": 20,
    "transaction_timeout_ms": 1_000,
    "batch": 60,
    "partitions": 2,
}


def topology(last: int = -1) -> Any:
    """Return the topology; it kills its process before total number ``last``."""
    left = last

    def passed(value: int) -> int:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return value

    def build(builder: StreamsBuilder) -> None:
        (
            builder.stream(NUMBERS)
            .group_by(lambda key, value: f"{key}!", key=str)
            .reduce(lambda total, value: total + value, name="sums")
            .to_stream()
            .map_values(passed)
            .to(TOTALS)
        )

    return build


def totals(folder: Path, last: int = -1, **settings: Any) -> dict[str, list[int]]:
    """Run over all rows, or go on, and return the updates of each key."""
    (result,) = run(topology(last), {"numbers": ROWS}, "totals", state_dir=folder, **{**SETTINGS, **settings})
    updates: dict[str, list[int]] = {}
    for rows in result.values():
        for key, value, _ in rows:
            updates.setdefault(key, []).append(value)
    return updates


#: What the whole run gives.
COMPLETE = {f"{key}!": list(range(1, 31)) for key in KEYS}

if __name__ == "__main__":
    totals(Path(sys.argv[1]), 507, fsync=sys.argv[2], commit_interval_ms=int(sys.argv[3]))
