"""Processes that are killed, for the kits of sinks and sources.

``python -m streams.testing.victims`` forks them: it reads their work, a pickled function, from its standard input.
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
from importlib import import_module
from typing import Any, Final

import cloudpickle
from attrs import define, field

from streams.core.clock import SystemClock
from streams.core.concurrency.threads import SystemThreads

#: Longest time that anything may take, after which a kit gives up, in milliseconds.
PATIENCE_MS: Final = 120_000
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
    _template: "subprocess.Popen[bytes]" = field(init=False)
    _said: Any = field(factory=tempfile.TemporaryFile, init=False)

    def __attrs_post_init__(self) -> None:
        self._template = subprocess.Popen(
            [sys.executable, "-m", "streams.testing.victims"],
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
        given = self._template.stdin
        answers = self._template.stdout
        assert given is not None
        assert answers is not None
        payload = cloudpickle.dumps(work)
        given.write(json.dumps({"paths": sys.path, "size": len(payload)}).encode() + b"\n" + payload)
        given.flush()
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


def _main() -> None:
    """Fork a process for each line of the input, and answer with its status."""
    for name in _IMPORTED:
        import_module(name)
    while line := sys.stdin.buffer.readline():
        given = json.loads(line)
        payload = sys.stdin.buffer.read(given["size"])
        sys.path[:] = given["paths"]
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
