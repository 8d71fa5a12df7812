"""The calls of a replay to an executor and their reports, as values that are sent between processes.

A ``StageWork`` is one call: a stream task over one slice of history, some small tasks, or all tasks of a cycle of
sub-topologies.  A call is a pure function of these values: a retry writes the same records to files with other names.
"""

import json
import os
import resource
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

from attrs import define, evolve, field, frozen

from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.clock import Clock, SystemClock
from streams.core.metrics import Tally
from streams.replay.calls.application import Application
from streams.replay.storage.lanes import extents_of
from streams.replay.storage.places import Place
from streams.replay.storage.ranges import LaneRanges
from streams.replay.storage.segments import Extent, Kind

#: Folder of progress files, and the minimum interval in milliseconds between two writes of one file.
PROGRESS_FOLDER = "progress"
PROGRESS_INTERVAL_MS = 500


@frozen
class Options:
    """The options of a replay that its tasks need."""

    wall_clock: str = "error"
    final_flush: bool = False
    store_engine: str = "rocksdb"
    #: Topics that were read from rows, so that this library, or the rows, have chosen the partitions.
    placed_by_rows: frozenset[str] = frozenset()

    def is_by_key(self, topic: str) -> bool:
        """Return whether the records of a topic are where their producers have written them."""
        return topic not in self.placed_by_rows


@frozen
class StoreRef:
    """A reference to the contents of one task's instance of a store, in changelog format, sorted by key.

    Between slices, it may refer to the contents after an earlier slice, and to the ``changes`` of each slice since.
    """

    extents: tuple[Extent, ...] = ()
    #: State of the store other than its entries, such as its stream time.
    carried: Mapping[str, bytes] = field(factory=dict)
    #: Later changes, oldest first, each with its own ``carried``; a value of None deletes an entry.
    changes: tuple["StoreRef", ...] = ()

    @property
    def parts(self) -> tuple["StoreRef", ...]:
        """The contents, then the later changes, in the order in which they are restored."""
        return (self, *self.changes)

    @property
    def every_extent(self) -> list[Extent]:
        """The extents (ranges of records) of the contents and of the later changes."""
        return [extent for part in self.parts for extent in part.extents]

    @property
    def rows(self) -> int:
        """The number of entries of the contents plus the number of later changes."""
        return sum(extent.rows for extent in self.every_extent)

    def changed(self, extents: tuple[Extent, ...], carried: Mapping[str, bytes]) -> "StoreRef":
        """Return this reference with the changes of a further slice."""
        if extents:
            return evolve(self, changes=(*self.changes, StoreRef(extents, carried)))
        if self.changes:
            return evolve(self, changes=(*self.changes[:-1], evolve(self.changes[-1], carried=carried)))
        return evolve(self, carried=carried)


@frozen
class InputWork:
    """One partition that a task reads, from ``position`` to ``end``."""

    partition: TopicPartition
    extents: tuple[Extent, ...]
    position: int
    #: First offset after this slice.
    end: int
    #: Whether the partition ends here.
    is_ended: bool

    @property
    def rows(self) -> int:
        """The maximum number of records to read; there may be fewer, as a slice may begin and end within extents."""
        return min(sum(extent.rows for extent in self.extents), max(self.end - self.position, 0))


@frozen(eq=False)
class LanesWork:
    """The lanes of one partition of a repartition topic, which a task reads to their ends."""

    #: The broker name of the lanes, and the number of the first one.
    topic: str
    first: int
    ranges: LaneRanges
    #: Next offset to read of each lane.
    positions: Any
    #: Whether the lanes end here.
    is_ended: bool
    #: Whether the task has an input for each lane, also for those without records.
    has_all: bool
    #: Whether the lanes may not be read as one input, since the next slice may make calls of functions again.
    is_apart: bool = False

    @property
    def partition(self) -> TopicPartition:
        """The first lane, for which the input stands if its lanes are read as one input."""
        return TopicPartition(self.topic, self.first)

    @property
    def ends(self) -> Any:
        """The next offset of each lane after all records have been read."""
        import numpy as np

        ends = self.positions.copy()
        np.maximum.at(ends, self.ranges.columns[0] - self.first, self.ranges.ends)
        return ends

    @property
    def rows(self) -> int:
        """The maximum number of records to read; there may be fewer, as a slice may begin within a range."""
        return self.ranges.rows

    def separate(self) -> list[InputWork]:
        """Return one input for each lane, without lanes that have never had a record.

        One of these is kept: the task waits for it until its inputs have ended.
        """
        found = extents_of(self.ranges)
        ends = self.ends.tolist()
        empty = next((lane for lane, end in enumerate(ends) if not end), None)
        return [
            InputWork(
                TopicPartition(self.topic, self.first + lane),
                tuple(found.get(self.first + lane, ())),
                position,
                ends[lane],
                self.is_ended,
            )
            for lane, position in enumerate(self.positions.tolist())
            if ends[lane] or self.has_all or lane == empty
        ]


@frozen
class TaskWork:
    """The input of one task for one slice of history: partitions to read, stores and checkpoint."""

    task_id: TaskId
    inputs: tuple[InputWork, ...]
    lanes: tuple[LanesWork, ...] = ()
    #: ``Checkpoint.to_json()`` of the previous slice, None in the first slice.
    checkpoint: Mapping[str, Any] | None = None
    stores: Mapping[str, StoreRef] = field(factory=dict)
    #: Next offset of each partition that the task writes, other than its lanes of repartition topics.
    ends: Mapping[tuple[Kind, TopicPartition], int] = field(factory=dict)
    #: Next offset of each of its lanes, by the broker name of the lanes; none if it has not written to them yet.
    lane_ends: Mapping[str, Any] = field(factory=dict)

    @property
    def rows(self) -> int:
        """The number of records and store entries that the task reads."""
        return self.rows_read + self.rows_kept

    @property
    def rows_read(self) -> int:
        """The number of records that the task reads."""
        return sum(item.rows for item in self.inputs) + sum(item.rows for item in self.lanes)

    @property
    def rows_kept(self) -> int:
        """The number of store entries that the task reads."""
        return sum(ref.rows for ref in self.stores.values())

    @property
    def has_unread(self) -> bool:
        """Whether the task has records to read."""
        if any(given.position < given.end for given in self.inputs):
            return True
        return any((given.ends > given.positions).any() for given in self.lanes)


@frozen
class StageWork:
    """One call to an executor: a task, neighbouring small tasks, or all tasks of a cycle, over one slice of history."""

    application: Application = field(repr=False)
    tasks: tuple[TaskWork, ...]
    #: Folder of the replay, to which extents are relative, and the folder within it to write to.
    root: Place
    folder: str
    stage: int
    is_last: bool = False
    options: Options = Options()
    #: Initial wall-clock time with ``append_time``: the time of the first record in history.
    started_ms: int = 0
    global_stores: Mapping[str, StoreRef] = field(factory=dict)
    #: Whether the tasks form a cycle and run together; otherwise they run one after the other.
    is_cycle: bool = False
    #: Whether all stores are written as contents, since their state is handed over; otherwise the changes of a store
    #: are written if they are few.
    is_whole: bool = True

    def needs(self, task: TaskWork) -> bool:
        """Return whether a task has to run although neither history nor its inputs end here."""
        is_joined = self.is_whole and any(ref.changes for ref in task.stores.values())
        return task.checkpoint is None or is_joined or task.has_unread

    @property
    def units(self) -> list[tuple[TaskWork, ...]]:
        """The tasks that run together."""
        return [self.tasks] if self.is_cycle else [(task,) for task in self.tasks]

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages and file names."""
        tasks = [str(task.task_id) for task in self.tasks]
        return tasks[0] if len(tasks) == 1 else f"{tasks[0]}-to-{tasks[-1]}"

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of records and bytes that the call has to read, as far as they are known."""
        return sum(task.rows for task in self.tasks), 0


@frozen
class ChainWork:
    """One call to an executor: the same tasks over neighbouring slices of history, one slice after the other.

    The calls of all slices begin with the state before the first one; each but the first continues from the reports of
    the others.
    """

    slices: tuple[StageWork, ...]

    @property
    def application(self) -> Application:
        """The application of the tasks."""
        return self.slices[0].application

    @property
    def root(self) -> Place:
        """The folder of the replay."""
        return self.slices[0].root

    @property
    def folder(self) -> str:
        """The folder of the first slice."""
        return self.slices[0].folder

    @property
    def stage(self) -> int:
        """The number of the stage."""
        return self.slices[0].stage

    @property
    def tasks(self) -> tuple[TaskWork, ...]:
        """The tasks, each with its input over all slices."""
        return self.slices[-1].tasks

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages."""
        return self.slices[0].name

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of records and bytes that the call has to read, as far as they are known."""
        return self.slices[-1].size


@frozen
class GlobalWork:
    """A call to an executor that fills one global store from its topics."""

    application: Application = field(repr=False)
    store: str
    inputs: tuple[InputWork, ...]
    root: Place
    folder: str
    stage: int = -1

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages and file names."""
        return f"global-{self.store}"

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of records and bytes that the call has to read, as far as they are known."""
        return sum(item.rows for item in self.inputs), 0


@frozen
class TaskReport:
    """The result of one task in one slice of history."""

    task_id: TaskId
    positions: Mapping[TopicPartition, int]
    checkpoint: Mapping[str, Any]
    stores: Mapping[str, StoreRef]
    written: tuple[tuple[Kind, TopicPartition, Extent], ...]
    ends: Mapping[tuple[Kind, TopicPartition], int]
    counters: Mapping[Tally, int]
    records_in: int
    records_out: int
    #: The first dropped record, by node and reason.
    examples: Mapping[tuple[str, str], str] = field(factory=dict)
    #: Next offset to read of each lane of a repartition topic's partition, by the first lane.
    lane_positions: Mapping[TopicPartition, Any] = field(factory=dict)


@frozen
class StageReport:
    """The result of a call to an executor."""

    name: str
    tasks: tuple[TaskReport, ...]
    #: Files written, relative to the folder of the replay, with their sizes in bytes.
    files: Mapping[str, int]
    elapsed_ms: int
    cpu_ms: int
    #: Peak resident memory of the process in bytes.
    peak_bytes: int
    attempt: str = ""
    #: Records that were written to the lanes of repartition topics, by the broker name of the lanes.
    lanes: Mapping[str, LaneRanges] = field(factory=dict)

    @property
    def records_in(self) -> int:
        """The number of records that the call has read."""
        return sum(task.records_in for task in self.tasks)


@frozen
class ChainReport(StageReport):
    """The result of a call over neighbouring slices: a report for each slice, None if no task had anything to do."""

    reports: tuple[StageReport | None, ...] = ()

    @property
    def records_in(self) -> int:
        """The number of records that the call has read."""
        return sum(report.records_in for report in self.reports if report is not None)


R = TypeVar("R", bound=StageReport)
#: A generator that yields calls and is sent the reports.
Steps: TypeAlias = Generator[list[Any], list[StageReport], None]


@define(eq=False)
class CallMeter:
    """Measures a call and writes its progress file; as a context manager, it removes the file at the end."""

    _work: Any
    #: A unique part of the names of the files that the call writes.
    attempt: str = field(factory=lambda: uuid4().hex[:12])
    _clock: Clock = field(factory=SystemClock)
    _next_ms: int = 0
    _started_ms: int = field(init=False)
    _cpu_before_ms: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._started_ms = self._clock.monotonic_ms()
        self._cpu_before_ms = _cpu_ms()

    def beat(self, records: int) -> None:
        """Write the number of records read so far to the progress file, at most every 500 ms."""
        now = self._clock.monotonic_ms()
        if now >= self._next_ms:
            self._next_ms = now + PROGRESS_INTERVAL_MS
            self.note(records)

    def note(self, records: int) -> None:
        """Write the number of records read so far to the progress file."""
        if not self._work.root.is_local:
            return
        path = self._path()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps({"records": records}))
        part.replace(path)

    def report(
        self, kind: type[R], *, tasks: tuple[TaskReport, ...] = (), files: Iterable[str] = (), **found: Any
    ) -> R:
        """Return the report of the call, with the sizes of its files; ``found`` has further fields of the report."""
        sizes = {file: self._work.root.child(file).size() for file in sorted(files)}
        elapsed_ms = self._clock.monotonic_ms() - self._started_ms
        cpu_ms = _cpu_ms() - self._cpu_before_ms
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return kind(self._work.name, tasks, sizes, elapsed_ms, cpu_ms, peak_bytes, self.attempt, **found)

    def _path(self) -> Path:
        name = f"{self._work.folder.replace('/', '_')}-{self._work.name}.json"
        return Path(self._work.root.path / PROGRESS_FOLDER / name)

    def __enter__(self) -> "CallMeter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._work.root.is_local:
            self._path().unlink(missing_ok=True)


def _cpu_ms() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1000)
