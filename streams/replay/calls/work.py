"""Requests to an executor and their reports, as values that travel between processes.

A ``StageWork`` is one call: a stream task over one slice of history, or all tasks of a cycle of
sub-topologies.  A call is a pure function of these values: a retry writes the same records to files with other names.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from attrs import evolve, field, frozen

from streams.core.records import TaskId, TopicPartition
from streams.replay.calls.application import Application
from streams.replay.storage import Extent, Kind, Place


@frozen
class StoreRef:
    """The contents of one task's instance of a store, in changelog format, sorted by key."""

    extents: tuple[Extent, ...] = ()
    #: State of the store other than its entries, such as its stream time.
    carried: Mapping[str, bytes] = field(factory=dict)

    @property
    def rows(self) -> int:
        """Number of entries."""
        return sum(extent.rows for extent in self.extents)


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


@frozen
class TaskWork:
    """One task over one slice."""

    task_id: TaskId
    inputs: tuple[InputWork, ...]
    #: ``Checkpoint.to_json()`` of the previous slice, None in the first slice.
    checkpoint: Mapping[str, Any] | None = None
    stores: Mapping[str, StoreRef] = field(factory=dict)
    #: Next offset of each partition that the task writes.
    ends: Mapping[tuple[Kind, TopicPartition], int] = field(factory=dict)


@frozen
class StageWork:
    """One call of an executor."""

    application: Application = field(repr=False)
    tasks: tuple[TaskWork, ...]
    #: Folder of the replay, to which extents are relative, and the folder within it to write to.
    root: Place
    folder: str
    stage: int
    final_flush: bool = False
    is_last: bool = False
    wall_clock: str = "error"
    #: Initial wall-clock time with ``append_time``: the time of the first record in history.
    started_ms: int = 0
    store_engine: str = "rocksdb"
    global_stores: Mapping[str, StoreRef] = field(factory=dict)

    @property
    def name(self) -> str:
        """Name for messages and files."""
        tasks = [str(task.task_id) for task in self.tasks]
        return tasks[0] if len(tasks) == 1 else f"{tasks[0]}-to-{tasks[-1]}"

    @property
    def size(self) -> tuple[int, int]:
        """Records and bytes to read, as far as known."""
        given = [extent for task in self.tasks for item in task.inputs for extent in item.extents]
        kept = [extent for task in self.tasks for ref in task.stores.values() for extent in ref.extents]
        return sum(extent.rows for extent in (*given, *kept)), 0


@frozen
class GlobalWork:
    """A call that fills one global store from its topics."""

    application: Application = field(repr=False)
    store: str
    inputs: tuple[InputWork, ...]
    root: Place
    folder: str
    stage: int = -1

    @property
    def name(self) -> str:
        """Name for messages and files."""
        return f"global-{self.store}"

    @property
    def size(self) -> tuple[int, int]:
        """Records and bytes to read, as far as known."""
        return sum(extent.rows for item in self.inputs for extent in item.extents), 0


@frozen
class TaskReport:
    """The result of a task in a slice."""

    task_id: TaskId
    positions: Mapping[TopicPartition, int]
    checkpoint: Mapping[str, Any]
    stores: Mapping[str, StoreRef]
    written: tuple[tuple[Kind, TopicPartition, Extent], ...]
    ends: Mapping[tuple[Kind, TopicPartition], int]
    #: Counters by (name, node).
    counters: Mapping[tuple[str, str], int]
    records_in: int
    records_out: int
    #: The first record of each counter of dropped records.
    examples: Mapping[tuple[str, str], str] = field(factory=dict)


@frozen
class StageReport:
    """The result of a call."""

    name: str
    tasks: tuple[TaskReport, ...]
    #: Files written, relative to the folder of the replay, with their sizes in bytes.
    files: Mapping[str, int]
    elapsed_ms: int
    cpu_ms: int
    #: Peak resident memory of the process in bytes.
    peak_bytes: int
    attempt: str = ""

    @property
    def records_in(self) -> int:
        """Number of records read."""
        return sum(task.records_in for task in self.tasks)


class Executor(Protocol):
    """Runs calls in any order."""

    #: Name for display.
    name: str

    def run(self, works: list[Any], on_done: Any) -> list[StageReport]:
        """Run all calls; return their reports in order.

        ``on_done(report)`` is called as soon as the executor learns that a call has ended.

        Raises:
            ReplayTaskError: a call failed, including all retries.
        """
        ...


def lanes_of(reports: Iterator[TaskReport], kind: Kind) -> dict[TopicPartition, list[Extent]]:
    """Return the extents of a kind that tasks wrote, in order, by partition."""
    result: dict[TopicPartition, list[Extent]] = {}
    for report in reports:
        for what, partition, extent in report.written:
            if what == kind:
                result.setdefault(partition, []).append(extent)
    return result


__all__ = [
    "Executor",
    "GlobalWork",
    "InputWork",
    "StageReport",
    "StageWork",
    "StoreRef",
    "TaskReport",
    "TaskWork",
    "evolve",
    "lanes_of",
]
