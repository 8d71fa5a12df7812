"""Executor in processes of this machine: no Spark, no Java.  For small history and tests."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from attrs import define, field

from streams.replay.calls import StageReport, packed
from streams.replay.errors import ReplayError
from streams.replay.run.drive import run_work

#: Calls that read no more than this together run in this process: starting others would take longer.
_SMALL_ROWS = 100_000
_SMALL_BYTES = 8 << 20
#: How often the driver looks for progress while calls run.
_LOOK_S = 0.25


def _run(work: Any) -> StageReport:
    try:
        return run_work(work)
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
    """Runs calls in up to ``processes`` processes; in this one if there is little to do.

    A context manager: the processes end with it.
    """

    processes: int = field(factory=lambda: os.cpu_count() or 1)
    name: str = "local"
    _pool: ProcessPoolExecutor | None = None

    def run(
        self,
        works: list[Any],
        on_done: Callable[[StageReport], None],
        on_look: Callable[[], None] = lambda: None,
    ) -> list[StageReport]:
        """Run all calls; return the answers in their order.

        Raises:
            StreamsError: one failed; what the others wrote is not used.
        """
        if self._pool is None and _are_small(works):
            reports = []
            for work in works:
                reports.append(_run(work))
                on_done(reports[-1])
            return reports
        if self._pool is None:
            # Started afresh, not forked: threads of this process and its locks stay here.
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
                "a process of the replay has ended by itself: it was killed, perhaps for want of memory, or the script "
                "calls replay() outside of `if __name__ == '__main__':`, which other processes run too"
            ) from error
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __enter__(self) -> "LocalExecutor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
