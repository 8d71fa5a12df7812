"""Opens what takes the runs of a task by columns."""

from collections.abc import Mapping

from streams.runtime.tasks.columns.check import CheckedColumnRuns
from streams.runtime.tasks.columns.reader import ColumnReader
from streams.runtime.tasks.columns.runs import ColumnRuns, TaskColumns
from streams.runtime.tasks.task import Task
from streams.topology.columns.paths import ColumnPath


def open_columns(task: Task, paths: Mapping[str, ColumnPath], *, is_checked: bool) -> None:
    """Let columns take the runs of sources with such paths; with ``is_checked``, both ways are compared."""
    if task.watch is not None or task.queues.recorder is not None:
        return
    kind = CheckedColumnRuns if is_checked else ColumnRuns
    runs = {}
    for partition, item in task.inputs.items():
        path = paths.get(item.source)
        state = None if path is None else path.form.bind(task.contexts[path.aggregate])
        if path is None or state is None:
            continue
        reader = task.readers[partition]
        reader.columns = ColumnReader.of(path, reader.value_serde, reader.extractor)
        if reader.columns is not None:
            runs[partition] = kind(path, state, task.outbox.placed)
    task.columns = TaskColumns(runs) if runs else None
