"""The sensors of RocksDB's statistics get the difference between two readings."""

from pathlib import Path

import pytest

from streams.core.blocks.records import TaskId
from streams.core.clock import VirtualClock
from streams.core.metrics import Metrics, RecordingLevel
from streams.runtime.tasks.task_metrics import EngineMetrics
from streams.state.engine.engines import EngineBatch, Statistic
from streams.state.engine.rocksdb import RocksEngine, RocksMemory

PLACE = {"task": TaskId(0, 0), "store": "counts", "store_type": "rocksdb"}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(VirtualClock(0), RecordingLevel.DEBUG)


def test_a_database_counts_what_it_writes_reads_and_flushes(metrics: Metrics, tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path, RocksMemory.of(1 << 20, has_statistics=True))
    sensors = EngineMetrics(metrics, PLACE)
    engine.apply(EngineBatch(writes={0: {b"%d" % number: b"x" * 100 for number in range(1000)}}))
    for number in range(100):
        engine.get(0, b"%d" % number)
    sensors.note(engine.statistics())
    assert metrics.get("bytes-written-total") > 100_000
    assert metrics.get("bytes-read-total") == 10_000
    assert metrics.get("memtable-hit-ratio", store="counts") == 1
    engine.flush()
    for number in range(100):
        engine.get(0, b"%d" % number)
    sensors.note(engine.statistics())

    assert metrics.get("bytes-read-total") == 20_000
    assert metrics.get("memtable-hit-ratio") == 0.5
    assert metrics.get("memtable-bytes-flushed-total") > 100_000
    assert metrics.get("memtable-flush-time-max") >= metrics.get("memtable-flush-time-avg") > 0
    assert 0 < metrics.get("block-cache-data-hit-ratio") < 1
    assert metrics.get("number-file-errors-total") == 0
    engine.close()


def test_a_reopened_database_counts_from_zero_but_totals_go_on(metrics: Metrics) -> None:
    sensors = EngineMetrics(metrics, PLACE)
    for total in (100, 250, 30):
        sensors.note({"bytes.written": Statistic(total)})

    assert metrics.get("bytes-written-total") == 280


def test_statistics_are_off_by_default(tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path)

    assert engine.statistics() == {}
    engine.close()
