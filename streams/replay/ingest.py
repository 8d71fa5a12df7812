"""From files of rows to partitions: the part of a replay that an archive makes needless.

Every row gives the record that a live run would make of it, in the same partition at the same
offset.  Imports files.
"""

import resource
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from attrs import field, frozen

from streams.core.clock import SystemClock, VirtualClock
from streams.core.errors import InputError
from streams.core.records import NO_TIMESTAMP, TaskId, TopicPartition
from streams.files import open_input
from streams.replay.application import Application
from streams.replay.inputs import declared_topic
from streams.replay.places import Place
from streams.replay.segments import SegmentWriter
from streams.replay.work import StageReport, TaskReport


@frozen
class IngestWork:
    """Read files of one topic into its partitions.

    ``first_row`` is the number of the first row over all files of the topic, ``skip_rows`` how many
    rows of the first file were read before, ``starts`` the next offset of each partition.
    """

    application: Application = field(repr=False)
    topic: str
    files: Sequence[str]
    partitions: int
    root: Place
    folder: str
    first_row: int = 0
    skip_rows: int = 0
    starts: Mapping[int, int] = field(factory=dict)
    on_bad_row: str = "fail"
    stage: int = -2

    @property
    def name(self) -> str:
        """Name for people and files."""
        return f"input-{self.topic}"

    @property
    def size(self) -> tuple[int, int]:
        """Records and bytes that it is about to read, as far as known."""
        return 0, sum(Place(file).size() for file in self.files if Place(file).exists())


def run_ingest(work: IngestWork) -> StageReport:
    """Read all files; the report has a task per file, with the number of rows as records read.

    Raises:
        InputError: a row is bad and must not be, or a file cannot be read on.
        ReplayError: nothing can be written.
    """
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    before = resource.getrusage(resource.RUSAGE_SELF)
    attempt = uuid4().hex[:12]
    plan = work.application.plan(VirtualClock(NO_TIMESTAMP))
    topic = declared_topic(plan.topology, work.topic)
    name = f"{work.folder}/{_file_name(work.topic)}-{attempt}.parquet"
    rows: list[int] = []
    with SegmentWriter(work.root, name) as writer:
        for number in range(work.partitions):
            writer.start_at("source", TopicPartition(work.topic, number), work.starts.get(number, 0))
        for index, file in enumerate(work.files):
            before_file = work.first_row + sum(rows)
            skip = work.skip_rows if index == 0 else 0
            count = 0
            for number, block, origins in _rows(work, topic, file, skip, before_file):
                writer.append("source", TopicPartition(work.topic, number), block, origins=origins)
                count += len(block)
            rows.append(count)
    used = resource.getrusage(resource.RUSAGE_SELF)
    reports = [
        TaskReport(TaskId(-2, index), {}, {}, {}, tuple(writer.written) if index == 0 else (), {}, {}, count, count)
        for index, count in enumerate(rows)
    ]
    cpu = (used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime) * 1000
    sizes = {name: work.root.child(name).size()} if writer.written else {}
    return StageReport(
        work.name, tuple(reports), sizes, clock.monotonic_ms() - started_ms, int(cpu), used.ru_maxrss * 1024, attempt
    )


def _rows(work: IngestWork, topic: Any, file: str, skip: int, before: int) -> Iterator[tuple[int, Any, Sequence[int]]]:
    on_bad_row: Any = work.on_bad_row
    reader = open_input(topic, Path(file), on_bad_row=on_bad_row, needs_time=True, rows_before=before - skip)
    for batch in reader(work.partitions, skip):
        for number, block in batch:
            yield number, block, list(block.offsets)


def _file_name(topic: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "-" for char in topic)


__all__ = ["IngestWork", "InputError", "run_ingest"]
