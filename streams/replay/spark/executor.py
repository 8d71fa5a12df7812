"""Executor on Spark: one task per call, and one job per list of calls, or several if the list is large.

The executor connects the session of a replay, which yields calls, to ``drive.run_work``, which runs in every
worker.  Calls are sent as rows (index, pickled call) with one partition each.  The application of the calls is
stored once, in the folder of the replay.  Reports return as rows; each task also writes its report to
the folder, so that progress can be shown in classic sessions and in Connect.
"""

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any
from uuid import uuid4

from attrs import define, field

from streams.replay.calls.failures import TaskFailure, failure_text
from streams.replay.calls.work import StageReport
from streams.replay.errors import ReplayError
from streams.replay.run.through_spark import SPARK_CALLS, SparkCall
from streams.replay.spark.ingest import Collect, run_through_spark
from streams.replay.spark.session import (
    SessionLease,
    cancel_jobs,
    is_local_master,
    job_settings,
    label_jobs,
    master_of,
    ship_code,
    ui_url,
)
from streams.replay.spark.shipping import build_digest
from streams.replay.spark.tables import item_frame, numbered_items, output_frame
from streams.replay.spark.worker import CallFiles, Task
from streams.replay.storage.places import Place

#: Interval between two checks of progress, in seconds: for local folders, and for remote folders, where each check
#: costs a request.
_LOOK_S = 0.25
_FAR_LOOK_S = 2.0
#: Maximum size of one job: Spark's driver holds several copies of it, and fails without a clear error.
_JOB_BYTES = 32 * 1024 * 1024
_JOB_CALLS = 2_000
#: Number of tasks of the job that checks whether executors and driver share the folder.
_CHECKS = 8


@define(eq=False)
class SparkExecutor:
    """Runs calls as tasks of Spark jobs; ``close`` ends a session that was started for it.

    Failed tasks are retried according to the Spark configuration: clusters make ``spark.task.maxFailures`` attempts
    (default 4), ``local[N]`` makes 1, and ``local[N,M]`` makes M.
    """

    session: Any
    root: Place
    _lease: SessionLease
    name: str = "spark"
    _is_checked: bool = field(default=False, init=False)

    @classmethod
    def of(cls, spark: Any, master: str | None, root: Place, *, with_ui: bool = False) -> "SparkExecutor":
        """Return an executor on the given session, the active session of this process, or a new session on ``master``.

        ``master`` is a Spark master (default ``local[*]``) or the address of a Connect server
        (``sc://HOST:PORT``).  ``with_ui`` enables the Spark UI of a new session.

        Raises:
            ConfigError: PySpark or Java is not installed, or another session is active.
            ReplayError: Spark cannot be reached or does not start.
        """
        lease = SessionLease.of(spark, master, with_ui=with_ui)
        return cls(lease.session, root, lease)

    @property
    def ui_url(self) -> str | None:
        """Address of the Spark UI, None if there is none."""
        return ui_url(self.session)

    def run(
        self,
        works: Sequence[Any],
        on_done: Callable[[StageReport], None],
        on_look: Callable[[], None] = lambda: None,
    ) -> list[StageReport]:
        """Run all calls, starting with the first; return their reports in order.

        Raises:
            TaskFailure: a call failed, including all retries; ``explained_failure`` makes the error readable.
            ReplayError: Spark itself failed.
        """
        if not works:
            return []
        if isinstance(works[0], SPARK_CALLS):
            return self._run_through_spark(works, on_done, on_look)
        files = CallFiles(self.root.child("progress", f"calls-{uuid4().hex[:12]}"))
        files.write_marker()
        try:
            self._check(files)
            reported: set[int] = set()

            def look() -> None:
                for index, report in files.reports(reported):
                    reported.add(index)
                    on_done(report)
                on_look()

            name = f"streams replay: stage {works[0].stage}, {len(works)} tasks"
            calls = numbered_items(works, files.packer())
            found = self._answers(name, calls, _calls(build_digest(), files.folder.uri), look)
            reports = [pickle.loads(found[index]) for index in range(len(works))]
            for index, report in enumerate(reports):
                if index not in reported:
                    on_done(report)
            return reports
        finally:
            files.forget()

    def _run_through_spark(
        self, works: Sequence[SparkCall], on_done: Callable[[StageReport], None], on_look: Callable[[], None]
    ) -> list[StageReport]:
        """Run calls that only Spark can perform."""
        self._check(None)
        reports: list[StageReport] = []
        for work in works:
            collect: Collect = lambda name, frame: self._collected(f"streams replay: {name}", frame, on_look)  # noqa: E731
            reports.append(run_through_spark(self.session, work, collect))
            on_done(reports[-1])
        return reports

    def table(self, session: Any, name: str) -> Any:
        """Return an output topic of a replay as a DataFrame; each action on it reads the files again."""
        self._check(None)
        return output_frame(self.session, session, name)

    def close(self) -> None:
        """End the session if a replay has started it and this executor is its last user."""
        self._lease.close()

    def _check(self, files: CallFiles | None) -> None:
        """Ship the code to other machines before the first job, and check that they share the folder.

        Raises:
            ReplayError: the machines do not share the folder, or have another build of the project.
        """
        if self._is_checked:
            return
        if not is_local_master(master_of(self.session)):
            ship_code(self.session)
            if files is not None:
                function = _folder_checks(build_digest(), files.folder.uri)
                checks = numbered_items(range(_CHECKS))
                found = self._answers("streams replay: check its folder", checks, function, lambda: None)
                for message in filter(None, found.values()):
                    raise ReplayError(message.decode())
                if files.answers() < _CHECKS:
                    raise ReplayError(
                        f"{self.root}: the driver cannot see files of Spark's executors there; choose a "
                        "folder that all machines share, such as one of a distributed file system"
                    )
        self._is_checked = files is not None or is_local_master(master_of(self.session))

    def _answers(
        self, name: str, items: Iterable[tuple[int, bytes]], function: Task, on_look: Callable[[], None]
    ) -> dict[int, bytes]:
        """Run one task per item; return the results by index."""
        found: dict[int, bytes] = {}
        for pack in _packs(items):

            def frame(pack: Sequence[tuple[int, bytes]] = pack) -> Any:
                return item_frame(self.session, pack).mapInArrow(function, "index int, report binary")

            found.update((row[0], bytes(row[1])) for row in self._collected(name, frame, on_look))
        return found

    def _collected(self, name: str, frame: Callable[[], Any], on_look: Callable[[], None]) -> list[Any]:
        """Create a DataFrame in a separate thread, run its job there, and return the rows."""
        tag = f"streams-replay-{uuid4().hex[:12]}"

        def collect() -> list[Any]:
            label_jobs(self.session, tag, name)
            with job_settings(self.session):
                return list(frame().collect())

        # The job has a separate thread, since job labels belong to a thread, and this thread reports progress and
        # handles interrupts.
        with ThreadPoolExecutor(1, thread_name_prefix="streams-replay-spark") as pool:
            future = pool.submit(collect)
            try:
                self._look_until_done(future, on_look)
            except BaseException:
                cancel_jobs(self.session, tag)
                raise
            failure = future.exception()
            if isinstance(failure, Exception):
                raise readable_failure(failure) from failure
            return future.result()

    def _look_until_done(self, future: "Future[Any]", on_look: Callable[[], None]) -> None:
        pause_s = _LOOK_S if self.root.is_local else _FAR_LOOK_S
        while not future.done():
            wait([future], pause_s)
            on_look()


def _packs(items: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield lists of (index, pickled item) up to the maximum size of a job; a larger item is alone in its list."""
    pack: list[tuple[int, bytes]] = []
    size = 0
    for numbered in items:
        size += len(numbered[1])
        if pack and (size > _JOB_BYTES or len(pack) >= _JOB_CALLS):
            yield pack
            pack, size = [], len(numbered[1])
        pack.append(numbered)
    if pack:
        yield pack


# Nested functions are pickled by value, and import the project when they run: a worker without the
# project's code then fails with an import error, not with an unpickling error.


def _calls(digest: str, folder: str) -> Task:
    def run(batches: Any) -> Any:
        from streams.replay.spark.worker import CallFiles, run_calls
        from streams.replay.storage.places import Place

        return run_calls(batches, digest, CallFiles(Place(folder)))

    return run


def _folder_checks(digest: str, folder: str) -> Task:
    def run(batches: Any) -> Any:
        from streams.replay.spark.worker import CallFiles, check_folder
        from streams.replay.storage.places import Place

        return check_folder(batches, digest, CallFiles(Place(folder)))

    return run


def readable_failure(error: Exception) -> Exception:
    """Return the error of a failed job without the tracebacks that Spark adds."""
    text = str(error)
    found = failure_text(text)
    if found is not None:
        return TaskFailure(found)
    if "Python worker exited unexpectedly" in text or "Python worker crashed" in text:
        return ReplayError(
            "a Python worker of Spark was killed in each attempt of its task, perhaps out of memory: give "
            "Spark fewer cores (local[2]) or its executors more spark.executor.memoryOverhead"
        )
    if "ExecutorLostFailure" in text:
        return ReplayError(
            "an executor of Spark was lost in each attempt of its task, perhaps out of memory: give executors "
            "more spark.executor.memoryOverhead or fewer cores"
        )
    if missing := re.search(r"(?:ModuleNotFoundError|ImportError): ([^\n]*)", text):
        return ReplayError(
            f"the Python workers of Spark cannot load the project: {missing[1]}; install the same packages there as "
            "here, or set PYSPARK_PYTHON to a Python that has them"
        )
    if "cancelled" in text.lower():
        return ReplayError("the job of the replay was cancelled in Spark; run the replay again with resume")
    if details := re.search(r'details = "([^"]*)"', text):
        return ReplayError(f"Spark Connect failed: {details[1]}; run the replay again with resume")
    return ReplayError(f"Spark failed: {_reason(text) or type(error).__name__}")


def _reason(text: str) -> str:
    """Return the first informative line of a Spark error."""
    lines = (line.removeprefix(": ") for line in text.splitlines() if not line.startswith("An error occurred while"))
    line = next((line for line in lines if line.strip()), "")
    line = re.sub(r"^.*most recent failure: Lost task [^:]*: ", "", line)
    return re.sub(r"\b(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ", "", line).strip()
