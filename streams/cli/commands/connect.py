"""``streams connect``: run the sources and sinks of a file."""

import argparse
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from streams.cli.cluster import BROKER, cluster_at
from streams.cli.interrupts import Interrupt, orderly
from streams.cli.mistakes import is_mistake
from streams.cli.options import Commands, add_debug, add_log, number_of
from streams.core.errors import ConfigError, StreamsError

if TYPE_CHECKING:
    from streams.cli.connectors import Connector, Connectors, Secrets
    from streams.connect import SinkWorker, SourceWorker, WorkerProgress
    from streams.protocol.transport import Cluster

log = logging.getLogger(__name__)

_Worker: TypeAlias = "SinkWorker[Any, Any] | SourceWorker[Any, Any]"
#: How long the end of a worker is waited for before the other workers and signals are looked at.
_TURN_MS = 200
_PROGRESS_S = 30


def add_parser(commands: Commands) -> None:
    """Add ``streams connect`` and its arguments to the program."""
    parser = commands.add_parser(
        "connect",
        description="Run the sources and sinks that a TOML file declares, until SIGINT or SIGTERM. If one of them "
        "fails, all stop.",
    )
    parser.add_argument("file", metavar="FILE.toml", help="the cluster, and tables [sources.NAME] and [sinks.NAME]")
    parser.add_argument("--explain", action="store_true", help="check the file and its settings, and start nothing")
    parser.add_argument(
        "--progress",
        metavar="SECONDS",
        type=number_of("seconds", 1),
        default=_PROGRESS_S,
        help=f"seconds between two lines about a connector that has written records (default {_PROGRESS_S})",
    )
    add_debug(parser)
    add_log(parser, None, "info of connectors, else warning")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Run the connectors until SIGINT or SIGTERM."""
    from streams.cli.connectors import Connectors

    file = Connectors.read(options.file)
    if options.explain:
        print(f"{options.file}: {', '.join(connector.place for connector in file.connectors)}: the settings are valid")
        return 0
    with _messages(file.secrets, options.log_level), orderly() as interrupt:
        try:
            with ExitStack() as stack:
                _run(file, _cluster(file, stack), interrupt, options.progress * 1000)
        except StreamsError as error:
            # The traceback of a cause would show secrets.
            raise _failure(file, error) from (None if file.secrets.are_there else error)
    return 0


def _failure(file: "Connectors", error: StreamsError) -> StreamsError:
    """Return an error with the name of the file and without secrets."""
    from streams.connect import ConnectError

    text = file.secrets.hide(str(error))
    text = text if text.startswith(file.path) else f"{file.path}: {text}"
    return ConfigError(text) if is_mistake(error) else ConnectError(text)


@contextmanager
def _messages(secrets: "Secrets", level: str | None) -> Iterator[None]:
    """Log with secrets hidden, and unless a level is chosen, this command and connectors from level INFO on."""
    handlers = list(logging.getLogger("streams").handlers)
    loggers = [log, logging.getLogger("streams.connect")] if level is None else []
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.INFO)
    for handler in handlers:
        handler.addFilter(secrets)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(secrets)
        for logger, own_level in zip(loggers, before, strict=True):
            logger.setLevel(own_level)


def _cluster(file: "Connectors", stack: ExitStack) -> "Cluster":
    if file.bootstrap_servers is not None:
        return cluster_at(file.bootstrap_servers, dict(file.settings))
    from pathlib import Path

    from streams.broker import EmbeddedBroker

    assert file.state_dir is not None, "the file has one of the two"
    if file.settings:
        raise ConfigError("settings: are those of a connection; leave them out with state_dir")
    return stack.enter_context(EmbeddedBroker(Path(file.state_dir) / BROKER, auto_create_topics=False))


def _run(file: "Connectors", cluster: "Cluster", interrupt: Interrupt, progress_ms: int) -> None:
    """Run all workers until a signal comes, or one of them fails.

    Raises:
        StreamsError: the error of the worker that failed.
    """
    _create_topics(file, cluster)
    workers = [(connector, connector.worker(cluster)) for connector in file.connectors]
    for connector, worker in workers:
        arrow = "->" if connector.side == "source" else "<-"
        log.info("%s: starts: %r %s topic %s", connector.place, connector.endpoint, arrow, connector.topic.name)
        worker.start()
    try:
        _watch(workers, interrupt, progress_ms)
    finally:
        _stop(workers)
        for connector, worker in workers:
            log.info("%s: stopped: %s", connector.place, _words(worker.progress))


def _create_topics(file: "Connectors", cluster: "Cluster") -> None:
    """Create the topics that are missing and whose declaration has a number of partitions."""
    from streams.clients import Admin
    from streams.protocol.messages import TopicSpec

    topics = [connector.topic for connector in file.connectors]
    counts = {topic.name: topic.partitions for topic in topics if topic.partitions is not None}
    specs = [TopicSpec(name, partitions) for name, partitions in counts.items()]
    if specs:
        with Admin(cluster) as admin:
            admin.create_topics(specs, exist_ok=True)


def _watch(workers: "Sequence[tuple[Connector, _Worker]]", interrupt: Interrupt, progress_ms: int) -> None:
    from streams.core.clock import SystemClock

    clock = SystemClock()
    shown = [0] * len(workers)
    next_ms = clock.monotonic_ms() + progress_ms
    while not interrupt.is_asked:
        for connector, worker in workers:
            if _has_ended(connector, worker, _TURN_MS // len(workers)):
                return
        if clock.monotonic_ms() >= next_ms:
            for index, (connector, worker) in enumerate(workers):
                if worker.progress.records != shown[index]:
                    shown[index] = worker.progress.records
                    log.info("%s: %s", connector.place, _words(worker.progress))
            next_ms += progress_ms


def _has_ended(connector: "Connector", worker: _Worker, timeout_ms: int) -> bool:
    try:
        return worker.wait(timeout_ms)
    except StreamsError as error:
        kind = ConfigError if is_mistake(error) else StreamsError
        raise kind(f"{connector.place}: {error}") from error
    except Exception:
        log.error("%s: has failed", connector.place)
        raise


def _stop(workers: "Sequence[tuple[Connector, _Worker]]") -> None:
    """Close all workers; errors in closing are logged, since the first error ends the command."""
    from streams.core.concurrency.threads import SystemThreads

    threads = SystemThreads()

    def close(connector: "Connector", worker: _Worker) -> None:
        was_running = worker.is_running
        try:
            worker.close()
        except Exception as error:  # noqa: BLE001 - whatever ended the worker.
            if was_running:
                log.error("%s: failed while it was stopped: %s", connector.place, error)

    closing = [
        threads.start(f"close {connector.name}", lambda pair=(connector, worker): close(*pair))  # type: ignore[misc]
        for connector, worker in workers
    ]
    for thread in closing:
        thread.join()


def _words(progress: "WorkerProgress") -> str:
    parts = [f"{progress.records:,} records in {progress.batches:,} batches"]
    if progress.lag is not None:
        parts.append(f"lag {progress.lag:,}")
    counts = {name: getattr(progress, name) for name in ("skipped", "lost", "retries", "fenced")}
    parts.extend(f"{name} {number:,}" for name, number in counts.items() if number)
    return ", ".join(parts)
