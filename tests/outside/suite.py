"""What a suite of tests is that others wrote, and the room that it runs in.

A module of ``tests/outside/suites`` has one, ``SUITE``.  Its ``run`` fetches the tests from their registry, starts what
they need, and yields an outcome for each test; what an outcome means is said by the list of expected failures
(``listed.py``), and nowhere in the suite.
"""

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from attrs import define, field, frozen

from tests.outside.broker import Broker, broker
from tests.outside.listed import Listed

#: The command of the checkout that is tested.
STREAMS = (sys.executable, "-m", "streams")
ROOT = Path(__file__).resolve().parents[2]
#: A program that says nothing for so long hangs, unless a suite knows better.
QUIET_S = 600.0
#: Why a program was ended, beside its silence.
TIME_IS_OVER = "the suite's time was over"


class UnavailableError(Exception):
    """What a suite needs cannot be had here; the suite is left out, and the reason is shown."""


@frozen
class Outcome:
    """What became of a test; ``note`` says why it failed, or why the suite itself left it out."""

    test: str
    result: Literal["passed", "failed", "left out"]
    note: str = ""


@frozen
class Suite:
    """Tests that somebody else wrote.

    ``name`` is that of ``SUITES=`` and of ``expected/NAME.toml``, ``title``, ``version`` and ``origin`` are those of
    the page, ``needs`` are programs that must be on the PATH.  The run ends after ``limit_s`` seconds.
    """

    name: str
    title: str
    version: str
    origin: str
    run: "Callable[[Room], Iterator[Outcome]]"
    needs: Sequence[str] = ()
    limit_s: float = 3_600.0


@define(eq=False)
class Program:
    """A command that runs in a process group of its own; iterating gives its lines, of both outputs, as they come.

    ``status`` is its exit status behind the last line, or None if it was ended: it had said nothing for ``quiet_s``
    seconds, or its suite's time was over (``ended_by`` says which).
    """

    process: "subprocess.Popen[bytes]"
    log: Path
    deadline: float
    quiet_s: float
    status: int | None = None
    ended_by: str = ""

    def __iter__(self) -> Iterator[str]:
        output = self.process.stdout
        assert output is not None
        rest = b""
        with self.log.open("ab") as log, selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while True:
                left_s = self.deadline - time.monotonic()
                if not selector.select(max(0.0, min(left_s, self.quiet_s))):
                    self.ended_by = f"no word in {self.quiet_s:.0f} s" if left_s > self.quiet_s else TIME_IS_OVER
                    break
                if not (data := os.read(output.fileno(), 1 << 16)):
                    self.status = self.process.wait()
                    break
                log.write(data)
                *lines, rest = (rest + data).split(b"\n")
                yield from (line.decode(errors="replace").rstrip("\r") for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    def end(self) -> None:
        """End the whole group at once, also if its first process has left others behind."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@define(eq=False)
class Room:
    """What a run of a suite is given.

    ``cache`` is the suite's folder, which is kept, so that nothing is fetched twice; ``logs`` is emptied before each
    run.  ``listed`` has the tests that are not to be run.  ``only`` is a part of the names of the tests that were asked
    for, or nothing: a suite that can select tests by it does.
    """

    suite: Suite
    cache: Path
    listed: Listed
    only: str = ""
    limit_s: float = 0.0
    logs: Path = field(init=False)
    deadline: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.logs = self.cache / "logs"
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.deadline = time.monotonic() + (self.limit_s or self.suite.limit_s)

    @property
    def left_s(self) -> float:
        """Seconds that the suite still has."""
        return max(1.0, self.deadline - time.monotonic())

    @contextmanager
    def program(
        self,
        *command: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        quiet_s: float = QUIET_S,
        log: str = "output",
    ) -> Iterator[Program]:
        """Start a command with ``env`` added to the environment; what is left of it behind the ``with`` is killed."""
        process = subprocess.Popen(
            command,
            cwd=cwd or self.cache,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        program = Program(process, self.logs / f"{log}.log", self.deadline, quiet_s)
        try:
            yield program
        finally:
            program.end()

    def fetch(self, *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        """Run a command that fetches or builds; where it fails, the suite is left out.

        Raises:
            UnavailableError: It failed; with its last lines.
        """
        with self.program(*command, cwd=cwd, env=env, log="fetch") as program:
            lines = [line for line in program if line.strip()]
        if program.status != 0:
            said = " | ".join(lines[-3:])
            raise UnavailableError(f"{' '.join(command[:3])}: {program.ended_by or said}")

    @contextmanager
    def broker(
        self,
        *options: str,
        data: bool = True,
        kill_every_s: float | None = None,
        most_kills: int = 12,
        proxied: bool = False,
        port: int = 0,
        advertised: str = "",
    ) -> Iterator[Broker]:
        """Run ``streams broker`` with these options; see ``broker.py``.

        Raises:
            UnavailableError: ``port`` is one that the suite's tests have built in, and somebody else listens there.
        """
        self.is_free(port)
        command = [*STREAMS, "broker", *options]
        with broker(
            command,
            self.logs,
            data=data,
            kill_every_s=kill_every_s,
            most_kills=most_kills,
            proxied=proxied,
            port=port,
            advertised=advertised,
        ) as server:
            yield server

    def is_free(self, port: int) -> None:
        """Make sure that nobody listens on a port; 0 is any.

        Raises:
            UnavailableError: Somebody does.
        """
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise UnavailableError(f"port {port} of 127.0.0.1, which the tests have built in, is taken") from None
