"""Progress of a replay: tasks write files in the folder of the replay, and the driver reads and reports them.

Files reach the driver from every executor, including through Spark Connect.  Progress files are only
informational: nothing depends on them, and they are not synced to disk.
"""

import json
from collections.abc import Callable, Sequence, Set
from typing import Any

from attrs import define, field, frozen

from streams.core.clock import Clock
from streams.replay.calls.work import PROGRESS_FOLDER, PROGRESS_INTERVAL_MS
from streams.replay.storage.places import Place


@frozen
class ReplayProgress:
    """The progress of a replay at one point in time.

    ``records_total`` is the number of records that the stages will read, as far as it is known: the records of a
    repartition topic are only counted when its upstream stage has ended.
    """

    slice: int
    slices: int
    stage: int
    stages: int
    tasks_done: int
    tasks: int
    records: int
    records_total: int
    elapsed_ms: int
    #: URL of the Spark UI, empty if there is none.
    link: str = ""
    #: About how much of the replay is done, from 0 to 1, as if each stage read as many records as there are rows.  It
    #: never falls.
    share: float = 0.0


#: Share of the reading of inputs before the number of stages is known.
_READING = 0.2
#: Called with the progress: when a list of calls starts, after each call, every 500 ms while calls run, and at the end.
Listener = Callable[[ReplayProgress], None]


def reported_records(root: Place) -> int:
    """Return the number of records that the running calls have read, according to their progress files."""
    folder = root.path / PROGRESS_FOLDER if root.is_local else None
    if folder is None or not folder.is_dir():
        return 0
    total = 0
    for path in folder.glob("*.json"):
        try:
            total += int(json.loads(path.read_text())["records"])
        except (OSError, ValueError, KeyError):
            continue  # The call has just ended, or the file is being replaced.
    return total


def title_of(session: Any, calls: Sequence[Any]) -> str:
    """Return a title for calls of a replay, such as ``shop: slice 3 of 50, totals``, for the jobs in Spark's UI."""
    name = session.config.application_id
    if not calls or session.schedule is None or calls[0].stage < 0:
        topics = dict.fromkeys(str(getattr(call, "topic", call.name)) for call in calls)
        return f"{name}: reading {', '.join(topics)}"
    ids = {task.task_id.sub_topology for call in calls for task in getattr(call, "tasks", ())}
    subs = [sub for sub in session.schedule.plan.subs if sub.id in ids]
    topics = dict.fromkeys(topic for sub in subs for topic in sub.sink_topics or sub.source_topics)
    folders = {slice_.folder for call in calls for slice_ in getattr(call, "slices", (call,))}
    return f"{name}: {_slices_text(session, folders)}{', '.join(topics)}"


def _slices_text(session: Any, folders: Set[str]) -> str:
    """Return which passes of a replay run, by their folders."""
    count = len(session.passes)
    numbers = [number for number, step in enumerate(session.passes, 1) if step.folder in folders]
    if count == 1 or not numbers:
        return ""
    borders = " to ".join(map(str, sorted({numbers[0], numbers[-1]})))
    return f"slice{'' if len(numbers) == 1 else 's'} {borders} of {count}, "


@define(eq=False)
class Reporter:
    """Reports the progress of a replay to a listener."""

    _session: Any
    _listener: Listener | None
    _clock: Clock
    #: URL of the Spark UI, empty if there is none.
    _link: str = ""
    _started_ms: int = 0
    _calls: list[Any] = field(factory=list)
    _calls_done: int = 0
    #: Number of records that finished calls have read.
    _records: int = 0
    _next_ms: int = 0
    #: Number of records before the current calls.
    _records_before: int = 0
    _share: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._started_ms = self._clock.monotonic_ms()

    def begin(self, calls: list[Any]) -> None:
        """Start to report on a new list of calls to the executor."""
        self._calls = calls
        self._calls_done = 0
        self._records_before = self._records
        self._report()

    def done(self, report: Any) -> None:
        """Add a finished call, and report the progress."""
        self._calls_done += 1
        self._records += report.records_in
        self._report()

    def look(self) -> None:
        """Report the progress of the running calls, at most every 500 ms."""
        now = self._clock.monotonic_ms()
        if now >= self._next_ms:
            self._next_ms = now + PROGRESS_INTERVAL_MS
            self._report()

    def finish(self) -> None:
        """Report that the replay has ended."""
        self._share = 1.0
        self._report()

    def _report(self) -> None:
        if self._listener is None:
            return
        schedule = self._session.schedule
        stage = self._calls[0].stage if self._calls else -1
        done = self._session.slices_done - self._session.slices_skipped
        slices = max(1, len(self._session.passes))
        stages = 0 if schedule is None else len(schedule.stages)
        rows = 0 if schedule is None else schedule.history.rows
        records = self._records + reported_records(self._session.root)
        if self._calls:
            ended = self._calls_done / len(self._calls)
            if stage < 0:
                share = _READING * ended
            elif slices == 1:
                part = max(ended, min(0.99, (records - self._records_before) / rows) if rows else 0)
                share = (1 + stage + part) / (1 + stages)
            else:  # Calls of several slices run at a time.
                share = min(0.99, records / (rows * (1 + stages))) if rows else 0
            self._share = max(self._share, share)
        self._listener(
            ReplayProgress(
                min(done + 1, max(1, len(self._session.passes))),
                slices,
                stage,
                stages,
                self._calls_done,
                len(self._calls),
                records,
                rows,
                self._clock.monotonic_ms() - self._started_ms,
                self._link,
                self._share,
            )
        )
