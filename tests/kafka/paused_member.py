"""An application for `streams run` whose processes begin paused: ``paused_member.py:CASE``.

A process goes on while the folder in the variable ``MEMBER_FOLDER`` has the file ``go``, and writes there what it has
done, in a file with its number.  With ``MEMBER_SIGNAL``, such as ``SIGKILL``, it sends this signal to itself in the
middle of the backlog.
"""

import json
import os
import signal
import threading
from datetime import timedelta
from itertools import count
from pathlib import Path

from streams import Streams, StreamsBuilder, TimeWindows
from tests.bench.live_and_file import HOUR, backlog, events, game, per_hour

__all__ = ["backlog", "game", "grouped", "peaks"]

FOLDER = "MEMBER_FOLDER"
SIGNAL = "MEMBER_SIGNAL"
#: Records that a process groups before the signal: fewer than any partition of the backlog has.
BEFORE_SIGNAL = 1_500
WINDOWS = TimeWindows.of(HOUR, grace=timedelta(minutes=10))

_numbers = count(1)
#: Never set: only its timeout ends a wait.
_LOOK = threading.Event()


def _group(_: str, value: int) -> str:
    if next(_numbers) == BEFORE_SIGNAL and SIGNAL in os.environ:
        os.kill(os.getpid(), signal.Signals[os.environ[SIGNAL]])
    return f"g{value % 7}"


def grouped(builder: StreamsBuilder) -> None:
    """The backlog, in a process that may end in the middle."""
    groups = builder.stream(events).group_by(_group, name="by")
    groups.windowed_by(WINDOWS).count("n").to_stream().to(per_hour)


def peaks(builder: StreamsBuilder) -> None:
    """The highest value of each group and hour: a record that is processed again changes nothing."""
    groups = builder.stream(events).group_by(_group, name="by")
    groups.windowed_by(WINDOWS).reduce(max, name="n").to_stream().to(per_hour)


def _report(streams: Streams, folder: Path) -> None:
    """Do what the folder says, and write what is so, until the process ends."""
    path = folder / f"{os.getpid()}.json"
    while True:
        if streams.is_paused is (folder / "go").exists():
            (streams.resume if streams.is_paused else streams.pause)()
        report = {
            "tasks": sorted(str(task) for thread in streams.instance.stream_threads for task in list(thread.tasks)),
            "is_paused": streams.is_paused,
            "processed": streams.metrics["process-total"],
            "dropped": streams.metrics["dropped-records-total"],
            "cut": streams.metrics.get("repartition-wait-ended-total"),
        }
        written = path.with_suffix(".new")
        written.write_text(json.dumps(report))
        written.replace(path)
        _LOOK.wait(0.02)


if FOLDER in os.environ:
    _start = Streams.start

    def _start_paused(self: Streams) -> None:
        self.pause()
        _start(self)
        threading.Thread(target=_report, args=(self, Path(os.environ[FOLDER])), daemon=True).start()

    Streams.start = _start_paused  # type: ignore[method-assign]
