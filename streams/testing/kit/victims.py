"""Workers that are killed, and processes of their own for them.

``python -m streams.testing.kit.victims`` forks these: it reads their work, a pickled function, from its standard input.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import cloudpickle
from attrs import define, field

from streams.broker import EmbeddedBroker
from streams.connect import SinkWorker, SourceWorker
from streams.core.clock import SystemClock
from streams.core.concurrency.threads import SystemThreads
from streams.core.topic import Topic

#: Longest time that anything may take, after which a kit gives up, in milliseconds.
PATIENCE_MS: Final = 120_000
#: Partitions of the topic.
PARTITIONS: Final = 3
#: Rows that a message shows.
_SHOWN: Final = 5
_PAUSE_MS: Final = 3
#: Time after which a victim that waits for its step gets more records, in milliseconds.
_HUNGRY_MS: Final = 2_000
#: What victims need, imported before they are forked.
_IMPORTED: Final = ("streams.testing.sink_kit", "streams.testing.source_kit", "streams.clients.tcp.sockets")


@define
class Waiting:
    """Waits for conditions; raises ``error`` if one is not met in time."""

    error: type[Exception]

    def until(self, is_done: Callable[[], bool], what: str, more: Callable[[], None] | None = None) -> None:
        """Wait for a condition; call ``more`` now and then."""
        clock = SystemClock()
        pause = SystemThreads().signal()
        began = fed = clock.monotonic_ms()
        while not is_done():
            now = clock.monotonic_ms()
            if now - began > PATIENCE_MS:
                raise self.error(f"{what} has not ended after {PATIENCE_MS} ms")
            if more is not None and now - fed > _HUNGRY_MS:
                more()
                fed = now
            pause.wait(_PAUSE_MS)


@define(eq=False)
class Processes:
    """Runs functions in processes of their own, which kill themselves; it is a context manager.

    The processes are forks of a process that has imported the modules they need, and has a single thread.
    """

    error: type[Exception]
    #: The addresses of the broker.
    servers: str
    _template: "subprocess.Popen[bytes]" = field(init=False)
    _said: Any = field(factory=tempfile.TemporaryFile, init=False)

    def __attrs_post_init__(self) -> None:
        self._template = subprocess.Popen(
            [sys.executable, "-m", "streams.testing.kit.victims"],
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

    def killed(self, work: Callable[[], None], step: str, more: Callable[[], None]) -> None:
        """Run a function in a process until this has killed itself; raise an error if it has ended in another way."""
        work_input = self._template.stdin
        answers = self._template.stdout
        assert work_input is not None
        assert answers is not None
        payload = cloudpickle.dumps(work)
        work_input.write(json.dumps({"paths": sys.path, "size": len(payload)}).encode() + b"\n" + payload)
        work_input.flush()
        Waiting(self.error).until(
            lambda: bool(select.select([answers], [], [], 0)[0]), f"the process that is to die {step}", more
        )
        status = answers.readline().strip().decode() or "of an error"
        if status != str(-signal.SIGKILL):
            self._said.seek(0)
            raise self.error(
                f"{step}: the process has ended with status {status} instead of being killed:\n"
                + self._said.read().decode(errors="replace")
            )


@contextmanager
def victims(
    topic: Topic[Any, Any], by: str, error: type[Exception]
) -> Iterator[tuple[EmbeddedBroker, Processes | None]]:
    """Open a broker with a topic of three partitions, and a forker of processes with ``by="process"``.

    Raises:
        ValueError: ``by`` is neither "exception" nor "process".
    """
    if by not in ("exception", "process"):
        raise ValueError(f"by is 'exception' or 'process', not {by!r}")
    with EmbeddedBroker(settings={"group.min.session.timeout.ms": "1"}) as broker:
        broker.create_topic(topic.name, PARTITIONS)
        if by == "exception":
            yield broker, None
            return
        with Processes(error, broker.serve("127.0.0.1:0").bootstrap_servers) as processes:
            yield broker, processes


def close_worker(worker: SinkWorker[Any, Any] | SourceWorker[Any, Any], what: str, error: type[Exception]) -> None:
    """Close a worker; raise ``error`` if it has ended with another one."""
    try:
        worker.close(PATIENCE_MS)
    except Exception as failure:
        raise error(f"{what} has ended with {type(failure).__name__}: {failure}") from failure


def check_closing(connector: Any, names: Iterable[str], passing: Iterable[Exception], error: type[Exception]) -> None:
    """Check that methods do nothing before ``open``, and that errors that do not pass are not retriable."""
    for failure in passing:
        if connector.is_retriable(failure) is not False:
            raise error(f"is_retriable({failure!r}) is not False: only errors that pass by themselves are True")
    for name in names:
        try:
            getattr(connector, name)()
        except Exception as failure:
            raise error(f"{name}() fails before open(), as after an open() that failed: {failure!r}") from failure


def differences(
    expected: "Counter[Any]", rows: "Counter[Any]", what: str, shown: Callable[[Any], str] = repr
) -> list[str]:
    """Return what is missing and what is too many in rows, with some examples."""
    return [
        f"{part.total()} {what} are {how}, such as {', '.join(map(shown, list(part)[:_SHOWN]))}"
        for how, part in (("missing", expected - rows), ("too many", rows - expected))
        if part
    ]


def _main() -> None:
    """Fork a process for each line of the input, and answer with its status."""
    for name in _IMPORTED:
        import_module(name)
    while line := sys.stdin.buffer.readline():
        head = json.loads(line)
        payload = sys.stdin.buffer.read(head["size"])
        sys.path[:] = head["paths"]
        process = os.fork()
        if process == 0:
            try:
                cloudpickle.loads(payload)()
            except BaseException:  # noqa: BLE001 - the process ends here, whatever it was.
                traceback.print_exc()
            os._exit(1)
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
