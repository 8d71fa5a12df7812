"""Runs of records that are taken by columns.

The state of an aggregate is read from its store as a run needs it, and is in the store again when the run ends, so that
all others see there what they would see if the task had taken the run by rows.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from attrs import define, field, frozen

from streams.core.blocks.records import TopicPartition
from streams.core.concurrency.threads import INTERRUPTIONS
from streams.runtime.tasks.columns.reader import MIN_ROWS, CodedKeys, LazyColumn
from streams.runtime.tasks.queues import Run
from streams.topology.columns.forms import FoldState
from streams.topology.columns.paths import ColumnPath

#: A run goes on by rows after this many parts in a row that were too short.
_SHORT_PARTS = 3
#: Returns the iterator whose rest tells the place in a run, and the function that takes the run.
Way: TypeAlias = Callable[[Run], tuple[Any, Callable[[], None]]]
#: Takes a run in a way, or by rows (None), and returns how many of its records were taken.
RunWith: TypeAlias = Callable[[Run, Way | None], int]


def may_trace() -> bool:
    """Whether the compiled loops are there, and nobody profiles what is called: functions are then called by rows."""
    if sys.getprofile() is not None:
        return False
    try:
        import streams.core.blocks.compiled_columns  # noqa: F401
    except ImportError:  # Installed without a C compiler.
        return False
    return True


class RunPlace:
    """How many rows of a run are left, as an iterator over them would tell."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def __length_hint__(self) -> int:
        return self.left


@define(eq=False)
class ColumnRuns:
    """Takes the runs of one source."""

    path: ColumnPath
    state: FoldState
    #: As in ``Outbox``: the timestamps of a run, with which the places of its results go.
    placed: Callable[[Sequence[int], Sequence[int]], Iterable[int]]
    _fold: Any = field(init=False)
    _make: Callable[..., Any] = field(init=False)

    def __attrs_post_init__(self) -> None:
        from streams.core.blocks.compiled_columns import ColumnFold

        self._make = self.path.maker()

        program = self.path.program
        self._fold = ColumnFold(
            program.code,
            program.constants,
            program.kinds,
            program.places,
            program.registers["size"],
            self.path.form.windows,
        )

    def takes(self, run: Run) -> bool:
        """Whether the run was read as columns, long enough, by functions that still mean what they did."""
        return (
            len(run) >= MIN_ROWS
            and type(run.keys) is CodedKeys
            and type(run.values) is LazyColumn
            and run.headers is None
            and self.path.is_bound
        )

    def take(self, run: Run, run_with: RunWith, stop: list[bool]) -> int:
        """Take a run: by columns, by rows what needs Python, and so on; return how many records were taken."""
        total = short = 0
        while True:
            count = run_with(run, self._by_columns)
            total += count
            rest = run.part(count)
            if not len(rest):
                return total
            short = short + 1 if count < MIN_ROWS else 0
            part = rest.part(0, 1) if short < _SHORT_PARTS and len(rest) > MIN_ROWS else rest
            total += run_with(part, None)
            if stop or len(part) == len(rest):
                return total
            run = rest.part(1)

    def _by_columns(self, run: Run) -> tuple[Any, Callable[[], None]]:
        place = RunPlace(len(run))
        return place, partial(self._take, run, place, iter(self.placed(run.timestamps, run.places)))

    def _take(self, run: Run, place: RunPlace, placed: Iterator[int]) -> None:
        """Take rows until one needs Python; ``place`` is then where it is.

        ``placed`` is moved to each row before its results are forwarded.
        """
        state = self.state
        updates: list[Any] | None = None if state.emit is None else []
        stop = self._run(run, updates)
        make = self._make
        keys = run.keys.by_code  # type: ignore[attr-defined]
        for code, start_ms, time_ms, parts in self._fold.changes():
            state.put(keys[code], make(*parts), time_ms, start_ms)
        if state.time is not None:
            state.time.ms = self._fold.stream_time_ms
        try:
            row = self._emit(run, place, placed, updates or ())
            for _ in range(stop - 1 - row):
                next(placed)
            place.left = len(run) - stop
        finally:
            # Rows after one whose result fails are not taken.
            late = [late_ms for row, late_ms in self._fold.late if row < len(run) - place.left]
            if late:
                state.late(late)

    def _emit(self, run: Run, place: RunPlace, placed: Iterator[int], updates: Iterable[Any]) -> int:
        """Forward the updates; return the row of the last one, -1 if there is none."""
        emit = self.state.emit
        make = self._make
        keys = run.keys.by_code  # type: ignore[attr-defined]
        row = -1
        for number, code, start_ms, time_ms, parts in updates:
            for _ in range(number - row):
                next(placed)
            row = number
            place.left = len(run) - number - 1
            assert emit is not None
            emit(keys[code], make(*parts), time_ms, start_ms)
        return row

    def _run(self, run: Run, updates: list[Any] | None) -> int:
        from streams.core.blocks.loops import int64

        state = self.state
        self._fold.forget()
        (codes,) = run.keys.numbers  # type: ignore[attr-defined]
        columns = run.values.numbers  # type: ignore[attr-defined]
        stream_time_ms = -1 if state.time is None else state.time.ms
        fetch = self._fetcher(run.keys.by_code)  # type: ignore[attr-defined]
        times = int64(run.timestamps)
        stop: int = self._fold.run(codes, times, columns, 0, len(run), stream_time_ms, state.end_ms(), fetch, updates)
        return stop

    def _fetcher(self, keys: list[Any]) -> Callable[[int, int], Any]:
        """Return the function that returns the state of a key, by its code, and window; see ``ColumnFold.run``."""
        fetch = self.state.fetch
        parts_of = self.path.parts_of
        is_reduction = self.path.program.first_at >= 0

        def fetched(code: int, start_ms: int) -> Any:
            pair = fetch(keys[code], start_ms)
            if pair is None and is_reduction:
                return None, None
            value, time_ms = (self._initial(), None) if pair is None else pair
            parts = None if value is None else parts_of(value)
            return None if parts is None else (parts, time_ms)

        return fetched

    def _initial(self) -> Any:
        """Return a new aggregate, or None if Python has to create it, and to say what is wrong with it."""
        try:
            return self.path.form.initializer()
        except INTERRUPTIONS:
            raise
        except Exception:
            return None


@frozen(eq=False)
class TaskColumns:
    """What takes the runs of a task by columns, by input partition."""

    _runs: Mapping[TopicPartition, ColumnRuns]

    def of(self, run: Run) -> ColumnRuns | None:
        """Return what takes a run by columns, or None if it is taken by rows."""
        runs = None if isinstance(run.queues, list) else self._runs.get(run.queues.partition)
        return runs if runs is not None and runs.takes(run) else None
