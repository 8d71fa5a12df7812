"""Processes that judge cases, each case with a limit of processor time.

A case that hangs or takes its process down costs that process and nothing else.  Results come
in the order of the cases, whichever process was first.  The limit is processor time: how long a
case takes by the clock depends on what else the machine does.
"""

import logging
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from queue import SimpleQueue

from attrs import define

from tests.conformance.cases import Case, judge
from tests.waiting import WATCHDOG_MS

#: Most processor time that one case may take.
LIMIT_SECONDS = 10.0
#: Time by the clock after which a process that neither answers nor ends is given up.
_WATCHDOG_SECONDS = WATCHDOG_MS / 1000

# Children of the caller itself would inherit the locks of whatever threads it has.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.conformance.cases"])


def _work(connection: Connection, limit_seconds: float) -> None:
    """Judge the cases that come, until there are no more; SIGPROF ends a process whose case takes too long."""
    # Nothing but the runner's own lines goes to standard output, not even what a case prints.
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    connection.send("ready")
    while True:
        try:
            line, is_vector = connection.recv()
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, limit_seconds)
        result = judge(line, is_vector)
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send(result)


@define(eq=False)
class _Worker:
    """One process, made on use and made again when a case has cost it."""

    limit_seconds: float
    _process: multiprocessing.process.BaseProcess | None = None
    _connection: Connection | None = None

    def judge(self, case: Case) -> str | None:
        """Return why a case failed, None if it did not."""
        connection = self._connection or self._start()
        try:
            connection.send((case.line, case.is_vector))
            if connection.poll(_WATCHDOG_SECONDS):
                result: str | None = connection.recv()
                return result
        except (EOFError, OSError):
            if self._ended() == -signal.SIGPROF:
                return f"hangs: no result after {self.limit_seconds:g} s of processor time"
            return "the process ended while it ran"
        self.stop()
        return f"hangs: no result after {_WATCHDOG_SECONDS:g} s"

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._ended()

    def _ended(self) -> int | None:
        """Return the exit code of the process, which has ended or will at once."""
        assert self._process is not None
        assert self._connection is not None
        self._process.join()
        self._connection.close()
        code = self._process.exitcode
        self._process = self._connection = None
        return code

    def _start(self) -> Connection:
        ours, theirs = _processes.Pipe()
        self._process = _processes.Process(target=_work, args=(theirs, self.limit_seconds), daemon=True)
        self._process.start()
        self._connection = ours
        theirs.close()
        if not ours.poll(_WATCHDOG_SECONDS):
            self.stop()
            raise RuntimeError(f"a process for cases was not ready after {_WATCHDOG_SECONDS:g} s")
        ours.recv()
        return ours


def judge_all(
    cases: Sequence[Case], jobs: int, *, limit_seconds: float = LIMIT_SECONDS
) -> Iterator[tuple[Case, str | None]]:
    """Yield each case and why it failed (None if it did not), in order, with so many processes."""
    workers = [_Worker(limit_seconds) for _ in range(max(1, min(jobs, len(cases))))]
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def run(case: Case) -> str | None:
        worker = idle.get()
        try:
            return worker.judge(case)
        finally:
            idle.put(worker)

    threads = ThreadPoolExecutor(len(workers))
    try:
        yield from zip(cases, threads.map(run, cases), strict=True)
    finally:
        threads.shutdown(cancel_futures=True)
        for worker in workers:
            worker.stop()
