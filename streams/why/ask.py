"""Answers a ``Question`` from a trace: the outputs with their lineage, or the nodes where the key's records ended."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve

from streams.core.blocks.records import TaskId, Windowed, task_of
from streams.core.errors import UnknownTopicError
from streams.core.event_time.time_texts import time_text
from streams.core.nearest import meant, similar
from streams.runtime import PartitionQueue, Task, wait_of
from streams.topology import SinkNode, Topology
from streams.why.lineage import Lineage
from streams.why.parts import StoryPart, marks_of, merged, places_of_key, sightings_of, split_places
from streams.why.paths import Paths
from streams.why.question import Question, TimeSpan, duration, shown
from streams.why.reasons import Reasons
from streams.why.story import End, Fact, Story, step_text
from streams.why.trace import Step, Trace


def answer(
    question: Question,
    trace: Trace,
    topology: Topology,
    tasks: Mapping[TaskId, Task],
    notes: Iterable[End] | None = None,
) -> Story:
    """Return the story that answers a question.

    ``notes`` is the result of ``notes_of``, which is called by default.  If other threads own the tasks, it must be
    called on those threads, and the result passed as ``notes``.

    Raises:
        UnknownTopicError: the topology has no such node, or writes no such topic.
    """
    return _story_of(question, Paths(trace, topology, tasks), notes)[0]


def part_of(
    question: Question, trace: Trace, topology: Topology, tasks: Mapping[TaskId, Task], notes: Iterable[End]
) -> StoryPart:
    """Return the answer to a question from one instance, to be merged with the answers of other instances.

    Raises:
        UnknownTopicError: the topology has no such node, or writes no such topic.
    """
    paths = Paths(trace, topology, tasks)
    story, count = _story_of(question, paths, notes)
    reasons = Reasons(paths, Lineage(paths, question.limit))
    places = places_of_key(_source_steps(question, paths), reasons)
    written, read = marks_of(paths, reasons)
    sightings = sightings_of(paths, reasons)
    return StoryPart(story, count, written=written, read=read, sightings=sightings, places=places)


def one_story(question: Question, topology: Topology, parts: Sequence[StoryPart]) -> Story:
    """Merge the parts of several instances of an application into one story."""
    what = _subject(question, topology)
    return merged(parts, shown(question.key), lambda count: _title(question, what, count))


def _story_of(question: Question, paths: Paths, notes: Iterable[End] | None) -> tuple[Story, int]:
    """Return the story that answers a question, and the number of outputs found."""
    trace, topology = paths.trace, paths.topology
    targets = targets_of(question, topology)
    lineage = Lineage(paths, question.limit)
    reached = [
        step
        for step in paths.at(targets, lambda step: question.follows(_bare(step.key)))
        if not step.drops and step.error is None
    ]
    timely = [step for step in reached if _is_at(question, step.key, step.timestamp_ms)]
    title = _title(question, _subject(question, topology), len(timely))
    reasons = Reasons(paths, lineage)
    notes = list(notes_of(question, trace, paths.tasks) if notes is None else notes)
    if timely:
        last = timely[-1]
        window = _of_window(question, last)
        others = [] if window is None else map(reasons.of, _ends(window, paths, targets))
        others = tuple(end for end in others if not end.is_row)
        return Story(title, (_output(lineage, last),), others, tuple(notes), question.limit), len(timely)
    ends = _distinct(map(reasons.of, _ends(question, paths, targets)))
    notes += split_places(places_of_key(_source_steps(question, paths), reasons), shown(question.key))
    if question.at is not None and reached:
        near = min(reached, key=lambda step: abs(step.timestamp_ms - question.at.from_ms))  # type: ignore[union-attr]
        text = f"{len(reached):,} at other times; the nearest is {step_text(near, is_counted=paths.is_counted(near))}"
        notes.insert(0, End("not at that time", near.node, text))
    if not ends and not reached:
        notes.append(_nothing(question, trace, paths, targets))
    return Story(title, (), ends, tuple(notes), question.limit), 0


def _source_steps(question: Question, paths: Paths) -> Iterator[Step]:
    """Yield the first step of each source record of the key."""
    for episode in paths.trace.traced:
        if episode.place is not None and episode.steps and question.follows(_bare(episode.steps[0].key)):
            yield episode.steps[0]


def targets_of(question: Question, topology: Topology) -> list[str]:
    """Return the nodes whose records are the outputs of a question.

    Raises:
        UnknownTopicError: the topology has no such node, or writes no such topic.
    """
    if question.node is not None:
        if question.node not in topology.nodes:
            raise UnknownTopicError(
                f"the topology has no node {question.node!r}; {meant(question.node, topology.nodes)}"
            )
        return [question.node]
    sinks = [node for node in topology.nodes.values() if isinstance(node, SinkNode)]
    if question.topic is not None:
        names = [node.name for node in sinks if node.topic == question.topic]
        # A sink that chooses a topic for each record may have written it.
        names = names or [node.name for node in sinks if node.topic_for is not None]
        if not names:
            topics = [node.topic for node in sinks if node.topic]
            raise UnknownTopicError(f"the topology writes no topic {question.topic!r}; {meant(question.topic, topics)}")
        return names
    return [node.name for node in sinks if node.topic not in topology.internal_topics]


def _of_window(question: Question, step: Step) -> Question | None:
    """Return the question, restricted to the window of an output, or None if the output's key has no window."""
    if type(step.key) is not Windowed:
        return None
    window = step.key.window
    return evolve(question, at=TimeSpan(window.start_ms, window.end_ms + 1, ""))


def _topics(targets: Iterable[str], topology: Topology) -> list[str]:
    return list(dict.fromkeys(str(getattr(topology.nodes[name], "topic", None) or name) for name in targets))


def _bare(key: Any) -> Any:
    return key.key if type(key) is Windowed else key


def _is_at(question: Question, key: Any, timestamp_ms: int) -> bool:
    """Return whether an output is at the time of the question; for a windowed key, whether the window overlaps it."""
    if question.at is None:
        return True
    if type(key) is Windowed:
        return bool(key.window.start_ms < question.at.to_ms and question.at.from_ms <= key.window.end_ms)
    return question.at.has(timestamp_ms)


def _subject(question: Question, topology: Topology) -> str:
    """Return the subject of a question as text: the node, or the topics."""
    return question.node if question.node is not None else ", ".join(_topics(targets_of(question, topology), topology))


def _title(question: Question, what: str, count: int) -> str:
    when = "" if question.at is None else f" at {question.at.text}"
    of_key = f"of key {shown(question.key)}{when}"
    if count < 2:
        return f"{what}: {'1' if count else 'no'} record {of_key}"
    return f"{what}: {count:,} records {of_key}; the last is explained"


def _output(lineage: Lineage, step: Step) -> Fact:
    cause = lineage.of(step)
    tombstone = " (a tombstone)" if step.value is None else ""
    return lineage.result(step, cause, tombstone)


def _ends(question: Question, paths: Paths, targets: Collection[str]) -> list[Step]:
    """Return the last step upstream of the targets for each record of the key, in order.

    Records that result from a record of the key are included even if they have another key. Records that only mention
    the key in their value are included if no record of the key results from them.
    """
    upstream = paths.upstream(targets)
    ends: list[Step] = []
    for episode in paths.trace.traced:
        of_key: dict[int, bool] = {}
        for step in episode.steps:
            came_of = (step.parent is not None and of_key.get(step.parent.step.number, False)) or any(
                question.follows(_bare(cause.key)) for cause in step.made_of
            )
            of_key[step.number] = came_of or question.follows(_bare(step.key))
        is_mentioned = not any(of_key.values())
        ends += (
            step
            for step in episode.steps
            if (is_mentioned or of_key[step.number])
            and step.node in upstream
            and _is_near(question, step)
            and _has_ended(step, paths, upstream)
            and (step.node not in targets or step.drops or step.error is not None)
        )
    return sorted(ends, key=lambda step: step.number)


def _has_ended(step: Step, paths: Paths, upstream: Collection[str]) -> bool:
    if step.cause != "record":
        return False
    if step.error is not None or (step.drops and not step.outputs):
        return True
    return not any(True for _ in paths.following(step, upstream))


def _distinct(ends: Iterable[End]) -> tuple[End, ...]:
    """Return the ends of records, without those of buffered updates that a later update of the same row has replaced.

    Rows that were deleted while they were buffered, such as merged sessions, are left out if others remain.
    """
    by_row: dict[Any, End] = {}
    for number, end in enumerate(ends):
        key = (end.node, repr(end.record.key)) if end.is_row and end.record is not None else number
        by_row.pop(key, None)
        by_row[key] = end
    live = [end for end in by_row.values() if not (end.is_row and end.reason == "tombstone")]
    return tuple(live or by_row.values())


def _is_near(question: Question, step: Step) -> bool:
    if question.at is None:
        return True
    if type(step.key) is Windowed:
        return _is_at(question, step.key, step.timestamp_ms)
    return question.at.has(step.timestamp_ms)


def notes_of(question: Question, trace: Trace, tasks: Mapping[TaskId, Task]) -> tuple[End, ...]:
    """Return the notes about the application: records that are buffered, unread or unreadable, and failures."""
    notes: list[End] = []
    for task_id, node, reason, example in trace.unreadable[-question.limit :]:
        text = (
            f"a record at source {node} of task {task_id} has no known key: {reason}{f': {example}' if example else ''}"
        )
        notes.append(End("unreadable", node, text))
    for task_id, task in sorted(tasks.items()):
        notes += _waiting(question, task_id, task)
    if trace.failure is not None:
        notes.append(End("failed", "", f"the run ended before all was read: {trace.failure}"))
    if trace.is_full:
        notes.append(End("limit", "", f"this is of the first {trace.limit:,} records of the key; there were more"))
    return tuple(notes)


def _waiting(question: Question, task_id: TaskId, task: Task) -> Iterator[End]:
    empty = [
        queue
        for queue in task.queues
        if not queue.size and (queue.idle_deadline_ms is not None or not queue.is_drained)
    ]
    for queue in task.queues:
        item = task.inputs[queue.partition]
        where = f"{item.topic}-{item.number}"
        held = [
            offset
            for index, batch in enumerate(queue.batches)
            for key, offset in list(zip(batch.keys, batch.offsets, strict=True))[queue.start if index == 0 else 0 :]
            if question.follows(key)
        ]
        if held and empty:
            awaited = ", ".join(
                f"{task.inputs[each.partition].topic}-{task.inputs[each.partition].number}" for each in empty
            )
            yield End(
                "waiting for input",
                item.source,
                f"{where} offset {held[0]} waits in task {task_id}, as input {awaited} has no record yet "
                f"({queue.size:,} records wait)",
                {"offset": held[0], "records": queue.size},
            )
        in_lanes = list(_in_lanes(question, task_id, task, queue, where))
        yield from in_lanes
        behind = queue.lag if not (held and empty) else queue.lag - queue.size
        if queue.lanes is not None and any(note.reason == "waiting for task" for note in in_lanes):
            behind -= queue.lanes.size
        if behind > 0:
            yield End(
                "not yet read",
                item.source,
                f"task {task_id} has yet to process {behind:,} records of {where} (position {queue.position}, end "
                f"{queue.end_offset})",
                {"lag": behind, "position": queue.position or 0, "end": queue.end_offset or 0},
            )


def _in_lanes(question: Question, task_id: TaskId, task: Task, queue: PartitionQueue, where: str) -> Iterator[End]:
    """Return notes about records that wait for a task upstream, and about tasks that were not waited for any longer."""
    if queue.lanes is None:
        return
    source = task.inputs[queue.partition].source
    wait = wait_of(task)
    held = [offset for key, offset in queue.lanes.uncertain() if question.follows(key)]
    if held and wait is not None and wait.partition == queue.partition and wait.task_id is not None:
        yield End(
            "waiting for task",
            source,
            f"{where} offset {min(held)} waits in task {task_id}, as task {wait.task_id} may write earlier records; it "
            f"has been waited for {duration(wait.waited_ms)} ({queue.lanes.size:,} records wait)",
            {"offset": min(held), "records": queue.lanes.size, "waited_ms": wait.waited_ms},
        )
    lanes = sorted(queue.lanes.ever_passed_over)
    if lanes:
        yield End(
            "not waited for",
            source,
            f"task {task_id} read {where} on without records of task {', '.join(map(str, map(task_of, lanes)))}, which "
            "did not move (repartition_patience_ms, or patience of repartition()): they may have been late",
            {"tasks": len(lanes)},
        )


def _nothing(question: Question, trace: Trace, paths: Paths, targets: Collection[str]) -> End:
    """Return the note for a key without records: the nearest time, the new key of its records, or similar keys."""
    read = ", ".join(f"{topic}-{number} ({count:,})" for (topic, number), count in sorted(trace.read.items()))
    when = "" if question.at is None else f" at {question.at.text}"
    seen = [step for episode in trace.traced for step in episode.steps if step.cause == "record"]
    if seen and question.at is not None:
        at = question.at
        near = min(seen, key=lambda step: abs(step.timestamp_ms - at.from_ms))
        apart_ms = near.timestamp_ms - at.from_ms
        text = (
            f"no record of the key came{when}; the nearest, {near.episode.place}, is of "
            f"{time_text(near.timestamp_ms)}, {duration(abs(apart_ms))} {'later' if apart_ms > 0 else 'earlier'}"
        )
        return End("not at that time", near.node, text, {"apart_ms": apart_ms})
    rekeyed = [
        (step.node, output.key)
        for step in seen
        if question.follows(_bare(step.key))
        for output in step.outputs
        if output.key is not None and not question.follows(_bare(output.key))
    ]
    if rekeyed:
        node = rekeyed[0][0]
        keys = list(dict.fromkeys(shown(key) for _, key in rekeyed))
        listed = ", ".join(keys[: question.limit]) + (", ..." if len(keys) > question.limit else "")
        text = f"records of key {shown(question.key)} came, and went on from node {node} under other keys: {listed}"
        return End("another key", node, text, {"keys": len(keys)})
    close = similar(str(question.key), trace.keys.keys() - {str(question.key)}, most=3)
    hint = f"; similar keys: {', '.join(map(repr, close))}" if close else ""
    return End("no such key", "", f"no record of key {shown(question.key)} was read from {read or 'any input'}{hint}")
