"""Repair of a replay whose history has late rows: which results are kept, and which are computed again.

A repair sorts late rows into the history, and continues from the newest stored state that is older than all late rows.
Outputs and states after this state are invalid, and are computed again.  The result is that of one replay over the
whole history.  The manifest of the inputs lists the repairs, and that of each slice has the number of repairs before
it.  So a repair takes effect atomically, when the manifest of the inputs is written.

Tasks that late rows do not reach keep their results.  Their states and outputs, together with the states from which the
other tasks continue, are written as a slice of their own, before the repair takes effect.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from attrs import frozen

from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.event_time.time_texts import time_text
from streams.replay.calls.state import Outputs, ReplayState, outputs_from_json, outputs_to_json, task_of
from streams.runtime import ApplicationPlan


@frozen
class Repair:
    """The extent of a repair: the results that are kept, and the results that are computed again.

    Times are epoch milliseconds.  ``kept_to_ms`` is the time of the newest record whose results are kept, -1 if all
    results are computed again.  ``because`` is the reason why a later state could not be used, or "".
    """

    #: The time of the oldest late row, or of the oldest change of a table.
    late_from_ms: int
    kept_to_ms: int
    #: Number of slices that are kept, and of slices that became void.
    slices_kept: int
    slices_void: int
    because: str = ""
    #: Numbers of tasks: those that are computed again, and all; None if all are computed again.
    tasks: tuple[int, int] | None = None
    #: Whether the oldest is a change of a table.
    is_change: bool = False

    def __str__(self) -> str:
        if self.slices_kept:
            text = f"repaired: all after {time_text(self.kept_to_ms)} is computed again"
        else:
            text = "repaired: the whole history is computed again"
        if self.tasks is not None:
            text += f", by {self.tasks[0]:,} of {self.tasks[1]:,} tasks"
        text += f", since the oldest {'change' if self.is_change else 'late row'} is of {time_text(self.late_from_ms)}"
        return f"{text} ({self.because})" if self.because else text

    def to_json(self) -> dict[str, Any]:
        """Return the repair as JSON-compatible values, with times as ISO 8601 text."""
        return {
            "late_from": time_text(self.late_from_ms),
            "kept_to": time_text(self.kept_to_ms) if self.kept_to_ms >= 0 else None,
            "slices_kept": self.slices_kept,
            "slices_void": self.slices_void,
            "because": self.because,
            "tasks": None if self.tasks is None else list(self.tasks),
        }


def is_valid(number: int, manifest: Mapping[str, Any], repairs: Sequence[int]) -> bool:
    """Return whether a slice is still valid after ``repairs``, which has the number of slices that each repair kept.

    >>> is_valid(3, {"repairs": 0}, []), is_valid(3, {"repairs": 0}, [3]), is_valid(3, {"repairs": 1}, [3])
    (True, False, True)
    >>> is_valid(3, {"repairs": 1}, [])  # The repair did not take effect.
    False
    """
    return manifest["repairs"] <= len(repairs) and all(number < count for count in repairs[manifest["repairs"] :])


def touched_tasks(plan: ApplicationPlan, late: Iterable[TopicPartition]) -> set[TaskId]:
    """Return the tasks whose results late rows of some source partitions may change.

    The records between tasks are not kept, so the tasks that write and read a topic are all touched if one of them is.
    """
    late = set(late)
    touched = {task for task, group in plan.groups.items() if not late.isdisjoint(group)}
    linked = []
    for topic, producers in plan.lanes.items():
        readers = {task for task, group in plan.groups.items() if any(at.topic == topic for at in group)}
        linked += [readers.union(producers)] if readers else []
    while reached := [tasks for tasks in linked if tasks & touched and not tasks <= touched]:
        touched |= set().union(*reached)
    return touched


def untouched(
    plan: ApplicationPlan,
    touched: Set[TaskId],
    base: ReplayState,
    base_cut: Sequence[Sequence[Any]] | None,
    void: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the manifest of a slice with the results that a repair keeps.

    ``base`` and ``base_cut`` are the state and the end of the slice from which the tasks ``touched`` continue; without
    such a slice ``base_cut`` is None.  ``void`` are the slices after it, whose results the other tasks keep.
    """
    newest = ReplayState.from_json(void[-1]["state"])
    outputs: Outputs = {}
    for manifest in void:
        for (at, producer), extents in outputs_from_json(manifest["outputs"]).items():
            if task_of(producer) not in touched:
                outputs.setdefault((at, producer), []).extend(extents)
    cut = cut_of(void[-1]["cut"])
    before = cut_of(base_cut or ())
    for task in touched:
        for logical in plan.groups[task]:
            if (at := plan.feed(logical)) in cut:
                cut[at] = before.get(at, base.positions.get(task, {}).get(at, 0))
    return {
        "kind": "slice",
        "name": "kept",
        "cut": [[*at, offset] for at, offset in sorted(cut.items())],
        "state": _combined(plan, touched, base, newest).to_json(),
        "outputs": outputs_to_json(outputs),
        "is_flushed": False,
    }


def _combined(plan: ApplicationPlan, touched: Set[TaskId], base: ReplayState, newest: ReplayState) -> ReplayState:
    """Return the state with the tasks ``touched`` of ``base``, and all other tasks of ``newest``."""
    state = ReplayState(examples=dict(base.examples))
    readers = {logical: task for task, group in plan.groups.items() for logical in group}
    tables = {plan.physical_topic(topic): not touched.isdisjoint(tasks) for topic, tasks in plan.lanes.items()}
    for part, is_base in ((base, True), (newest, False)):
        for name in ("positions", "checkpoints", "stores", "ends", "counters"):
            of_tasks = {task: value for task, value in getattr(part, name).items() if (task in touched) is is_base}
            getattr(state, name).update(of_tasks)
        for lane, extents in part.lanes.items():
            if (readers.get(plan.logical(lane)) in touched) is is_base:
                state.lanes[lane] = extents
        state.tables |= {name: table for name, table in part.tables.items() if tables.get(name, True) is is_base}
    # An example is kept if no record of the tasks that are computed again was dropped at its place.
    again = {(tally.place, tally.reason) for task in touched for tally in newest.counters.get(task, {})}
    state.examples |= {place: text for place, text in newest.examples.items() if place not in again}
    return state


def cut_of(rows: Iterable[Sequence[Any]]) -> dict[TopicPartition, int]:
    """Return the end of a slice, as offsets, from its manifest."""
    return {TopicPartition(topic, number): offset for topic, number, offset in rows}
