"""``replay``, the entry point of the package: it runs a topology over history."""

import atexit
import logging
import os
import tempfile
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any, Unpack

from streams.core.clock import SystemClock
from streams.core.errors import ConfigError
from streams.dsl import TopologySource
from streams.replay.calls.failures import explained_failure
from streams.replay.calls.progress import Listener, Reporter, title_of
from streams.replay.errors import LateRecordsError, SnapshotError
from streams.replay.run.explaining import Explanation, explaining, needs_spark
from streams.replay.run.local import LocalExecutor
from streams.replay.run.request import Inputs, Keywords, Plan, Request
from streams.replay.run.result import Outputs, ReplayResult, Stores
from streams.replay.run.session import WORK_FOLDERS, ReplaySession
from streams.replay.storage.places import LOCK, Place

logger = logging.getLogger(__name__)


def replay(
    topology: TopologySource,
    inputs: Inputs,
    plan: Plan | None = None,
    **keywords: Unpack[Keywords],
) -> ReplayResult:
    """Run a topology over history.  The result is the same as from a bounded live run, record for record.

    ``inputs`` maps each source topic to its history: a file, folder or pattern, several of them, an
    ``Archive``, a ``KafkaTopic``, or a table: a Spark DataFrame, "table:NAME" or "sql:SELECT ...".

    ``plan`` says how the replay runs; each of its fields is described there. The fields of everyday use are keywords,
    too, and replace those of the plan: ``executor``, ``spark``, ``processes``, ``partitions``, ``slices``, ``until``,
    ``order``, ``directory``, ``resume``, ``snapshot``, ``state_from``, ``wall_clock``, ``final_flush`` and
    ``max_dropped``. All other keywords are settings of ``StreamsConfig``; ``application_id`` is by default the name of
    the script of the topology.

    Rows that are older than rows of earlier runs are late: ``late_rows`` of the result lists them.

    Raises:
        ReplayTaskError: user code failed or a record cannot be read; the error locates the record.
        LateRecordsError: more late records were dropped than ``max_dropped`` allows; the error carries the result.
        ReplayError: the replay cannot be planned, a file is missing or damaged, or the disk is full.
        TopologyError, ConfigError, InputError: an argument is invalid.
    """
    request = Request.of(topology, inputs, plan, keywords)
    plan = request.plan
    with ExitStack() as stack:
        session = ReplaySession(request, _folder(plan, stack))
        for folder in (plan.snapshot, plan.directory):
            if folder is not None:
                Place(os.fspath(folder)).absolute().create_private()
        lock = stack.enter_context(session.root.locked())
        if plan.directory is None and plan.snapshot is not None and not plan.resume:
            _discard_work(session.root)
        runner = _executor(plan, session.root, stack)
        _run(session, runner, plan.progress)
        if plan.snapshot is not None:
            session.snapshot().save(Place(os.fspath(plan.snapshot)))
        if lock is not None:
            lock.offer()
        closing = stack.pop_all()
        if plan.keep:
            atexit.register(closing.close)
        outputs = Outputs(session, runner)
        result = ReplayResult(session, outputs, Stores(session), runner, _nothing if plan.keep else closing.close)
    _check_late(result, plan)
    return result


def _run(session: ReplaySession, runner: Any, progress: Listener | None) -> None:
    """Execute a replay, with events of OpenLineage if ``openlineage_url`` is set."""
    if not session.config.openlineage_url:
        drive(session, runner, progress)
        return
    # Imported here, because the extra ``openlineage`` is needed only with a collector.
    from streams.replay.run.lineage import lineage_job
    from streams.telemetry.lineage import lineage_events

    with lineage_events(session.config, session.topology, lineage_job(session)):
        drive(session, runner, progress)


def explain(
    topology: TopologySource,
    inputs: Inputs,
    plan: Plan | None = None,
    **keywords: Unpack[Keywords],
) -> Explanation:
    """Return what ``replay`` with the same arguments would read, run and write, and possible problems.

    It takes seconds: sizes come from file listings and Parquet footers; for other files the number of rows is estimated
    from sizes and a sample of rows.  Nothing is written to ``directory``.  With ``resume``, files that the replay in
    ``directory`` has read before are left out.  Spark is only used to inspect tables, and files that only Spark can
    list.

    Raises:
        ReplayError: the replay cannot be planned, or a file is missing.
        TopologyError, ConfigError, InputError: an argument is invalid, the plan has ``repair``, or a sampled row is no
            valid record of its topic.
    """
    request = Request.of(topology, inputs, plan, keywords)
    if request.plan.repair:
        raise ConfigError("explain makes no plan of a repair, which depends on late rows; leave repair out")
    is_local = request.plan.executor == "local"
    with ExitStack() as stack:
        session = ReplaySession(request, _folder(request.plan, stack))
        runner: Any = LocalExecutor()
        if is_local or any(map(needs_spark, session.inputs.sources.values())):
            runner = _executor(request.plan, session.root, stack)
        steps = explaining(session, runner.processes if is_local else None)
        explanation: Explanation = drive(session, runner, steps=steps)
        return explanation


def _executor(plan: Plan, root: Place, stack: ExitStack) -> Any:
    """Return the executor of a plan, which ``stack`` closes."""
    runner: Any
    if plan.executor == "spark":
        from streams.replay.spark.executor import SparkExecutor

        runner = SparkExecutor.of(plan.spark, plan.master, root, with_ui=plan.progress is not None, conf=plan.conf)
    else:
        runner = LocalExecutor(plan.processes or os.cpu_count() or 1)
    stack.callback(runner.close)
    return runner


def _nothing() -> None:
    """Do nothing: the folder is deleted when the process exits."""


def _folder(plan: Plan, stack: ExitStack) -> Place:
    """Return the folder of a replay: as planned, in the folder of the snapshot, or temporary, deleted by ``stack``."""
    if plan.directory is not None:
        root = Place(os.fspath(plan.directory)).absolute()
        root.check_target()
        return root
    if plan.snapshot is not None:
        root = Place(os.fspath(plan.snapshot)).absolute().child("work")
        root.check_target()
        return root
    folder = tempfile.TemporaryDirectory(prefix="streams-replay-")
    stack.callback(folder.cleanup)
    return Place(folder.name)


def _discard_work(root: Place) -> None:
    """Delete the files of an earlier replay from the folder of a snapshot.

    Raises:
        SnapshotError: the folder has files, but no replay has written them.
    """
    names = {file.partition("/")[0] for file in root.files()} - {LOCK}
    if names and not any(root.child(name).exists() for name in WORK_FOLDERS):
        raise SnapshotError(
            f"{root}: has files that no replay has written; choose another folder for the snapshot, or move them away"
        )
    for name in sorted(names):
        root.child(name).delete()


def _check_late(result: ReplayResult, plan: Plan) -> None:
    """Log late rows and misplaced keys, and compare the number of late records with the limit of the plan.

    Without a limit in the plan, only log an excess.

    Raises:
        LateRecordsError: more late records were dropped than ``max_dropped`` allows.
    """
    for notice in (*result.late_rows, *result.misplaced):
        logger.warning("%s", notice)
    excess = plan.limit.exceeded(result.late)
    if excess and plan.max_dropped is not None:
        listed = "; ".join(map(str, excess))
        raise LateRecordsError(f"more than max_dropped {plan.limit.text}: {listed}", late=excess, result=result)
    for late in excess:
        logger.warning("%s", late)


def drive(
    session: ReplaySession,
    executor: Any,
    progress: Listener | None = None,
    steps: Generator[list[Any], list[Any], Any] | None = None,
) -> Any:
    """Execute the calls of ``steps`` (default: of the whole replay) on an executor, and return the result of ``steps``.

    Raises:
        StreamsError: a call to the executor failed; the message locates the failure.
    """
    reporter = Reporter(session, progress, SystemClock(), getattr(executor, "ui_url", None) or "")
    steps = steps or session.steps()
    try:
        works = next(steps)
        while True:
            reporter.begin(works)
            if hasattr(executor, "title"):
                executor.title = title_of(session, works)
            try:
                reports = executor.run(works, reporter.done, reporter.look)
            except Exception as error:  # noqa: BLE001 - raised again with its context
                explained = explained_failure(session, error)
                raise explained from explained.__cause__
            works = steps.send(reports)
    except StopIteration as end:
        reporter.finish()
        return end.value
