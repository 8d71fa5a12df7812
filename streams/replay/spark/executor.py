"""The Spark executor: one Spark task per call, and one job per list of calls, or several if the list is large.

The executor connects the session of a replay, which yields calls, to ``drive.run_work``, which runs in every
worker.  The calls of a job are in one file in the replay's folder; each Spark task gets a number, and reads its call
from the file.  The application of the calls is stored once, in another file.  Reports are returned as rows; each task
also writes its report to the folder, so that progress can be shown in classic sessions and in Connect.
"""

import logging
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any
from uuid import uuid4

from attrs import define, field

from streams.replay.calls.failures import TaskFailure, failure_text
from streams.replay.calls.memory import CallMemory, ExecutorMemory
from streams.replay.calls.outputs import OutputPart
from streams.replay.calls.work import ChainWork, StageReport, StageWork
from streams.replay.errors import ReplayError
from streams.replay.run.commits import Mode, Run
from streams.replay.run.session import ReplaySession
from streams.replay.run.through_spark import SPARK_CALLS, SparkCall
from streams.replay.spark.frames import Collect
from streams.replay.spark.output_tables import output_frame, task_frame, write_table
from streams.replay.spark.rows import run_through_spark
from streams.replay.spark.sessions import (
    SessionLease,
    cancel_jobs,
    label_jobs,
    master_of,
    runs_here,
    ship_code,
    ui_url,
)
from streams.replay.spark.tasks import CallName, Task, worker_task
from streams.replay.spark.worker import CallFiles, Items, check_folder, run_calls
from streams.replay.storage.places import Place
from streams.values import PartitionColumn

logger = logging.getLogger(__name__)

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
    """Executes the calls of a replay as tasks of Spark jobs; ``close`` ends a session that was started for it.

    Failed tasks are retried according to the Spark configuration: clusters make ``spark.task.maxFailures`` attempts
    (default 4), ``local[N]`` makes 1, and ``local[N,M]`` makes M.
    """

    session: Any
    root: Place
    _lease: SessionLease
    name: str = "spark"
    #: The description of the next jobs in Spark's UI.
    title: str = ""
    _is_checked: bool = field(default=False, init=False)
    _is_memory_told: bool = field(default=False, init=False)

    @classmethod
    def of(
        cls,
        spark: Any,
        master: str | None,
        root: Place,
        *,
        with_ui: bool = False,
        conf: Mapping[str, str] | None = None,
    ) -> "SparkExecutor":
        """Return an executor on the given session, the active session of this process, or a new session on ``master``.

        ``master`` is a Spark master (default ``local[*]``) or the address of a Connect server
        (``sc://HOST:PORT``).  ``with_ui`` enables the Spark UI of a new session, and ``conf`` are its settings.

        Raises:
            ConfigError: PySpark or Java is not installed, or another session is active.
            ReplayError: Spark cannot be reached or does not start.
        """
        lease = SessionLease.of(spark, master, with_ui=with_ui, conf=conf)
        return cls(lease.session, root, lease)

    @property
    def ui_url(self) -> str | None:
        """The address of the Spark UI, or None if there is none."""
        return ui_url(self.session)

    def run(
        self,
        works: Sequence[Any],
        on_done: Callable[[StageReport], None] = lambda report: None,
        on_look: Callable[[], None] = lambda: None,
    ) -> list[StageReport]:
        """Execute all calls, starting with the first, and return their reports in the order of ``works``.

        Raises:
            TaskFailure: a call failed, including all retries; ``explained_failure`` makes the error readable.
            ReplayError: Spark itself failed.
        """
        if not works:
            return []
        self._tell_memory(works[0])
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

            answers: dict[int, bytes] = {}
            for pack in _packs(map(files.packer(), works)):
                items = Items.write(files.folder, pack, len(answers))
                title = f"{self.title or 'streams replay'}, {len(works)} tasks"
                answers |= self._answers(title, len(items), worker_task(CallName(title), run_calls, files, items), look)
            reports = [pickle.loads(answers[index]) for index in range(len(works))]
            for index, report in enumerate(reports):
                if index not in reported:
                    on_done(report)
            return reports
        finally:
            files.forget()

    def _run_through_spark(
        self, works: Sequence[SparkCall], on_done: Callable[[StageReport], None], on_look: Callable[[], None]
    ) -> list[StageReport]:
        """Execute calls that only Spark can execute, and return their reports."""
        self._check(None)
        reports: list[StageReport] = []
        for work in works:
            title = self.title or "streams replay"
            collect: Collect = lambda name, frame: self._collected(f"{title}: {name}", frame, on_look)  # noqa: B023, E731
            reports.append(run_through_spark(self.session, work, collect))
            on_done(reports[-1])
        return reports

    def _tell_memory(self, work: Any) -> None:
        """Log a warning, before the first stage only, if the Python workers have less memory than calls may need."""
        if self._is_memory_told or not isinstance(work, StageWork | ChainWork):
            return
        self._is_memory_told = True
        memory = ExecutorMemory.of(master_of(self.session), lambda name: self.session.conf.get(name, ""))
        if memory is None:
            return
        plan = work.application.plan()
        has_stores = any(plan.stores_of(task) for task in plan.groups)
        if shortage := memory.shortage(CallMemory.of(plan.config, has_stores=has_stores)):
            logger.warning("%s", shortage)

    def frame(self, session: ReplaySession, name: str, parts: Sequence[OutputPart], *, as_table: bool = False) -> Any:
        """Return partitions of an output topic as a DataFrame; each action on it reads the files again."""
        self._check(None)
        return output_frame(self.session, session, name, parts, as_table=as_table)

    def write_table(
        self, session: ReplaySession, topic: str, name: str, columns: Sequence[PartitionColumn], mode: Mode, run: Run
    ) -> int:
        """Write an output topic to a table of the session's catalog, using ``run``; return the number of records."""
        return write_table(self.session, session, topic, name, columns, mode, run)

    def close(self) -> None:
        """End the session if a replay has started it and this executor is its last user."""
        self._lease.close()

    def _check(self, files: CallFiles | None) -> None:
        """Ship the code to other machines before the first job, and check that they share the folder.

        Raises:
            ReplayError: the machines do not share the folder of the replay, or have another build of the project.
        """
        if self._is_checked:
            return
        if not runs_here(self.session):
            ship_code(self.session)
            if files is not None:
                function = worker_task(CallName("check"), check_folder, files)
                answers = self._answers("streams replay: check its folder", _CHECKS, function, lambda: None)
                for message in filter(None, answers.values()):
                    raise ReplayError(message.decode())
                if files.answers() < _CHECKS:
                    raise ReplayError(
                        f"{self.root}: the driver cannot see files of Spark's executors there; choose a "
                        "folder that all machines share, such as one of a distributed file system"
                    )
        self._is_checked = files is not None or runs_here(self.session)

    def _answers(self, name: str, count: int, function: Task, on_look: Callable[[], None]) -> dict[int, bytes]:
        """Run ``function`` in ``count`` Spark tasks of one job, and return the results by task number."""

        def frame() -> Any:
            return task_frame(self.session, count).mapInArrow(function, "index int, report binary")

        return {row[0]: bytes(row[1]) for row in self._collected(name, frame, on_look)}

    def _collected(self, name: str, frame: Callable[[], Any], on_look: Callable[[], None]) -> list[Any]:
        """Create a DataFrame in a separate thread, run its Spark job there, and return its rows."""
        tag = f"streams-replay-{uuid4().hex[:12]}"

        def collect() -> list[Any]:
            label_jobs(self.session, tag, name)
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


def _packs(items: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Divide items into lists of at most the maximum size of a job; a larger item gets a list of its own."""
    pack: list[bytes] = []
    size = 0
    for item in items:
        size += len(item)
        if pack and (size > _JOB_BYTES or len(pack) >= _JOB_CALLS):
            yield pack
            pack = []
            size = len(item)
        pack.append(item)
    if pack:
        yield pack


def readable_failure(error: Exception) -> Exception:
    """Return the error of a failed Spark job without the tracebacks that Spark adds."""
    text = str(error)
    message = failure_text(text)
    if message is not None:
        return TaskFailure(message)
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
    if versions := re.search(r"different version:? \(?([\d., ]+)\)? than that in driver:? ([\d.]+)", text):
        workers = versions[1].strip().replace(", ", ".")
        return ReplayError(
            f"the Python workers of Spark run Python {workers}, this driver {versions[2].rstrip('.')}; set "
            "PYSPARK_PYTHON to a Python of the driver's version, such as that of an environment packed by venv-pack"
        )
    if program := re.search(r'Cannot run program "([^"]*)"[^\n]*?error=\d+, ([^\n]*)', text):
        return ReplayError(
            f"the executors of Spark cannot run Python as {program[1]!r}: {program[2]}; set PYSPARK_PYTHON to a Python "
            "that is there, or send an environment: --archives environment.tar.gz#environment"
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
