"""Progress of a run or replay, shown on standard error if this is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from streams.bounded import Progress


@contextmanager
def shown(title: str) -> Iterator[Callable[[str], None] | None]:
    """Yield a function that shows a line of progress, None if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Display
    from rich.progress import SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("[bold]{task.description}[/] {task.fields[state]}"))
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task(title, total=None, state="starting")
        yield lambda state: display.update(task, state=state)


def state_of(progress: Progress, elapsed_ms: int) -> str:
    """Return the state of a run as one line.

    >>> state_of(Progress(500, 1000, 20, 1_000, 500), elapsed_ms=250)
    '50%: 500 in, 20 out, 2,000/s, lag 500, stream time 1970-01-01 00:00:01'
    """
    rate = progress.records_in * 1000 // max(1, elapsed_ms)
    part = f"{progress.records_in * 100 // progress.records_total}%: " if progress.records_total else ""
    return (
        f"{part}{progress.records_in:,} in, {progress.records_out:,} out, {rate:,}/s, "
        f"lag {progress.lag:,}, stream time {time_text(progress.stream_time_ms)}"
    )


def time_text(time_ms: int) -> str:
    """Return an event time as text.

    >>> time_text(1_000), time_text(-1)
    ('1970-01-01 00:00:01', 'none yet')
    """
    if time_ms < 0:
        return "none yet"
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):  # The time is outside the range of ``datetime``.
        return f"{time_ms} ms"
