"""Progress of a run or replay, shown on standard error if this is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streams.bounded import Progress
from streams.core.event_time.time_texts import span_text, time_text

#: Share from which the time that is left is estimated.
_ESTIMATED_FROM = 0.02


@contextmanager
def shown(title: str) -> Iterator[Callable[[str, float], None] | None]:
    """Yield a function that shows a line of progress and its share (0 to 1), None if standard error is no terminal.

    The time that has passed goes on, and with it the time that is left, while nothing is reported.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TextColumn
    from rich.progress import Progress as Display
    from rich.table import Column
    from rich.text import Text

    class Times(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(times_text(task.completed, task.elapsed or 0, task.fields["at_s"]))

    columns = (
        SpinnerColumn(),
        TextColumn("[bold]{task.description}[/]"),
        BarColumn(12),
        Times(table_column=Column(no_wrap=True)),
    )
    state_column = TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True, ratio=1))
    with Display(*columns, state_column, console=Console(stderr=True), transient=True, expand=True) as display:
        task = display.add_task(title, total=1.0, state="starting", at_s=0.0)

        def show(state: str, share: float) -> None:
            display.update(task, state=state, completed=share, at_s=display.tasks[0].elapsed or 0)

        yield show


def times_text(share: float, elapsed_s: float, at_s: float) -> str:
    """Return the share, the time that has passed, and the time that is left; the share was reached after ``at_s``.

    >>> times_text(0.25, 15.0, 10.0), times_text(0.0, 3.0, 3.0), times_text(0.5, 99.0, 10.0)
    ('25%, 15 s, about 25 s left', '0%, 3 s', '50%, 1 min 39 s')
    """
    text = f"{share:.0%}, {span_text(int(elapsed_s) * 1000)}"
    left_s = at_s / share - elapsed_s if share >= _ESTIMATED_FROM else 0
    return f"{text}, about {span_text(int(left_s) * 1000)} left" if left_s >= 1 else text


def state_of(progress: Progress, elapsed_ms: int) -> tuple[str, float]:
    """Return the state of a run as one line, and its share, which is 0 until all inputs are read.

    >>> state_of(Progress(500, 1000, 20, 1_000), elapsed_ms=250)
    ('500 in, 20 out, 2,000/s, at 1970-01-01T00:00:01Z', 0.5)
    """
    rate = progress.records_in * 1000 // max(1, elapsed_ms)
    at = "" if progress.stream_time_ms < 0 else f", at {time_text(progress.stream_time_ms)}"
    text = f"{progress.records_in:,} in, {progress.records_out:,} out, {rate:,}/s{at}"
    return text, progress.records_in / progress.records_total if progress.records_total else 0.0
