"""The explanation of a replay before it runs: its size, its stages and calls, its output, and possible problems.

The explanation is computed from file listings, Parquet footers and samples (``history.estimates``), so it takes seconds
for any size of history.
No function of the topology is called except those that determine the key and the time of the sampled rows.
"""

import math
import os
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from attrs import asdict, evolve, field, frozen

from streams.core.blocks.records import TaskId
from streams.core.event_time.time_texts import time_text
from streams.files import OnBadRow
from streams.replay.calls.memory import PROCESS_BYTES, CallMemory, mebibytes
from streams.replay.calls.schedule import CallSchedule
from streams.replay.calls.work import declared_topic
from streams.replay.history.archive import read_archive
from streams.replay.history.estimates import InputEstimate, estimate_archive, estimate_files, estimate_table
from streams.replay.history.ingest import INPUT_GROUP_ROWS, MERGE_CALL_ROWS
from streams.replay.history.inputs import Archive, Files, Input, KafkaTopic, Table
from streams.replay.history.row_times import ROW_TIMES
from streams.replay.history.slicing import Slicing
from streams.replay.history.tables import look_at_lake, sampled_rows
from streams.replay.run.session import ReplaySession
from streams.replay.run.through_spark import CountRows, ListFiles, look_at_tables
from streams.replay.storage.extents import SourceHistory
from streams.replay.storage.places import Place
from streams.replay.storage.segments import GROUP_ROWS, GROUPS_PER_FILE, lane_group_rows

#: Memory of a footer of the files that a process reads, by row group; measured (docs/replay-at-scale.md).
_GROUP_BYTES = 10 << 10
#: Memory of a record in a row group that is read, as Arrow data.
_ROW_BYTES = 150
#: Seconds of CPU to read a row, to process a record in a stage, to write a record of an output to a table, of a call on
#: Spark, and of Spark's start; measured (docs/replay-at-scale.md).
_READ_S = 4e-6
_STAGE_S = 6e-6
_OUTPUT_S = 7e-6
_SPARK_CALL_S = 0.14
_SPARK_S = 20.0
#: Bytes of a file and of a row group in a manifest.
_FILE_BYTES = 250
_EXTENT_BYTES = 150
#: The same for what is kept in columns: a row group of an input, and a lane of a repartition topic.
_READ_BYTES = 16
_LANE_BYTES = 3
#: Above this, the driver needs minutes and gigabytes of memory for the manifest of a slice.
_MANIFEST_LIMIT = 1 << 30
#: Records of a call are written when this many wait, of all partitions together.
_WAITING_ROWS = 100_000
#: A partition is uneven if it has more than this multiple of its even share.
_UNEVEN = 2.0

Estimates = Mapping[str, InputEstimate]


@frozen
class Explanation:
    """The inputs, stages, calls, written bytes and memory of a replay.

    Sizes are in bytes.  ``written`` is an upper bound if each record results in at most one record on each downstream
    topic; it is computed as if each record had a different key in each store.
    """

    application_id: str
    inputs: Estimates
    stages: tuple[str, ...]
    slices: int
    #: Number of calls by kind: calls that read inputs, calls that sort (at most), and calls that run tasks in all
    #: slices.
    calls: Mapping[str, int]
    written: Mapping[str, int]
    #: Seconds of CPU in all, and those to write each output to a table or folder, which a replay does on request.
    cpu_s: float
    writing_s: float
    #: Memory of a process that runs one task, without the entries of in-memory stores.
    memory_bytes: int
    #: Maximum additional memory of its stores (``state_memory_max_bytes``).
    state_bytes: int
    #: Descriptions of expected problems: too little memory or disk space, or uneven partitions.
    problems: tuple[str, ...] = ()
    orders: Mapping[str, str] = field(factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows of all inputs, as far as known."""
        return sum(estimate.rows or 0 for estimate in self.inputs.values())

    @property
    def is_exact(self) -> bool:
        """Whether the number of rows is exact."""
        return all(estimate.is_exact for estimate in self.inputs.values())

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as JSON-compatible values."""
        return {
            "application_id": self.application_id,
            "rows": self.rows,
            "is_exact": self.is_exact,
            "inputs": {
                topic: asdict(estimate) | {"placed": list(estimate.placed), "order": self.orders.get(topic)}
                for topic, estimate in self.inputs.items()
            },
            "stages": [line.strip() for line in self.stages],
            "slices": self.slices,
            "calls": dict(self.calls),
            "written_bytes": dict(self.written),
            "cpu_seconds": round(self.cpu_s, 1),
            "cpu_seconds_of_tables": round(self.writing_s, 1),
            "memory_bytes_per_task": self.memory_bytes,
            "state_bytes_per_task": self.state_bytes,
            "problems": list(self.problems),
        }

    @property
    def _of_stores(self) -> str:
        return f", and at most {mebibytes(self.state_bytes)} for its stores" if self.state_bytes else ""

    def lines(self) -> Iterator[str]:
        """Yield the explanation as lines of text."""
        stages = sum(line.startswith("  stage") for line in self.stages)
        rows = f"{'' if self.is_exact else 'about '}{_count(self.rows, 'record')}"
        yield f"replay of {self.application_id}: {rows}, {_count(stages, 'stage')}, {_count(self.slices, 'slice')}"
        for topic, estimate in self.inputs.items():
            yield from self._input_lines(topic, estimate)
        yield from self.stages
        yield f"  calls: {', '.join(f'{count:,} that {what}' for what, count in self.calls.items() if count)}"
        total = sum(self.written.values())
        parts = ", ".join(f"{what} {_size(count)}" for what, count in self.written.items() if count)
        yield f"  writes at most about {_size(total)}: {parts}"
        yield f"  takes about {_cpu(self.cpu_s)} of CPU, and {_cpu(self.writing_s)} to write the outputs to tables"
        yield f"  memory: about {self.memory_bytes >> 20:,} MiB for each task that runs at a time{self._of_stores}"
        for problem in self.problems:
            yield f"  warning: {problem}"

    def _input_lines(self, topic: str, estimate: InputEstimate) -> Iterator[str]:
        rows = "an unknown number of rows" if estimate.rows is None else _count(estimate.rows, "row")
        about = "" if estimate.is_exact or estimate.rows is None else "about "
        size = f", {_size(estimate.bytes)}" if estimate.bytes else ""
        order = ", sorted by event time" if self.orders.get(topic) == "event_time" else ""
        yield f"  input {topic}: {estimate.what}{size}, {about}{rows}{order}"
        yield f"    {estimate.basis}"
        number, share = estimate.highest_share
        if share and len(estimate.placed) > 1:
            even = f"an even share is {100 / len(estimate.placed):.3g}%"
            yield f"    {_count(len(estimate.placed), 'partition')}; partition {number} has {100 * share:.3g}%, {even}"
        if estimate.times is not None:
            yield f"    from {time_text(estimate.times[0])} to {time_text(estimate.times[1])}"
        if estimate.has_row_times:
            yield f"    rows have no times, so they are {ROW_TIMES}"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def explaining(session: ReplaySession, processes: int | None) -> Generator[list[Any], list[Any], Explanation]:
    """Yield the calls that inspect tables, if there are any; return the explanation of a replay.

    ``processes`` is the number of processes of this machine that would run tasks, None if Spark would.

    Raises:
        StreamsError: the replay cannot be planned.
    """
    yield from look_at_tables(session.inputs.sources, session.topology)
    if session.request.plan.resume:
        session.inputs.load()
    application = session.application()
    plan = application.plan()
    schedule = CallSchedule(application, plan, SourceHistory({}, session.segments), session.request.options)
    inputs: dict[str, InputEstimate] = {}
    for topic, source in session.inputs.sources.items():
        inputs[topic] = yield from _estimate(session, topic, source, application.partitions[topic])
    orders = {
        topic: history.order
        if (history := session.inputs.histories.get(topic))
        else session.inputs.order_of(topic, source)
        for topic, source in session.inputs.sources.items()
        if isinstance(source, Files | Table)
    }
    rows = _topic_rows(schedule, inputs)
    slices = _slices(session.request.plan.slices, inputs)
    calls_of_slice = sum(map(schedule.most_calls, range(len(schedule.stages))))
    calls = {
        "read inputs": sum(estimate.calls for estimate in inputs.values()),
        "sort them, at most": _sort_calls(inputs, orders),
        "run tasks, at most": calls_of_slice * slices,
    }
    written = _written(schedule, inputs, rows, slices)
    memory = _memory(schedule, rows)
    return Explanation(
        session.config.application_id,
        inputs,
        tuple(_stage_lines(schedule)),
        slices,
        calls,
        written,
        *_cost(schedule, inputs, rows, sum(calls.values()), is_spark=processes is None),
        memory,
        CallMemory.of(session.config, has_stores=any(map(schedule.plan.stores_of, schedule.plan.groups))).state_bytes,
        tuple(_problems(session.root, inputs, written, memory, processes)),
        orders,
    )


def needs_spark(source: Input) -> bool:
    """Return whether only Spark can determine the size of an input."""
    return (isinstance(source, Table) and not source.is_arrow) or (isinstance(source, Files) and source.through_spark)


def _estimate(
    session: ReplaySession, topic: str, source: Input, partitions: int
) -> Generator[list[Any], list[Any], InputEstimate]:
    declared = declared_topic(session.topology, topic)
    on_bad_row: OnBadRow = "fail" if session.config.deserialization_handler == "fail" else "continue"
    if isinstance(source, Archive):
        return estimate_archive(read_archive(Place(source.path), source.topic or topic))
    if isinstance(source, KafkaTopic):
        return InputEstimate(f"kafka://{source.bootstrap_servers}/{source.topic}", "not known before it is read")
    if isinstance(source, Files) and source.through_spark:
        (answer,) = yield [ListFiles(source.paths)]
        size = sum(file.size for file in answer.listed)
        what = _count(len(answer.listed), "file")
        return InputEstimate(what, "from a listing of Spark", bytes=size, files=len(answer.listed), calls=1)
    if isinstance(source, Files):
        history = session.inputs.histories.get(topic)
        paths = source.paths if history is None else history.in_order(source.paths)[len(history.marks) :]
        return estimate_files(paths, declared, partitions, on_bad_row, source.location, session.inputs.needs_time)
    if source.is_lake:
        place = look_at_lake(source)
        what = f"{source.name}, version {place.version}, {_count(len(place.files), 'file')}"
        basis = "from the log of the table" if place.rows is not None else "not known before it is read"
        is_exact = place.rows is not None and source.since is None
        estimate = InputEstimate(what, basis, place.rows, is_exact, files=len(place.files), calls=1)
        history = session.inputs.histories.get(topic)
        if history is not None:
            rest = None if place.rows is None else max(0, place.rows - history.rows)
            estimate = evolve(estimate, rows=rest, is_exact=False, basis=f"{basis}, without {history.rows:,} rows read")
        samples = sampled_rows(source, place)
        return estimate_table(estimate, samples, declared, partitions, on_bad_row, session.inputs.needs_time)
    if source.is_arrow:
        rows = arrow_rows(source.source)
        basis = "not known before it is read" if rows is None else "from the table"
        return InputEstimate(source.name, basis, rows, rows is not None, calls=1)
    (counted,) = yield [CountRows(source)]
    basis = "not known before it is read" if counted.count is None else "counted by Spark"
    return InputEstimate(source.name, basis, counted.count, counted.count is not None, calls=1)


def arrow_rows(source: Any) -> int | None:
    """Return the number of rows of an object with Arrow data, or None if it is only known when they are read."""
    if hasattr(source, "count_rows"):
        return int(source.count_rows())
    rows = getattr(source, "num_rows", None)
    if isinstance(rows, int):
        return rows
    return len(source) if hasattr(type(source), "__len__") else None


def _topic_rows(schedule: CallSchedule, inputs: Estimates) -> dict[str, int]:
    """Return the number of records of each topic, if each record results in one record on each downstream topic."""
    rows = {topic: estimate.rows or 0 for topic, estimate in inputs.items()}
    subs = {sub.id: sub for sub in schedule.plan.subs if not sub.is_global}
    for wave in schedule.waves:
        for number in wave:
            for sub in sorted({task.sub_topology for task in schedule.stages[number]}):
                read = sum(rows.get(topic, 0) for topic in subs[sub].source_topics)
                for topic in subs[sub].sink_topics:
                    rows[topic] = rows.get(topic, 0) + read
    return rows


def _slices(slicing: Slicing | None, inputs: Estimates) -> int:
    """Return the number of slices, which is approximate if slices are spans of time."""
    if slicing is None:
        return 1
    if slicing.span_ms is not None:
        times = [time for estimate in inputs.values() for time in estimate.times or ()]
        return 1 if not times else max(times) // slicing.span_ms - min(times) // slicing.span_ms + 1
    return slicing.count(sum(estimate.rows or 0 for estimate in inputs.values()))


def _sort_calls(inputs: Estimates, orders: Mapping[str, str]) -> int:
    sorted_rows = [
        inputs[topic].rows or 0 for topic, order in orders.items() if order == "event_time" and inputs[topic].files > 1
    ]
    return sum(-(-rows // MERGE_CALL_ROWS) for rows in sorted_rows)


def _written(schedule: CallSchedule, inputs: Estimates, rows: Mapping[str, int], slices: int) -> dict[str, int]:
    plan = schedule.plan
    sized = [estimate for estimate in inputs.values() if estimate.rows and estimate.record_bytes]
    size = sum(estimate.record_bytes * (estimate.rows or 0) for estimate in sized) / max(
        1, sum(estimate.rows or 0 for estimate in sized)
    )
    subs = [sub for sub in plan.subs if not sub.is_global]
    sinks = {topic for sub in subs for topic in sub.sink_topics}
    entries = sum(len(sub.stores) * sum(rows.get(topic, 0) for topic in sub.source_topics) for sub in subs)
    read = sum((estimate.rows or 0) for estimate in inputs.values() if estimate.calls)
    manifests = _manifest_bytes(schedule, inputs, rows, slices)
    return {
        "records of inputs": round(size * read),
        "repartition topics": round(size * sum(rows[topic] for topic in sinks if plan.is_internal(topic))),
        "outputs": round(size * sum(rows[topic] for topic in sinks if not plan.is_internal(topic))),
        "state": round(size * entries),
        "manifests": manifests,
    }


def _cost(
    schedule: CallSchedule, inputs: Estimates, rows: Mapping[str, int], calls: int, *, is_spark: bool
) -> tuple[float, float]:
    """Return the seconds of CPU of a replay, and those to write its outputs to tables."""
    plan = schedule.plan
    subs = [sub for sub in plan.subs if not sub.is_global]
    read = sum(estimate.rows or 0 for estimate in inputs.values() if estimate.calls)
    processed = sum(rows.get(topic, 0) for sub in subs for topic in sub.source_topics)
    outputs = {topic for sub in subs for topic in sub.sink_topics if not plan.is_internal(topic)}
    of_spark = _SPARK_S + calls * _SPARK_CALL_S if is_spark else 0.0
    return read * _READ_S + processed * _STAGE_S + of_spark, sum(rows[topic] for topic in outputs) * _OUTPUT_S


def _cpu(seconds: float) -> str:
    """Return a duration of CPU as text.

    >>> _cpu(0.2), _cpu(37.2), _cpu(9_000)
    ('1 s', '38 s', '2.5 core-hours')
    """
    return f"{math.ceil(seconds)} s" if seconds < 3_600 else f"{seconds / 3_600:,.3g} core-hours"


def _groups(records: int, partitions: int, calls: int, group_rows: int = GROUP_ROWS) -> int:
    """Return the approximate number of row groups with at most ``group_rows`` rows that calls write.

    A call writes the partitions with the most records when its buffer is full.
    """
    per_call = -(-records // max(1, calls))
    flushes = -(-per_call // _WAITING_ROWS)
    return max(1, calls) * max(min(partitions, per_call) * flushes, -(-per_call // group_rows))


def _manifest_bytes(schedule: CallSchedule, inputs: Estimates, rows: Mapping[str, int], slices: int) -> int:
    """Return the size of all manifests in bytes; they list the files that were read and the row groups written."""
    plan = schedule.plan
    read = sum(
        _groups(estimate.rows or 0, plan.partitions.get(topic, 1), estimate.calls, INPUT_GROUP_ROWS)
        for topic, estimate in inputs.items()
        if estimate.calls
    )
    groups = lanes = 0
    for topic, count in rows.items():
        if topic not in inputs:
            producers = len(plan.lanes.get(topic) or ()) or 1
            if plan.is_internal(topic):
                lanes += plan.partitions.get(topic, 1) * producers * slices
            else:
                groups += _groups(count, plan.partitions.get(topic, 1), producers * slices)
    files = sum(estimate.files for estimate in inputs.values()) + slices * sum(
        map(schedule.most_calls, range(len(schedule.stages)))
    )
    return read * _READ_BYTES + lanes * _LANE_BYTES + groups * _EXTENT_BYTES + files * _FILE_BYTES


def _memory(schedule: CallSchedule, rows: Mapping[str, int]) -> int:
    """Return the memory of a task in bytes: its process, and of the lanes that it reads the footers and the row groups.

    Footers are those of the files, and row groups one of each lane.
    """
    plan = schedule.plan
    lanes = 0
    for topic, producers in plan.lanes.items():
        count = len(producers)
        groups = min(
            GROUPS_PER_FILE, _groups(rows.get(topic, 0), plan.partitions.get(topic, 1), count) // max(1, count)
        )
        in_memory = min(rows.get(topic, 0), count * lane_group_rows(max(1, count)))
        lanes = max(lanes, count * groups * _GROUP_BYTES + in_memory * _ROW_BYTES)
    return PROCESS_BYTES + lanes


def _problems(
    root: Place, inputs: Estimates, written: Mapping[str, int], memory: int, processes: int | None
) -> Iterator[str]:
    for topic, estimate in inputs.items():
        number, share = estimate.highest_share
        if len(estimate.placed) > 1 and share > _UNEVEN / len(estimate.placed):
            yield (
                f"partition {number} of topic {topic!r} has {100 * share:.3g}% of the records: one task processes "
                "them one after the other, and neither more partitions nor slices make it faster"
            )
    if written["manifests"] > _MANIFEST_LIMIT:
        yield (
            f"the manifests are about {_size(written['manifests'])}, which the driver keeps in memory several times: "
            "give fewer partitions, or replay history in parts (--until, then --state-from)"
        )
    if root.is_local:
        free = shutil.disk_usage(_existing(root.uri)).free
        if sum(written.values()) > free:
            yield (
                f"{root}: has {_size(free)} free, and up to {_size(sum(written.values()))} may be "
                "written; give another --directory"
            )
    if processes is not None:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if processes * memory > total:
            fit = max(1, total // memory)
            yield (
                f"{processes} processes need about {_size(processes * memory)} of memory, this machine has "
                f"{_size(total)}; give processes={fit} or fewer partitions"
            )
    elif memory > 2 * PROCESS_BYTES:
        yield (
            f"a task needs about {_size(memory)} outside of the JVM: spark.executor.memoryOverhead must be the cores "
            "of an executor times that; fewer partitions need less"
        )


def _existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _stage_lines(schedule: CallSchedule) -> Iterator[str]:
    """Yield the stages, tasks, inputs and shuffles as lines of text."""
    plan = schedule.plan
    subs = {sub.id: sub for sub in plan.subs if not sub.is_global}
    for name, store in sorted(plan.topology.global_stores.items()):
        yield f"  first: global store {name} from {', '.join(store.source.topics)}, whole, broadcast to all tasks"
    for number, tasks in enumerate(schedule.stages):
        ids = sorted({task.sub_topology for task in tasks})
        yield f"  stage {number}: {_how(schedule, number, tasks, ids)}"
        for topic in dict.fromkeys(topic for sub in ids for topic in subs[sub].source_topics):
            yield f"    reads {_input_line(schedule, topic)}"
        stores = [name for sub in ids for name in subs[sub].stores]
        if stores:
            yield f"    keeps {', '.join(stores)} in {schedule.options.store_engine}"
        for topic in dict.fromkeys(topic for sub in ids for topic in subs[sub].sink_topics):
            kind = "repartition topic" if plan.is_internal(topic) else "topic"
            yield f"    writes {kind} {topic}, {_count(plan.partitions.get(topic, 1), 'partition')}"


def _how(schedule: CallSchedule, number: int, tasks: Sequence[TaskId], ids: Sequence[int]) -> str:
    what = f"sub-topology {ids[0]}" if len(ids) == 1 else f"sub-topologies {', '.join(map(str, ids))}"
    how = "one process over all its partitions: a cycle" if number in schedule.cyclic else "each separately"
    if len(tasks) == 1:
        how = "one process"
    others = [other for wave in schedule.waves if number in wave for other in wave if other != number]
    beside = f", at the same time as stage {', '.join(map(str, others))}" if others else ""
    return f"{what}, {_count(len(tasks), 'task')}, {how}{beside}"


def _input_line(schedule: CallSchedule, topic: str) -> str:
    count = _count(schedule.plan.partitions.get(topic, 1), "partition")
    producers = schedule.plan.lanes.get(topic)
    if not producers:
        return f"{topic}, {count}"
    return f"{topic}, {count}: shuffle by key, {_count(len(producers), 'lane')} each, merged by place"


def _size(count: int) -> str:
    """Return a number of bytes in decimal units.

    >>> _size(999), _size(1_200_000), _size(4_600_000_000_000)
    ('999 B', '1.2 MB', '4.6 TB')
    """
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
