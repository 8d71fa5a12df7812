"""Runs of records that are taken by rows and by columns, for the setting ``columns="check"``."""

from typing import Any, TypeAlias

from attrs import define

from streams.core.errors import ProcessingError
from streams.core.event_time.windows import TimeWindows
from streams.runtime.tasks.columns.runs import ColumnRuns, RunWith
from streams.runtime.tasks.queues import Run
from streams.topology.columns.symbols import constant_key

#: What a store has for a key and window: the parts of the state and its time, or None.
_Entry: TypeAlias = tuple[tuple[Any, ...], int] | None


@define(eq=False)
class CheckedColumnRuns(ColumnRuns):
    """Takes the runs of one source by rows, and compares what each record does with what columns make of it."""

    def take(self, run: Run, run_with: RunWith, stop: list[bool]) -> int:
        """Take a run record by record.

        Raises:
            ProcessingError: a record has another effect by columns.
        """
        total = 0
        while len(run):
            count = self._compared(run, run_with, stop)
            if count < len(run) and not stop:
                count += run_with(run.part(count, count + 1), None)
            total += count
            if stop:
                break
            run = run.part(count)
        return total

    def _compared(self, run: Run, run_with: RunWith, stop: list[bool]) -> int:
        """Take the records that columns take; return how many."""
        state = self.state
        updates: list[Any] = []
        stop_at = self._run(run, updates)
        if not stop_at:
            return 0
        end_ms = self._fold.stream_time_ms
        late = len(self._fold.late) + state.late_count()
        of_row: dict[int, dict[tuple[int, int], _Entry]] = {}
        for number, code, start_ms, time_ms, parts in updates:
            of_row.setdefault(number, {})[code, start_ms] = (parts, time_ms)
        entries = {slot: self._entry(run, slot) for number in range(stop_at) for slot in self._slots(run, number)}
        for number in range(stop_at):
            own = of_row.get(number, {})
            entries |= own
            run_with(run.part(number, number + 1), None)
            for slot in self._slots(run, number):
                entry = self._entry(run, slot)
                # Windows that are closed may have expired.
                if _exact(entry) != _exact(entries[slot]) and (slot in own or entry is not None):
                    raise self._difference(run, number, f"window {slot[1]}", entries[slot], entry)
            if stop:
                return number + 1
        if state.time is not None and state.time.ms != end_ms:
            raise self._difference(run, stop_at - 1, "stream time", end_ms, state.time.ms)
        if state.late_count() != late:
            raise self._difference(run, stop_at - 1, "late records", late, state.late_count())
        return stop_at

    def _slots(self, run: Run, number: int) -> list[tuple[int, int]]:
        """Return the key and the windows of a record."""
        code = run.keys.numbers[0][number]  # type: ignore[attr-defined]
        windows = self.path.form.windows
        if not any(windows):
            return [(code, 0)]
        return [(code, start_ms) for start_ms in TimeWindows(*windows).windows_for(run.timestamps[number])]

    def _entry(self, run: Run, slot: tuple[int, int]) -> _Entry:
        pair = self.state.fetch(run.keys.by_code[slot[0]], slot[1])  # type: ignore[attr-defined]
        return None if pair is None else (self.path.parts_of(pair[0]) or (), pair[1])

    def _difference(self, run: Run, number: int, what: str, by_columns: Any, by_rows: Any) -> ProcessingError:
        queue = run.queue_of(number).partition
        node = self.path.aggregate
        return ProcessingError(
            f"{queue} at offset {run.offsets[number]}, node {node!r}, {what}: columns give {by_columns!r}, and rows "
            f"give {by_rows!r}; set columns='off', and report this",
            node=node,
            topic=queue.topic,
            partition=queue.partition,
            offset=run.offsets[number],
        )


def _exact(entry: _Entry) -> Any:
    """Return an entry such that 0.0 and -0.0 differ."""
    return None if entry is None else ([constant_key(part) for part in entry[0]], entry[1])
