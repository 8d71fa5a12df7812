"""How a pipeline is measured: from topic bytes to topic bytes, in one process.

The broker holds the input before the clock starts; it stops when the last record is processed, the
last commit done and the application closed.  Nothing is left out: joining the group, fetch, decode,
queues, program, stores with changelog, encode, partition, append, commit.
"""

import gc
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from streams import EmbeddedBroker, Streams, StreamsBuilder, Topic, TopicPartition
from streams.core.blocks.records import Block
from streams.runtime import tuned_collector
from topology_examples.nexmark import Nexmark

PARTITIONS = 4
#: How often it is looked how far the tasks are.
_LOOK_MS = 5
#: After so long without a record an application has done all it can.
_SILENCE_NS = 200_000_000


@frozen
class Pipeline:
    """One benchmark: a topology, its inputs, and the settings that make it."""

    name: str
    topology: Callable[[StreamsBuilder], object]
    inputs: Sequence[Topic[Any, Any]]
    outputs: Sequence[str]
    on_disk: bool = False
    settings: Mapping[str, Any] = {}
    #: Whether it calls async functions.
    calls: bool = False


@frozen
class Measure:
    """Median of several runs, per input record."""

    name: str
    records_in: int
    records_out: int
    wall_ns: float
    cpu_ns: float
    spread: float

    @property
    def records_per_second(self) -> float:
        """Input records per second of wall time."""
        return 1e9 / self.wall_ns


def blocks_of(topic: Topic[Any, Any], events: int) -> list[tuple[int, Block]]:
    """Return a topic's records among so many Nexmark events, as blocks by partition."""
    return [item for batch in Nexmark().blocks(topic, events, partitions=PARTITIONS) for item in batch]


def measure(pipeline: Pipeline, events: int, runs: int) -> Measure:
    """Run a pipeline several times over the same input."""
    blocks = {topic.name: blocks_of(topic, events) for topic in pipeline.inputs}
    records_in = sum(len(block) for items in blocks.values() for _, block in items)
    walls, cpus, records_out = [], [], 0
    for _ in range(runs):
        wall, cpu, records_out = run_once(pipeline, blocks)
        walls.append(wall / records_in)
        cpus.append(cpu / records_in)
    return Measure(
        pipeline.name,
        records_in,
        records_out,
        statistics.median(walls),
        statistics.median(cpus),
        (max(walls) - min(walls)) / statistics.median(walls),
    )


def run_once(pipeline: Pipeline, blocks: Mapping[str, list[tuple[int, Block]]]) -> tuple[int, int, int]:
    """Return wall and CPU nanoseconds and the number of output records of one run."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(default_partitions=PARTITIONS) as broker:
        for name in pipeline.outputs:
            broker.create_topic(name, PARTITIONS)
        for name, items in blocks.items():
            broker.create_topic(name, PARTITIONS)
            for number, block in items:
                broker.append(TopicPartition(name, number), block)
        records = sum(len(block) for items in blocks.values() for _, block in items)
        state = (
            {"state_dir": folder, "default_store": "rocksdb"} if pipeline.on_disk else {"default_store": "in_memory"}
        )
        settings = {**state, **pipeline.settings}
        gc.collect()
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        with (
            tuned_collector(),
            Streams(pipeline.topology, application_id="bench", broker=broker, **settings) as streams,
        ):
            waited = _follow(streams, records)
        wall, cpu = time.perf_counter_ns() - wall - waited, time.process_time_ns() - cpu
        if streams.failure is not None:
            raise streams.failure
        written = sum(
            broker.end_offset(TopicPartition(name, number)) for name in pipeline.outputs for number in range(PARTITIONS)
        )
    return wall, cpu, written


def _follow(streams: Streams, records: int) -> int:
    """Wait until so many records and all that became of them are processed; return the nanoseconds of waiting for more.

    Records come again behind repartition topics, so that only silence tells the end.
    """
    done, since = 0, time.perf_counter_ns()
    while done < records or time.perf_counter_ns() - since < _SILENCE_NS:
        assert not streams.wait(_LOOK_MS), "it has ended before its inputs have"
        now = int(streams.metrics.get("process-total"))
        if now != done:
            done, since = now, time.perf_counter_ns()
    return time.perf_counter_ns() - since


def machine() -> str:
    """Return what the figures were measured on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = f"{len(names)} x {names[0]}" if names else model
    return f"{model}, Python {platform.python_version()}, {platform.system()}"
