"""Workers that are killed: threads of this process, or processes of their own.

``python -m streams.testing.sink_kit.victims`` forks such processes; it reads their work from its standard
input.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import cloudpickle
from attrs import asdict, define, field, frozen

from streams.broker import EmbeddedBroker
from streams.clients import TcpCluster
from streams.connect import SinkConnector, SinkWorker
from streams.core.clock import SystemClock
from streams.core.threads import SystemThreads
from streams.core.topic import Topic
from streams.protocol.transport import Cluster
from streams.testing.sink_kit.faults import FaultySink, SinkFault
from streams.testing.sink_kit.judgement import SinkKitError

#: Longest time that anything may take, after which the kit gives up, in milliseconds.
PATIENCE_MS = 120_000
_PAUSE_MS = 3
#: Time after which a victim that waits for its step gets more records, in milliseconds.
_HUNGRY_MS = 2_000
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


def wait_until(is_done: Callable[[], bool], what: str, more: Callable[[], None] | None = None) -> None:
    """Wait for a condition; call ``more`` now and then.

    Raises:
        SinkKitError: the condition is not met in time.
    """
    clock, pause = SystemClock(), SystemThreads().signal()
    began = fed = clock.monotonic_ms()
    while not is_done():
        now = clock.monotonic_ms()
        if now - began > PATIENCE_MS:
            raise SinkKitError(f"{what} has not ended after {PATIENCE_MS} ms")
        if more is not None and now - fed > _HUNGRY_MS:
            more()
            fed = now
        pause.wait(_PAUSE_MS)


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

    wait_until(is_over, f"the worker that is to fail {work.fault.step}", more_before)
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


@define(eq=False)
class Processes:
    """Runs workers in processes of their own, which kill themselves; it is a context manager.

    The processes are forks of a process that has imported the modules they need, and has a single thread.
    """

    bootstrap: str
    _template: "subprocess.Popen[bytes]" = field(init=False)
    _said: Any = field(factory=tempfile.TemporaryFile, init=False)

    def __attrs_post_init__(self) -> None:
        self._template = subprocess.Popen(
            [sys.executable, "-m", "streams.testing.sink_kit.victims"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes, including those that hang."""
        os.killpg(self._template.pid, signal.SIGKILL)
        self._template.communicate()
        self._said.close()

    def killed(self, work: Work, more: Callable[[], None]) -> None:
        """Run a worker in a process until it has killed itself.

        Raises:
            SinkKitError: the process has ended in another way.
        """
        given, answers = self._template.stdin, self._template.stdout
        assert given is not None
        assert answers is not None
        payload = cloudpickle.dumps({**asdict(work, recurse=False), "bootstrap": self.bootstrap})
        given.write(json.dumps({"paths": sys.path, "size": len(payload)}).encode() + b"\n" + payload)
        given.flush()
        wait_until(
            lambda: bool(select.select([answers], [], [], 0)[0]), f"the process that is to die {work.fault.step}", more
        )
        status = answers.readline().strip().decode() or "of an error"
        if status != str(-signal.SIGKILL):
            self._said.seek(0)
            raise SinkKitError(
                f"{work.fault.step}: the process has ended with status {status} instead of being killed:\n"
                + self._said.read().decode(errors="replace")
            )


def _main() -> None:
    """Fork a worker for each line of the input, and answer with its status."""
    while line := sys.stdin.buffer.readline():
        given = json.loads(line)
        payload = sys.stdin.buffer.read(given["size"])
        sys.path[:] = given["paths"]
        process = os.fork()
        if process == 0:
            try:
                _run(cloudpickle.loads(payload))
            except BaseException:  # noqa: BLE001 - the process ends here, whatever it was.
                traceback.print_exc()
            os._exit(1)
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(given: dict[str, Any]) -> None:
    worker, _ = faulty_worker(TcpCluster(given.pop("bootstrap")), Work(**given))
    worker.run()


if __name__ == "__main__":
    _main()
