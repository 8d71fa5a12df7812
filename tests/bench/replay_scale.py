"""The driver's part of a replay of a terabyte, at full size: made-up footers, files and reports, but no rows.

    python -m tests.bench.replay_scale [--partitions 1000] [--files 10000] [--rows 10000000000] [--slices 365]

It measures what grows with the size of history in the process that plans a replay: the history of the inputs, the
calls of a slice, the reports of its tasks, and the manifest of the slice.  ``--share`` makes only a part of the history
(the plan and the slice are always whole); times and bytes of the history are then multiplied.  Prints one JSON object.
"""

import argparse
import gc
import json
import os
import pickle
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from streams import StreamsBuilder, TimeWindows, Topic, time_windowed
from streams.core.blocks.records import TaskId, TopicPartition
from streams.replay.calls.schedule import BegunPass, CallSchedule, Pass
from streams.replay.calls.state import Outputs, ReplayState, outputs_to_json, read_manifest, write_manifest
from streams.replay.calls.work import Application, Options, StageReport, StageWork, StoreRef, TaskReport, TaskWork
from streams.replay.history.growth import History
from streams.replay.history.ingest import IngestReport, SortedTopic, sort_topics
from streams.replay.history.inputs import FileMark
from streams.replay.history.intake import PART_BYTES, TopicFiles
from streams.replay.storage.extents import PartitionExtents, SourceHistory
from streams.replay.storage.lanes import LaneRanges
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent, Segments

DAY = timedelta(days=1)
DAY_MS = 86_400_000
MIB = 1 << 20
orders = Topic("orders", key=str, value=dict[str, Any], timestamp=lambda order: order["at"])
sums = Topic("sums", key=time_windowed(str, DAY), value=int)


def topology(builder: StreamsBuilder) -> None:
    sold = builder.stream(orders).select_key(lambda _, order: order["product"]).repartition("by-product")
    days = sold.group_by_key().windowed_by(TimeWindows.of(DAY))
    days.aggregate(lambda: 0, lambda _, order, sum_: sum_ + int(order["cents"]), name="of-the-day").to_stream().to(sums)


class Measured:
    """Seconds of CPU, and memory and bytes in MiB, by name."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    @contextmanager
    def of(self, name: str, times: float = 1.0) -> Iterator[None]:
        """Measure a block, which has done one part in ``times`` of the work."""
        gc.collect()
        before, heap = time.process_time(), _resident()
        yield
        self.found[f"{name}: CPU s"] = round((time.process_time() - before) * times, 2)
        self.found[f"{name}: memory MiB"] = round((_resident() - heap) * times / MIB, 1)

    def size(self, name: str, count: int, times: float = 1.0) -> None:
        """Note a number of bytes."""
        self.found[f"{name}: MiB"] = round(count * times / MIB, 2)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def made_reports(options: argparse.Namespace) -> tuple[list[IngestReport], float]:
    """Return the reports of the calls that read the inputs, and how many more there would be of all calls."""
    calls = max(1, round(options.bytes / PART_BYTES))
    made = max(1, round(calls * options.share))
    # A call has rows of all partitions, in row groups that partitions may share.
    of_partition = max(1, options.rows // calls // options.partitions)
    lengths = random.Random(1)
    reports = []
    for call in range(made):
        at = call * options.slices * DAY_MS // made
        name = f"inputs/input-orders-{call:05d}-0123456789ab.parquet"
        written, row = [], 0
        for number in range(options.partitions):
            rows = max(1, round(of_partition * lengths.uniform(0.8, 1.2)))
            last_ms = at + DAY_MS - lengths.randrange(DAY_MS // 100)
            extent = Extent(name, row // 2_500, 0, rows - 1, rows, at, last_ms, row % 2_500)
            written.append((TopicPartition("orders", number), extent))
            row += rows
        reports.append(IngestReport(name, (), {}, 1, 1, 1, written=PartitionExtents.of(written)))
    return reports, calls / made


def _mark(number: int, options: argparse.Namespace) -> FileMark:
    path = f"s3://company-lake/shop/orders/dt=2026-01-{number % 28 + 1:02d}/part-{number:05d}.c000.snappy.parquet"
    return FileMark(
        path, options.bytes // options.files, f"{number:032x}", f"{number:032x}", options.rows // options.files
    )


class MadeTasks:
    """The reports of the tasks of one slice: a task reads its inputs, writes all its lanes and keeps its store."""

    def __init__(self, plan: CallSchedule, options: argparse.Namespace) -> None:
        self._plan = plan.plan
        self._rows = max(1, options.rows // options.slices // options.partitions)
        #: The lanes that each task writes.
        self._lanes: dict[TaskId, list[TopicPartition]] = {}
        for task in plan.plan.groups:
            for item in plan.plan.inputs(task):
                producer = plan.plan.producer_of(item.topic, item.partition)
                if producer is not None:
                    self._lanes.setdefault(producer, []).append(item.partition)

    def report(self, work: StageWork) -> StageReport:
        """Return the report of a call."""
        tasks = tuple(self._task(task, work.folder) for task in work.tasks)
        return StageReport(work.name, tasks, {}, 1000, 1000, 1, lanes=self._written(work))

    def _written(self, work: StageWork) -> dict[str, LaneRanges]:
        """Return the ranges that a call writes: all its tasks write a few records to each partition."""
        import numpy as np

        numbers: dict[str, list[int]] = {}
        ends: dict[str, Any] = {}
        for task in work.tasks:
            for lane in self._lanes.get(task.task_id, ()):
                numbers.setdefault(lane.topic, []).append(lane.partition)
            ends |= task.lane_ends
        found = {}
        for topic, lanes in numbers.items():
            numbered = np.sort(np.array(lanes))
            rows = np.full_like(numbered, max(1, self._rows * len(work.tasks) // len(numbered)))
            first = rows if topic in ends else np.zeros_like(rows)
            row = np.cumsum(rows) - rows
            name = f"{work.folder}/{work.name}-0123456789ab.parquet"
            columns = np.stack([numbered, first, rows, np.zeros_like(rows), row // 2_500, row % 2_500])
            found[topic] = LaneRanges((name,), columns)
        return found

    def _task(self, task: TaskWork, folder: str) -> TaskReport:
        sub = next(sub for sub in self._plan.subs if sub.id == task.task_id.sub_topology)
        name = f"{folder}/{task.task_id}-0123456789ab.parquet"
        written: list[tuple[Any, TopicPartition, Extent]] = []
        for topic in sub.sink_topics:
            if not self._plan.is_internal(topic):
                at = TopicPartition(topic, task.task_id.partition)
                for group in range(-(-self._rows // 10_000)):
                    first = group * 10_000
                    written.append(("sink", at, Extent(name, group, first, first + 9_999, 10_000, 0, DAY_MS)))
        positions = {given.partition: given.end for given in task.inputs}
        lanes = {given.partition: given.ends for given in task.lanes}
        checkpoint = {"partition_times": [[*partition, DAY_MS] for partition in positions], "stream_time_ms": DAY_MS}
        stores = {store: StoreRef((Extent(name, 0, 0, 9_999, 10_000, 0, DAY_MS),)) for store in sub.stores}
        ends: dict[Any, int] = {(kind, at): extent.last + 1 for kind, at, extent in written}
        return TaskReport(
            task.task_id, positions, checkpoint, stores, tuple(written), ends, {}, self._rows, self._rows, {}, lanes
        )


def measured(options: argparse.Namespace, root: Place) -> dict[str, float]:
    """Return what the driver needs for the history and for one slice."""
    figures = Measured()
    with figures.of("history: reports, of all calls"):
        reports, times = made_reports(options)
    figures.found["history: reports, of all calls: memory MiB"] *= times
    figures.size("history: reports, of all calls", sum(len(pickle.dumps(report)) for report in reports), times)
    marks = [_mark(number, options) for number in range(options.files)]
    with figures.of("history: reports taken", times):
        topic = TopicFiles("orders", (), (), options.partitions)
        topic.take(reports)
        history = History(options.partitions, marks, order="event_time")
        history.add(topic.extents)
    figures.found["extents of inputs"] = round(sum(map(len, history.extents.values())) * times)
    with figures.of("history: runs compared, if sorted by event time", times):
        works = next(sort_topics([SortedTopic("orders", dict(history.extents))], Segments(root), "inputs"), [])
    with figures.of("history: calls that merge runs, pickled", times):
        figures.size("history: calls that merge runs", sum(len(pickle.dumps(work)) for work in works), times)
    works.clear()
    with figures.of("history from JSON, manifest written and read", times):
        write_manifest(
            root.child("inputs"), {"kind": "inputs", "topics": {"orders": history.to_json()}, "archives": {}}
        )
        found = read_manifest(root.child("inputs"))
        assert found is not None
        kept = History.from_json(found["topics"]["orders"])
    figures.size("manifest of inputs", root.child("inputs", "MANIFEST.json").size(), times)
    application = Application.of(
        topology, {"application_id": "shop"}, {"orders": options.partitions}, options.partitions
    )
    with figures.of("plan of the tasks"):
        plan = application.plan()
        sources = {plan.feed(TopicPartition("orders", number)): found for number, found in kept.extents.items()}
        replay = CallSchedule(application, plan, SourceHistory(sources, Segments(root)), Options())
    made = MadeTasks(replay, options)
    state = ReplayState()
    # The second slice has positions, stores and checkpoints of the first one.
    for number in range(2):
        outputs: Outputs = {}
        cut = {at: found[-1].last * (number + 1) // options.slices for at, found in sources.items()}
        step = Pass(f"slice {number + 1}", number, cut, is_last=False)
        calls = sent = 0
        with figures.of("slice: calls made and pickled, reports taken"):
            for wave in replay.waves:
                begun = BegunPass(step, state)
                works: list[Any] = [work for stage in wave for work in replay.works(stage, [begun])]
                for work in works:
                    sent += len(pickle.dumps(work.tasks))
                    state.take(made.report(work), outputs, plan)
                calls += len(works)
            state.forget_read(replay.reader_of)
        with figures.of("slice: manifest written"):
            content = {"kind": "slice", "state": state.to_json(), "outputs": outputs_to_json(outputs)}
            write_manifest(root.child(f"slices/{number:05d}"), content)
    figures.found["slice: calls"] = calls
    figures.size("slice: calls sent", sent)
    figures.size("slice: manifest", root.child("slices/00001", "MANIFEST.json").size())
    of_slice = sum(value for name, value in figures.found.items() if name.startswith("slice: ") and "CPU" in name)
    figures.found["all slices: CPU s"] = round(of_slice * options.slices)
    figures.size("all slices: manifests", root.child("slices/00001", "MANIFEST.json").size() * options.slices)
    figures.found["peak memory MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return figures.found


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=10_000_000_000)
    parser.add_argument("--bytes", type=int, default=10**12)
    parser.add_argument("--slices", type=int, default=365)
    parser.add_argument("--share", type=float, default=1.0, help="part of the history that is made up")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(vars(options) | measured(options, Place(folder)), indent=1))


if __name__ == "__main__":
    main()
