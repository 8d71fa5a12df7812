"""History that is in no order of time: what is dropped as late is told, with its share and the disorder."""

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

from streams.bounded import run_bounded
from streams.files import open_input
from streams.replay import LateRecordsError, replay
from streams.runtime.tasks.lateness import late_of
from tests.replay.disorder import DAY, HOUR, local, rows, topology

LOCAL = local(partitions=2)


def write(folder: Path, *, shuffled: bool, days: int = 3, of_day: int = 400) -> Path:
    """Days of records, each in no order within itself, as a Spark job writes them."""
    chance = random.Random(7)
    path = folder / "rows.jsonl"
    with path.open("w") as file:
        for day in range(days):
            times = [day * DAY + chance.randrange(DAY) for _ in range(of_day)]
            for at in times if shuffled else sorted(times):
                file.write(json.dumps({"n": chance.randrange(100), "at": at}) + "\n")
    return path


def told(late: Any) -> list[tuple[str, int, int, str, int, tuple[tuple[int, int], ...]]]:
    return [(one.node, one.count, one.read, one.topic, one.disorder_ms, one.by_grace) for one in late]


@pytest.mark.slow
def test_share_and_disorder_are_those_of_a_bounded_run_in_slices_too(tmp_path: Path):
    path = write(tmp_path, shuffled=True)
    with run_bounded(topology, {"rows": open_input(rows, path)}, application_id="app", partitions=2) as run:
        expected = told(late_of(run.topology, run.metrics.tallies()))
    ((node, count, read, topic, disorder_ms, by_grace),) = expected

    assert (node, read, topic) == ("by-hour", 1200, "rows")
    assert count > 1000
    assert 22 * HOUR < disorder_ms < DAY
    assert sum(number for _, number in by_grace) == count
    for slices in (None, 4):
        with replay(topology, {rows: path}, slices=slices, **LOCAL) as result:
            assert told(result.late) == expected
            assert "by-hour: " in str(result.charts())


@pytest.mark.slow
def test_too_many_late_records_are_an_error_that_has_the_result(tmp_path: Path):
    path = write(tmp_path, shuffled=True)

    with pytest.raises(
        LateRecordsError, match=r"more than max_dropped 5%: by-hour: .* out of order by up to 23 h"
    ) as caught:
        replay(topology, {rows: path}, max_dropped="5%", **LOCAL)

    with caught.value.result as result:
        assert result.records["hours"] == 1200 - caught.value.late[0].count
    with replay(topology, {rows: path}, max_dropped="100%", **LOCAL) as result:
        assert result.late


def test_without_a_limit_they_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING), replay(topology, {rows: write(tmp_path, shuffled=True)}, **LOCAL):
        assert "dropped as late" in caplog.text


def test_history_in_order_is_not_late(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with replay(topology, {rows: write(tmp_path, shuffled=False)}, max_dropped=0, **LOCAL) as result:
        assert result.late == []
        assert result.records["hours"] == 1200
