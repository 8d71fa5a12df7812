"""``streams run --workers N``: processes that share an application's work as members of its consumer group.

Each worker runs the same command, on a cluster or on the embedded broker of this process.  A killed worker is
replaced; a failed worker (an uncaught exception without a handler) ends the run with its exit status.
"""

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from attrs import define, field

from streams.cli.interrupts import INTERRUPTED
from streams.cli.lines import say
from streams.cli.worker_notices import WorkerNotices
from streams.core.clock import Clock, SystemClock

#: Timeout for the workers to commit and close.
_STOP_MS = 60_000
#: Maximum number of killed workers within ``_DEATHS_MS``; the run ends if there are more.
_MAX_DEATHS = 5
_DEATHS_MS = 60_000
_LOOK_S = 0.1


@define(eq=False)
class Workers:
    """The worker processes of one run; ``commands`` has the command line of each.

    The standard input of each worker is a pipe from this process.  When this process ends, even by SIGKILL,
    the pipe is closed and the worker stops.  If this process has a service manager, it is notified for all workers.
    """

    commands: Sequence[Sequence[str]]
    #: Variables that are added to the environment of each worker.
    variables: Mapping[str, str] = field(factory=dict, repr=False)
    clock: Clock = field(factory=SystemClock)
    _processes: "list[subprocess.Popen[bytes]]" = field(factory=list)
    _deaths_ms: "deque[int]" = field(factory=deque)
    _is_stopping: bool = False
    _notices: WorkerNotices = field(init=False)

    def run(self) -> int:
        """Start all workers, wait for a signal or until all have ended, and return the exit status."""
        with WorkerNotices.opened(len(self.commands), os.environ, self.clock) as self._notices, self._signals():
            try:
                self._processes = [self._started(number) for number in range(len(self.commands))]
                status = 0
                while not self._is_stopping:
                    exit_status = self._check_workers()
                    if exit_status is not None:
                        status = exit_status
                        break
            finally:
                ended = self._stop()
        return status or ended

    def _started(self, number: int) -> "subprocess.Popen[bytes]":
        # Workers have a new session: this process receives Ctrl-C and passes it on.
        environment = {**self._notices.environment(number), **self.variables}
        return subprocess.Popen(self.commands[number], stdin=subprocess.PIPE, start_new_session=True, env=environment)

    def _check_workers(self) -> int | None:
        """Check all workers once; return the exit status if the run has to end, else None."""
        with suppress(subprocess.TimeoutExpired):
            self._processes[0].wait(_LOOK_S)
        self._notices.look()
        for number, process in enumerate(self._processes):
            status = process.poll()
            if status is None or self._is_stopping:
                continue
            if status >= 0:
                say(f"worker {number + 1} has ended with status {status}: the run ends")
                return status or 1
            now = self.clock.monotonic_ms()
            self._deaths_ms.append(now)
            while self._deaths_ms and self._deaths_ms[0] < now - _DEATHS_MS:
                self._deaths_ms.popleft()
            what = f"worker {number + 1} was killed by {signal.Signals(-status).name}"
            if len(self._deaths_ms) > _MAX_DEATHS:
                say(f"{what}, the {len(self._deaths_ms)}th within a minute: the run ends")
                return 1
            say(f"{what}; another one takes its place")
            self._processes[number] = self._started(number)
        return None

    def _stop(self) -> int:
        """Terminate all workers, and kill workers that do not end in time; return 1 if a worker failed."""
        self._notices.stopping()
        running = [process for process in self._processes if process.poll() is None]
        for process in running:
            process.terminate()
        deadline_ms = self.clock.monotonic_ms() + _STOP_MS
        status = 0
        for process in running:
            try:
                process.wait(max(0, deadline_ms - self.clock.monotonic_ms()) / 1000)
            except subprocess.TimeoutExpired:
                say(f"process {process.pid} has not ended in {_STOP_MS // 1000} s and is killed")
                process.kill()
                process.wait()
            # A worker that has not installed its signal handlers yet is interrupted: it had nothing to commit.
            if process.returncode not in (0, -signal.SIGTERM, INTERRUPTED):
                status = 1
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        return status

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Within the ``with`` block, end the run on SIGINT or SIGTERM, and kill the workers on a second signal."""

        def on_signal(number: int, frame: FrameType | None) -> None:
            if self._is_stopping:
                for process in self._processes:
                    process.kill()
            self._is_stopping = True

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def end_with_parent(*, is_broker: bool) -> None:
    """Close this worker cleanly when its parent process has ended; at once if that ``is_broker`` as well.

    Then nothing can be committed, and closing would wait for the broker, with the state directory locked.
    """

    def watch() -> None:
        # Nothing is written to the pipe, so the read returns when the parent closes it.  sys.stdin is not used, since
        # the exit of the process would wait for its lock.
        while os.read(0, 1):
            pass
        if is_broker:
            os._exit(1)
        signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
