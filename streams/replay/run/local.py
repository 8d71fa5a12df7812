"""An executor that uses processes of this machine, without Spark or Java, for small histories and tests."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from attrs import define, field

from streams.replay.calls.failures import packed
from streams.replay.calls.work import StageReport
from streams.replay.errors import ReplayError
from streams.replay.run.drive import run_work
from streams.runtime import TaskWatch

#: Calls that together read at most this much run in this process, since starting processes would take longer.
_SMALL_ROWS = 100_000
_SMALL_BYTES = 8 << 20
#: Interval between two reports of progress, in seconds.
_LOOK_S = 0.25


def _run(work: Any, watch: TaskWatch | None = None) -> StageReport:
    try:
        return run_work(work, watch=watch)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise packed(work, error) from error


def _are_small(works: list[Any]) -> bool:
    rows = sum(work.size[0] for work in works)
    size = sum(work.size[1] for work in works)
    return bool(rows <= _SMALL_ROWS and size <= _SMALL_BYTES)


@define(eq=False)
class LocalExecutor:
    """Executes the calls of a replay in up to ``processes`` processes (default: one per core).

    Small calls are executed in this process.

    With ``watch``, which observes the tasks, all calls are executed in this process.
    """

    processes: int = field(factory=lambda: os.cpu_count() or 1)
    name: str = "local"
    watch: TaskWatch | None = None
    _pool: ProcessPoolExecutor | None = None

    def run(
        self,
        works: list[Any],
        on_done: Callable[[StageReport], None] = lambda report: None,
        on_look: Callable[[], None] = lambda: None,
    ) -> list[StageReport]:
        """Execute all calls, and return their reports in the order of ``works``.

        Raises:
            StreamsError: a call failed; the results of the other calls are discarded.
        """
        if self.watch is not None or (self._pool is None and _are_small(works)):
            reports = []
            for work in works:
                reports.append(_run(work, self.watch))
                on_done(reports[-1])
            return reports
        if self._pool is None:
            # Processes are spawned: forks would inherit locks, but not the threads that hold them.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.processes, mp_context=context)
        futures: list[Future[StageReport]] = [self._pool.submit(_run, work) for work in works]
        try:
            open_futures = set(futures)
            while open_futures:
                done, open_futures = wait(open_futures, _LOOK_S, FIRST_COMPLETED)
                for future in done:
                    on_done(future.result())
                on_look()
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            self._pool = None
            raise ReplayError(
                "a process of the replay has died: it was killed, perhaps out of memory, or the script "
                "calls replay() outside of `if __name__ == '__main__':`, which its processes run too"
            ) from error
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """Stop the worker processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
