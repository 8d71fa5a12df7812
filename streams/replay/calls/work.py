"""The calls of a replay to an executor and their reports, as values that are sent between processes.

A ``StageWork`` is one call: a stream task over one slice of history, some small tasks, or all tasks of a cycle of
sub-topologies.  A call is a pure function of these values: a retry writes the same records to files with other names.

The topology in a call is pickled as the user gave it, and built by the worker.  Functions defined in a script are
pickled by value, so workers need neither the script nor its folder.  Built topologies and running tasks are never
pickled.
"""

import hashlib
import inspect
import io
import json
import os
import resource
import sys
import sysconfig
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dis import get_instructions
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

from attrs import define, evolve, field, frozen
from msgspec import Meta

from streams.core.blocks.records import NO_TIMESTAMP, TaskId, TopicPartition
from streams.core.clock import Clock, SystemClock, VirtualClock
from streams.core.metrics import Tally
from streams.core.nearest import suggestion
from streams.core.settings.config import StreamsConfig
from streams.core.topic import Topic
from streams.dsl import TopologySource, build_topology
from streams.replay.calls.structs import is_struct, reduced_struct
from streams.replay.errors import ReplayError
from streams.replay.storage.lanes import LaneRanges
from streams.replay.storage.segments import Extent, Kind, Segments, extents_of
from streams.runtime import ApplicationPlan
from streams.topology import SinkNode, SourceNode, Topology, describe, reader_of
from streams.values import ArrowRecords

#: Attribute of a user class in which msgspec caches its decoder.
_DECODERS_OWN = "__msgspec_cache__"
_META_FIELDS = tuple(inspect.signature(Meta).parameters)


@frozen
class Application:
    """A pickled topology and its settings; ``partitions`` has the partition counts of external topics."""

    topology: bytes = field(repr=False)
    settings: bytes = field(repr=False)
    partitions: Mapping[str, int]
    #: Topology and settings as given, for calls in the driver's process: unpickling a class in the process that
    #: defined it would replace methods of the original.  Not pickled.
    original: tuple[TopologySource, Mapping[str, Any]] | None = field(default=None, repr=False, eq=False)
    #: Partition count of topics that only a record or a handler determines, such as the dead letter queue topic.
    default_partitions: int = 1

    @classmethod
    def of(
        cls,
        topology: TopologySource,
        settings: Mapping[str, Any],
        partitions: Mapping[str, int],
        default_partitions: int = 1,
    ) -> "Application":
        """Return the pickled application of a topology.

        Raises:
            ReplayError: the topology or a setting cannot be pickled.
        """
        return cls(
            pickled(topology, "the topology"),
            pickled(dict(settings), "the settings"),
            dict(partitions),
            (topology, dict(settings)),
            default_partitions,
        )

    def __reduce__(self) -> Any:
        return Application, (self.topology, self.settings, self.partitions, None, self.default_partitions)

    def source_topic(self, name: str) -> Topic[Any, Any]:
        """Return a topic that the topology reads, with its serdes."""
        return declared_topic(self.plan().topology, name)

    def output_topic(self, name: str) -> Topic[Any, Any] | None:
        """Return an output topic of the topology with its serdes, or None if they are not known."""
        return output_topic(self.plan().topology, name)

    def plan(self, clock: Clock | None = None) -> ApplicationPlan:
        """Build the topology and plan its tasks (default: with a clock that has no time)."""
        import cloudpickle

        source, settings = self.original or (cloudpickle.loads(self.topology), cloudpickle.loads(self.settings))
        config = StreamsConfig.of(**settings)
        return ApplicationPlan.make(
            build_topology(source, config), config, clock or VirtualClock(NO_TIMESTAMP), self.partitions, has_lanes=True
        )


def declared_topic(topology: Topology, name: str) -> Topic[Any, Any]:
    """Return a topic that the topology reads, with its serdes.

    Raises:
        ReplayError: the topology does not read the topic.
    """
    source = source_of_topic(topology, name)
    return topology.topics.get(name) or Topic(name, key=source.key_serde, value=source.value_serde)


def source_of_topic(topology: Topology, name: str) -> SourceNode:
    """Return the source node that reads a topic.

    Raises:
        ReplayError: the topology does not read the topic.
        TopologyError: two patterns match the topic.
    """
    sources = topology.all_sources()
    source = reader_of(name, sources)
    if source is not None:
        return source
    topics = sorted({topic for source in sources for topic in source.topics} - topology.internal_topics.keys())
    meant = suggestion(name, topics, " (did you mean {}?)")
    raise ReplayError(f"the topology reads no topic {name!r}{meant}; it reads {', '.join(topics) or 'none by name'}")


def output_topic(topology: Topology, name: str) -> Topic[Any, Any] | None:
    """Return an output topic of the topology with its serdes, or None if they are not known."""
    declared = topology.topics.get(name)
    if declared is not None:
        return declared
    for sink in topology.sinks():
        if isinstance(sink, SinkNode) and sink.topic == name:
            return Topic(name, key=sink.key_serde, value=sink.value_serde)
    return None


def output_schema(topology: Topology, name: str) -> Any:
    """Return the Arrow schema of an output topic as a table for a data lake."""
    return ArrowRecords(output_topic(topology, name), as_table=True).schema


def pickled(thing: object, what: str) -> bytes:
    """Pickle an object for another process; ``what`` names it in error messages.

    Raises:
        ReplayError: a part of the object cannot be pickled.
    """
    with _by_value(thing):
        try:
            return _dumped(thing)
        except Exception as error:
            raise ReplayError(
                f"{what} cannot be sent to other processes: {type(error).__name__}: {error}; make connections, "
                "locks and open files inside the functions that use them"
            ) from error


def _dumped(thing: object) -> bytes:
    """Pickle an object with cloudpickle, with five changes.

    - Decoders that msgspec caches on classes are left out.
    - Globals that class bodies within functions use are included; cloudpickle only follows function code.
    - Annotations are sent as types, since the module that resolves their names is missing in the worker.
    - Constraints of types (``msgspec.Meta``), which cannot be pickled, are sent as their values.
    - Code keeps the name of its file, so that errors name the line of user code; cloudpickle 3.1.3 replaces it.
    """
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, part: Any) -> Any:
            if isinstance(part, type) and _DECODERS_OWN in vars(part):
                delattr(part, _DECODERS_OWN)  # msgspec creates it again on demand.
            if isinstance(part, CodeType):
                make, arguments = self.dispatch_table[CodeType](part)[:2]
                return _code_of, (part.co_filename, make, arguments)
            if isinstance(part, Meta):
                return _meta_of, ({name: getattr(part, name) for name in _META_FIELDS},)
            reduced = super().reducer_override(part)
            if is_struct(part) and isinstance(reduced, tuple):
                return reduced_struct(part)
            if not isinstance(reduced, tuple) or len(reduced) != 6:
                return reduced
            if isinstance(part, FunctionType):
                state = reduced[2][1]
                state["__annotations__"] = _types_of(part)
                for name in _names_of_bodies(part.__code__):
                    if name in part.__globals__:
                        state["__globals__"].setdefault(name, part.__globals__[name])
            elif isinstance(part, type) and "__annotations__" in vars(part):
                reduced[2][0]["__annotations__"] = _types_of(part)
            return reduced

    stream = io.BytesIO()
    Pickler(stream).dump(thing)
    return stream.getvalue()


def _meta_of(values: Mapping[str, Any]) -> Meta:
    """Return the constraints of a type that have these values."""
    return Meta(**values)


def _code_of(file: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    """Return the code object that ``make`` creates, as code of a file."""
    return make(*arguments).replace(co_filename=file)


def _types_of(function: Any) -> dict[str, Any]:
    """Return the annotations of a function or class, in which text has been resolved to types."""
    declared: dict[str, Any] = function.__annotations__
    try:
        hints = typing.get_type_hints(function, include_extras=True) if declared else {}
    except (NameError, TypeError):
        return declared  # Imported for type checkers only: not needed at run time.
    return {name: hints.get(name, kind) for name, kind in declared.items()}


def _names_of_bodies(code: CodeType) -> Iterator[str]:
    """Yield the names of parameters or globals of a function that class bodies within the function use."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            # Functions access variables by slot; class bodies look up all names.
            if not inner.co_flags & inspect.CO_OPTIMIZED:
                for step in get_instructions(inner):
                    if step.opname == "LOAD_NAME":
                        yield str(step.argval)
            yield from _names_of_bodies(inner)


def fingerprint(topology: Topology) -> str:
    """Return a digest of the topics and stores of a topology; function code is not included.

    Whether a table uses its source topic as changelog is not included either, since this depends on the writers of
    the topic.
    """
    described = describe(evolve(topology, source_changelogs={}))
    return hashlib.blake2b(str(described).encode(), digest_size=8).hexdigest()


def source_digest(topology: TopologySource) -> str:
    """Return a digest of the user code: the module of the topology and the loaded modules in its folder."""
    state = hashlib.blake2b(digest_size=8)
    for module in _modules_around(topology):
        try:
            state.update(inspect.getsource(module).encode())
        except (OSError, TypeError):
            continue  # Interactive code has no source; the description of the topology is used instead.
    return state.hexdigest()


@contextmanager
def _by_value(thing: object) -> Iterator[None]:
    """Within the ``with`` block, make cloudpickle pickle definitions of the user's own modules by value."""
    import cloudpickle

    # Settings are a dict of plain values and the user's functions.
    parts = thing.values() if isinstance(thing, dict) else (thing,)
    by_name = {module.__name__: module for part in parts for module in _modules_around(part)}
    modules = [module for name, module in sorted(by_name.items()) if name != "__main__"]
    registered = cloudpickle.list_registry_pickle_by_value()
    added = [module for module in modules if module.__name__ not in registered]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def _modules_around(thing: object) -> list[ModuleType]:
    """Return the module that defines a function and the loaded modules in its folder, without installed packages."""
    module = inspect.getmodule(thing)
    file = getattr(module, "__file__", None)
    if module is None or file is None or _is_installed(file):
        return [] if module is None or module.__name__ != "__main__" else [module]
    folder = _folder_of(file)
    siblings = [
        other
        for other in list(sys.modules.values())
        if isinstance(other, ModuleType)
        and (origin := getattr(other, "__file__", None)) is not None
        and _folder_of(origin) == folder
        and not _is_installed(origin)
    ]
    return sorted({id(each): each for each in (module, *siblings)}.values(), key=lambda each: each.__name__)


@cache
def _folder_of(file: str) -> str:
    # A replay calls this often, for every loaded module.
    return str(Path(file).resolve().parent)


@cache
def _is_installed(file: str) -> bool:
    resolved = str(Path(file).resolve())
    own = str(Path(__file__).resolve().parent.parent)
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(resolved.startswith(f"{folder}/") for folder in {own, *libraries})


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
        extents = extents_of(self.ranges)
        ends = self.ends.tolist()
        empty = next((lane for lane, end in enumerate(ends) if not end), None)
        return [
            InputWork(
                TopicPartition(self.topic, self.first + lane),
                tuple(extents.get(self.first + lane, ())),
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
        if any(item.position < item.end for item in self.inputs):
            return True
        return any((item.ends > item.positions).any() for item in self.lanes)


@frozen
class StageWork:
    """One call to an executor: a task, neighbouring small tasks, or all tasks of a cycle, over one slice of history."""

    application: Application = field(repr=False)
    tasks: tuple[TaskWork, ...]
    #: The files of the replay, and the folder within its own to write to.
    segments: Segments
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
    def segments(self) -> Segments:
        """The files of the replay."""
        return self.slices[0].segments

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
    segments: Segments
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
    #: Records that the task processed, of topics that are no repartition topics.
    source_records: int = 0
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
        if not self._work.segments.root.is_local:
            return
        path = self._path()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps({"records": records}))
        part.replace(path)

    def report(
        self, kind: type[R], *, tasks: tuple[TaskReport, ...] = (), files: Iterable[str] = (), **fields: Any
    ) -> R:
        """Return the report of the call, with the sizes of its files; ``fields`` has further fields of the report."""
        sizes = {file: self._work.segments.root.child(file).size() for file in sorted(files)}
        elapsed_ms = self._clock.monotonic_ms() - self._started_ms
        cpu_ms = _cpu_ms() - self._cpu_before_ms
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return kind(self._work.name, tasks, sizes, elapsed_ms, cpu_ms, peak_bytes, self.attempt, **fields)

    def _path(self) -> Path:
        name = f"{self._work.folder.replace('/', '_')}-{self._work.name}.json"
        return Path(self._work.segments.root.path / PROGRESS_FOLDER / name)

    def __enter__(self) -> "CallMeter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._work.segments.root.is_local:
            self._path().unlink(missing_ok=True)


def _cpu_ms() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1000)
