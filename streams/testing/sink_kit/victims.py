"""Workers that are killed: threads of this process, or processes of their own."""

from collections.abc import Callable
from typing import Any

from attrs import frozen

from streams.broker import EmbeddedBroker
from streams.clients import TcpCluster
from streams.connect import SinkConnector, SinkWorker
from streams.core.topic import Topic
from streams.protocol.transport import Cluster
from streams.testing.sink_kit.faults import FaultySink, SinkFault
from streams.testing.sink_kit.judgement import SinkKitError
from streams.testing.victims import PATIENCE_MS, Waiting

SESSION_MS = 1_000

Make = Callable[[], SinkConnector[Any, Any]]


@frozen
class Work:
    """The parameters of one run of a worker of the sink kit."""

    make: Make
    topic: Topic[Any, Any]
    name: str
    fault: SinkFault
    batch_records: int


def faulty_worker(cluster: Cluster, work: Work) -> tuple[SinkWorker[Any, Any], FaultySink]:
    """Return a worker with a ``FaultySink``, not started, and the sink."""
    sink = FaultySink(work.make(), work.fault, work.make)
    worker = SinkWorker(
        cluster,
        work.topic,
        sink,
        name=work.name,
        batch_records=work.batch_records,
        batch_ms=1,
        retry_backoff_ms=1,
        session_timeout_ms=SESSION_MS,
    )
    return worker, sink


def killed_here(broker: EmbeddedBroker, work: Work, more: Callable[[], None]) -> FaultySink:
    """Run a worker in a thread until its fault has killed it, or until it has recovered from the fault."""
    worker, sink = faulty_worker(broker, work)
    worker.start()

    def is_over() -> bool:
        return not worker.is_running or (sink.has_happened and worker.progress.lag == 0 and not sink.is_dead)

    def more_before() -> None:
        # A slow sink would never write all that comes.
        if not sink.has_happened:
            more()

    Waiting(SinkKitError).until(is_over, f"the worker that is to fail {work.fault.step}", more_before)
    ended_as_meant(worker, sink)
    return sink


def ended_as_meant(worker: SinkWorker[Any, Any], sink: FaultySink) -> None:
    """Close a worker, and check that it has failed only if it was killed.

    Raises:
        SinkKitError: the worker was not killed, and has ended with an error.
    """
    try:
        worker.close(PATIENCE_MS)
    except Exception as error:
        if not sink.is_dead:
            said = f"{sink.fault.step}: the worker has ended with {type(error).__name__}: {error}"
            raise SinkKitError(said) from error


def run_victim(work: Work, bootstrap_servers: str) -> None:
    """Run a worker in this process, until its fault kills it."""
    worker, _ = faulty_worker(TcpCluster(bootstrap_servers), work)
    worker.run()
