"""``replay``, the entry point of the package: it runs a topology over history."""

import atexit
import logging
import os
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Literal, Unpack

from attrs import evolve

from streams.core.clock import SystemClock
from streams.core.errors import ConfigError
from streams.core.settings.settings import Settings
from streams.core.topic import Topic, TopicLike, topic_name
from streams.core.user_code import refuse_unawaited
from streams.dsl import TopologySource
from streams.replay.calls.failures import explained_failure
from streams.replay.calls.progress import Listener, Reporter, title_of
from streams.replay.calls.work import Options
from streams.replay.errors import LateRecordsError
from streams.replay.run.explaining import Explanation, explaining, needs_spark
from streams.replay.run.local import LocalExecutor
from streams.replay.run.result import Outputs, ReplayResult, Stores
from streams.replay.run.session import KEPT_STATES, ReplaySession, Request
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
    conf: Mapping[str, str] | None = None,
    partitions: int | None = None,
    slices: str | int | timedelta | None = None,
    since: Any = None,
    until: Any = None,
    order: Literal["event_time", "as_given"] | None = None,
    directory: str | os.PathLike[str] | None = None,
    keep: bool = False,
    resume: bool = False,
    repair: bool = False,
    keep_states: int = KEPT_STATES,
    state_from: str | os.PathLike[str] | None = None,
    wall_clock: Literal["error", "skip", "append_time"] = "error",
    final_flush: bool = False,
    store: Literal["rocksdb", "in_memory"] | None = None,
    processes: int | None = None,
    max_dropped: str | int | None = None,
    progress: Listener | None = None,
    **settings: Unpack[Settings],
) -> ReplayResult:
    """Run a topology over history.  The result is the same as from a bounded live run, record for record.

    ``inputs`` maps each source topic to its history: a file, folder or pattern, several of them, an
    ``Archive``, a ``KafkaTopic``, or a table: a Spark DataFrame, "table:NAME" or "sql:SELECT ...".
    ``partitions`` is the partition count of topics that do not declare one (default 1).

    ``executor`` "spark" runs on the ``spark`` session, classic or Connect, or on a new one for ``master``
    (default ``local[*]``) with the settings ``conf``; "local" runs in ``processes`` processes of this machine
    (default: one per core).
    ``slices`` divides history: a span of event time ("1d"), a number of slices (up to 1000), or a larger
    number, which is the maximum number of records per slice.  ``since`` is the first event time of rows of
    tables, which their source selects.  ``until`` is where the replay ends: a datetime,
    epoch milliseconds, ISO 8601 text, or offsets by topic and partition.  ``directory`` keeps all files of the
    replay, and ``resume`` continues from them.  Without ``directory`` the files are temporary: outputs can be read
    until the result is closed, or, with ``keep``, until this process exits, which then also ends the replay's Spark
    session.  ``state_from`` is a snapshot to continue from.

    Rows that are older than rows of earlier runs are late: ``late_rows`` of the result lists them.  ``repair``, with
    ``resume``, sorts late rows into the history and computes the affected results again, so that the result equals that
    of one replay over all rows.  A repair continues from one of the states of the last ``keep_states`` slices (a
    resumed replay has one slice for each run, or the slices of ``slices``), or else from the start.

    ``order`` is the order of records from files in each partition: "event_time" sorts them by (event time, row), and
    "as_given" keeps the order of files and rows.  By default, the files of a folder are sorted, and others are not.
    Archives and topics always keep the order of their offsets.

    ``wall_clock`` selects how wall-clock time, which history does not have, is treated: "error" rejects any use
    of wall-clock time, "skip" never fires wall-clock punctuations and ignores ``idle_close``, and "append_time"
    advances the clock to the append times of the records.  ``final_flush`` closes open windows at the end.
    ``settings`` are the settings of ``StreamsConfig``.
    ``max_dropped`` limits how many late records one node may drop: a share of the records that its tasks read
    ("1%") or a number; by default, a share of more than 1 % logs a warning.

    Raises:
        ReplayTaskError: user code failed or a record cannot be read; the error locates the record.
        LateRecordsError: more late records were dropped than ``max_dropped`` allows; the error carries the result.
        ReplayError: the replay cannot be planned, a file is missing or damaged, or the disk is full.
        TopologyError, ConfigError, InputError: an argument is invalid.
    """
    refuse_unawaited(progress, "progress of a replay", error=ConfigError)
    if repair and not resume:
        raise ConfigError("repair continues the replay in a folder; give resume=True and its directory, too")
    _check_number(keep_states, "keep_states")
    limit = DropLimit.of(USUAL_LIMIT if max_dropped is None else max_dropped)
    _check_executor(executor, processes=processes, spark=spark, master=master, conf=conf)
    request = _request(
        topology,
        inputs,
        {**settings, "application_id": application_id},
        Options(wall_clock, final_flush),
        store=store,
        partitions=partitions,
        slices=slices,
        since=since,
        until=until,
        resume=resume,
        state_from=None if state_from is None else Place(os.fspath(state_from)).absolute(),
        order=order,
        repair=repair,
        keep_states=keep_states,
    )
    with ExitStack() as stack:
        session = ReplaySession(request, root := _folder(directory, stack))
        runner: Any
        if executor == "spark":
            from streams.replay.spark.executor import SparkExecutor

            runner = SparkExecutor.of(spark, master, root, with_ui=progress is not None, conf=conf)
        else:
            runner = _local(processes)
        stack.callback(runner.close)
        _run(session, runner, progress)
        closing = stack.pop_all()
        if keep:
            atexit.register(closing.close)
        outputs = Outputs(session, runner)
        stores = Stores(session)
        result = ReplayResult(session, outputs, stores, runner, _nothing if keep else closing.close)
    _check_late(result, limit, is_given=max_dropped is not None)
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
    inputs: "Mapping[Topic[Any, Any], Any] | Mapping[str, Any] | Mapping[TopicLike, Any]",
    *,
    application_id: str | None = None,
    executor: Literal["spark", "local"] = "spark",
    spark: Any = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    partitions: int | None = None,
    slices: str | int | timedelta | None = None,
    since: Any = None,
    order: Literal["event_time", "as_given"] | None = None,
    directory: str | os.PathLike[str] | None = None,
    resume: bool = False,
    store: Literal["rocksdb", "in_memory"] | None = None,
    processes: int | None = None,
    **settings: Unpack[Settings],
) -> Explanation:
    """Return what ``replay`` with the same arguments would read, run and write, and possible problems.

    It takes seconds: sizes come from file listings and Parquet footers; for other files the number of rows is estimated
    from sizes and a sample of rows.  Nothing is written to ``directory``.  With ``resume``, files that the replay in
    ``directory`` has read before are left out.  Spark is only used to inspect tables, and files that only Spark can
    list.

    Raises:
        ReplayError: the replay cannot be planned, or a file is missing.
        TopologyError, ConfigError, InputError: an argument is invalid, or a sampled row is no valid record of its
            topic.
    """
    _check_executor(executor, processes=processes, spark=spark, master=master, conf=conf)
    request = _request(
        topology,
        inputs,
        {**settings, "application_id": application_id},
        Options(),
        store=store,
        partitions=partitions,
        slices=slices,
        since=since,
        resume=resume,
        order=order,
    )
    with ExitStack() as stack:
        root = _folder(directory, stack)
        session = ReplaySession(request, root)
        is_local = executor == "local"
        runner: Any = _local(processes)
        if not is_local and any(map(needs_spark, session.inputs.given.values())):
            from streams.replay.spark.executor import SparkExecutor

            runner = SparkExecutor.of(spark, master, root, conf=conf)
        stack.callback(runner.close)
        found: Explanation = drive(session, runner, steps=explaining(session, runner.processes if is_local else None))
        return found


def _request(
    topology: TopologySource,
    inputs: Mapping[Any, Any],
    settings: Mapping[str, Any],
    options: Options,
    *,
    store: str | None,
    **given: Any,
) -> Request:
    """Check the arguments of a replay, and return them as a request with default application ID and store engine.

    Raises:
        ConfigError: ``order`` or ``wall_clock`` is not one of the permitted texts, there would be no partitions, or
            ``slices`` is neither a span of time nor a number.
    """
    if given["order"] not in ("event_time", "as_given", None):
        raise ConfigError(f"order {given['order']!r}: give 'event_time' or 'as_given'")
    if given["partitions"] is not None:
        _check_number(given["partitions"], "partitions")
    if options.wall_clock not in ("error", "skip", "append_time"):
        raise ConfigError(f"wall_clock {options.wall_clock!r}: give 'error', 'skip' or 'append_time'")
    named = {topic_name(topic, "an input of a replay"): value for topic, value in inputs.items()}
    settings = {**settings, "application_id": settings["application_id"] or application_id_of(topology)}
    if store is None:
        store = "in_memory" if settings.get("default_store") == "in_memory" else "rocksdb"
    return Request(
        topology,
        named,
        settings=settings,
        options=evolve(options, store_engine=store),
        **given,
    )


def _check_executor(executor: str, **given: Any) -> None:
    """Check the name of an executor, and that all arguments are its own: another one would be ignored.

    Raises:
        ConfigError: it is no executor, or an argument belongs to the other one.
    """
    if executor not in ("spark", "local"):
        raise ConfigError(f"executor {executor!r}: give 'spark' or 'local'")
    for name, value in given.items():
        owner = "local" if name == "processes" else "spark"
        if value is not None and owner != executor:
            raise ConfigError(f"{name} is of executor={owner!r}, but executor={executor!r}: leave it out, or give that")


def _check_number(given: object, what: str) -> None:
    if type(given) is not int or given < 1:
        raise ConfigError(f"{what} {given!r}: give a whole number from 1 on")


def _local(processes: int | None) -> LocalExecutor:
    """Return the executor with so many processes (default: one per core).

    Raises:
        ConfigError: there would be no process.
    """
    if processes is not None:
        _check_number(processes, "processes")
    return LocalExecutor(processes or os.cpu_count() or 1)


def _nothing() -> None:
    """Do nothing: the folder is deleted when the process exits."""


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
    """Log late rows and misplaced keys, and compare the number of late records with ``limit``.

    Without a given limit, only log an excess.

    Raises:
        LateRecordsError: more late records were dropped than ``limit`` allows.
    """
    for said in (*result.late_rows, *result.misplaced):
        logger.warning("%s", said)
    found = limit.exceeded(result.late)
    if found and is_given:
        listed = "; ".join(map(str, found))
        raise LateRecordsError(f"more than max_dropped {limit.text}: {listed}", late=found, result=result)
    for late in found:
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


def application_id_of(topology: Any) -> str:
    """Return the default application ID of a topology: the name of the script that defines it."""
    import inspect
    from pathlib import Path

    module = inspect.getmodule(topology)
    file = getattr(module, "__file__", None)
    name = "streams" if file is None else Path(file).stem
    return "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in name).strip(".-")
