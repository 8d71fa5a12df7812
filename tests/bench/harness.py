"""How a pipeline is measured: from topic bytes to topic bytes, in one process.

The broker holds the input before the clock starts; it stops when every task has ended and its
last commit is done.  Nothing is left out: fetch, decode, queues, program, stores with changelog,
encode, partition, append, commit.
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

from streams import EmbeddedBroker, StreamsBuilder, StreamsConfig, SystemClock, Topic, TopicPartition, build_topology
from streams.core.records import Block
from streams.runtime.homes import home_of
from streams.runtime.instance import Instance
from topology_examples.nexmark import Nexmark

PARTITIONS = 4


@frozen
class Pipeline:
    """One benchmark: a topology, its inputs, and the settings that make it."""

    name: str
    topology: Callable[[StreamsBuilder], object]
    inputs: Sequence[Topic[Any, Any]]
    outputs: Sequence[str]
    on_disk: bool = False
    settings: Mapping[str, Any] = {}


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
        for name, items in blocks.items():
            broker.create_topic(name, PARTITIONS)
            for number, block in items:
                broker.append(TopicPartition(name, number), block)
        config = StreamsConfig.of(application_id="bench", cache_max_bytes=0, **dict(pipeline.settings))
        instance = Instance(
            build_topology(pipeline.topology, config),
            config,
            broker,
            SystemClock(),
            home_of(Path(folder) if pipeline.on_disk else None, config),
            creates_topics=True,
            is_bounded=True,
            end_offset=broker.end_offset,
        )
        gc.collect()
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        instance.start()
        assert instance.bounded is not None
        for topic in pipeline.inputs:
            instance.bounded.end_topic(topic.name)
        instance.bounded.done.wait()
        wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
        instance.close()
        if instance.failure is not None:
            raise instance.failure
        written = sum(
            broker.end_offset(TopicPartition(name, number)) for name in pipeline.outputs for number in range(PARTITIONS)
        )
    return wall, cpu, written


def machine() -> str:
    """Return what the figures were measured on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = f"{len(names)} x {names[0]}" if names else model
    return f"{model}, Python {platform.python_version()}, {platform.system()}"
