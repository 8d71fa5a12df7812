"""``replay``, the entry point of the package."""

import logging
import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any, Literal, Unpack

from streams.core.clock import SystemClock
from streams.core.errors import ConfigError
from streams.core.settings import Settings
from streams.core.topic import Topic, TopicLike, topic_name
from streams.core.user_code import refuse_unawaited
from streams.dsl import TopologySource
from streams.replay.calls.failures import explained_failure
from streams.replay.calls.progress import Listener, Reporter
from streams.replay.calls.work import Options
from streams.replay.errors import LateRecordsError
from streams.replay.run.local import LocalExecutor
from streams.replay.run.result import Outputs, ReplayResult, Stores, arrow_table
from streams.replay.run.session import ReplaySession, Request
from streams.replay.storage.places import Place
from streams.runtime import USUAL_LIMIT, DropLimit

logger = logging.getLogger(__name__)


def replay(
    topology: TopologySource,
    inputs: "Mapping[Topic[Any, Any], Any] | Mapping[str, Any] | Mapping[TopicLike, Any]",
    *,
    application_id: str | None = None,
    executor: Literal["spark", "local"] = "spark",
    spark: Any = None,
    master: str | None = None,
    partitions: int | None = None,
    slices: str | int | timedelta | None = None,
    until: Any = None,
    directory: str | os.PathLike[str] | None = None,
    resume: bool = False,
    state_from: str | os.PathLike[str] | None = None,
    wall_clock: Literal["error", "skip", "append_time"] = "error",
    final_flush: bool = False,
    store: Literal["rocksdb", "in_memory"] | None = None,
    processes: int | None = None,
    max_dropped: str | int | None = None,
    explain: bool = False,
    progress: Listener | None = None,
    **settings: Unpack[Settings],
) -> ReplayResult:
    """Run a topology over history.  The result is the same as from a bounded live run, record for record.

    ``inputs`` maps each source topic to its history: a file, folder or pattern, several of them, an
    ``Archive``, or a ``KafkaTopic``.  ``partitions`` is the partition count of topics without a declared
    one (default 1).

    ``executor`` "spark" runs on the ``spark`` session, classic or Connect, or on a new one for ``master``
    (default ``local[*]``); "local" runs in ``processes`` processes of this machine (default: one per core).
    ``slices`` divides history: a span of event time ("1d"), a number of slices (up to 1000), or a larger
    number, which is the maximum number of records per slice.  ``until`` is where the replay ends: a datetime,
    epoch milliseconds, ISO 8601 text, or offsets by topic and partition.  ``directory`` keeps all files of the
    replay, and ``resume`` continues from them.  ``state_from`` is a snapshot to continue from.

    ``wall_clock`` selects how wall-clock time, which history does not have, is treated: "error" rejects any use
    of wall-clock time, "skip" never fires wall-clock punctuations, and "append_time" advances the clock to the
    append times of the records.  ``final_flush`` closes open windows at the end.  ``settings`` are the settings
    of ``StreamsConfig``.
    ``max_dropped`` limits how many late records one node may drop: a share of the records that its tasks read
    ("1%") or a number; by default, a share of more than 1 % logs a warning.  ``explain`` only reads the inputs
    and makes the plan.

    Raises:
        ReplayTaskError: user code failed or a record cannot be read; the error locates the record.
        LateRecordsError: more late records were dropped than ``max_dropped`` allows; the error carries the result.
        ReplayError: the replay cannot be planned, a file is missing or damaged, or the disk is full.
        TopologyError, ConfigError, InputError: an argument is invalid.
    """
    if executor not in ("spark", "local"):
        raise ConfigError(f"executor {executor!r}: give 'spark' or 'local'")
    if wall_clock not in ("error", "skip", "append_time"):
        raise ConfigError(f"wall_clock {wall_clock!r}: give 'error', 'skip' or 'append_time'")
    refuse_unawaited(progress, "progress of a replay", error=ConfigError)
    limit = DropLimit.of(USUAL_LIMIT if max_dropped is None else max_dropped)
    given: dict[str, Any] = {**settings}
    given["application_id"] = application_id or application_id_of(topology)
    if store is None:
        store = "in_memory" if given.get("default_store") == "in_memory" else "rocksdb"
    request = Request(
        topology,
        {topic_name(topic, "an input of a replay"): value for topic, value in inputs.items()},
        partitions,
        given,
        slices,
        until,
        resume,
        None if state_from is None else Place(os.fspath(state_from)).absolute(),
        Options(wall_clock, final_flush, store),
    )
    with ExitStack() as stack:
        root = _folder(directory, stack)
        session = ReplaySession(request, root)
        runner: Any
        if executor == "spark":
            from streams.replay.spark.executor import SparkExecutor

            runner = SparkExecutor.of(spark, master, root, with_ui=progress is not None)
            table = partial(runner.table, session)
        else:
            runner = LocalExecutor(processes or os.cpu_count() or 1)
            table = partial(arrow_table, session)
        stack.callback(runner.close)
        drive(session, runner, progress, only_plan=explain)
        closing = stack.pop_all()
        result = ReplayResult(session, Outputs(session, table), Stores(session), closing.close)
    _check_late(result, limit, is_given=max_dropped is not None)
    return result


def _folder(directory: str | os.PathLike[str] | None, stack: ExitStack) -> Place:
    """Return the given folder of a replay, or a temporary folder that ``stack`` deletes."""
    if directory is None:
        folder = tempfile.TemporaryDirectory(prefix="streams-replay-")
        stack.callback(folder.cleanup)
        return Place(folder.name)
    root = Place(os.fspath(directory)).absolute()
    root.check_target()
    return root


def _check_late(result: ReplayResult, limit: DropLimit, *, is_given: bool) -> None:
    """Check the late records against ``limit``, or warn if there is no limit and more than 1 % were late.

    Raises:
        LateRecordsError: more late records were dropped than ``limit`` allows.
    """
    found = limit.exceeded(result.late)
    if found and is_given:
        listed = "; ".join(map(str, found))
        raise LateRecordsError(f"more than max_dropped {limit.text}: {listed}", late=found, result=result)
    for late in found:
        logger.warning("%s", late)


def drive(session: ReplaySession, executor: Any, progress: Listener | None = None, *, only_plan: bool = False) -> None:
    """Run all steps of a session on an executor.

    Raises:
        StreamsError: a call failed; the message locates the failure.
    """
    reporter = Reporter(session, progress, SystemClock(), getattr(executor, "ui_url", None) or "")
    steps = session.prepare() if only_plan else session.steps()
    try:
        works = next(steps)
        while True:
            reporter.begin(works)
            try:
                reports = executor.run(works, reporter.done, reporter.look)
            except Exception as error:  # noqa: BLE001 - raised again with its context
                explained = explained_failure(session, error)
                raise explained from explained.__cause__
            works = steps.send(reports)
    except StopIteration:
        reporter.finish()


def application_id_of(topology: Any) -> str:
    """Return the default application id of a topology: the name of its script."""
    import inspect
    from pathlib import Path

    module = inspect.getmodule(topology)
    file = getattr(module, "__file__", None)
    name = "streams" if file is None else Path(file).stem
    return "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in name).strip(".-")
