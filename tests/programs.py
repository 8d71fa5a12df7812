"""Python programs in processes of their own that start at once: forked from one that has imported the product.

``run`` and ``start`` take what follows ``python`` on a command line and behave as ``subprocess.run`` and
``subprocess.Popen`` with ``text=True``.  Importing the product costs half a second of CPU and hundreds of tests
need a process, so a template process of each test worker imports it once, and each program is a fork of that.
A program that is forked has its own folder, environment, standard streams and ``__main__``, and ends as any
interpreter does, except that it does not take its modules down: that writes to all memory that it shares with its
template, which costs six times as much as all the rest of a short program.  It shares with the others only what is
fixed before a program starts: the seed of string hashes and the settings ``PYTHON...``; where an environment sets
one of these, a new interpreter is started.
"""

import atexit
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.program_stub import ask, connect

#: The command that starts a program from a shell as ``run`` does; its first argument is the template's socket.
STUB = Path(__file__).with_name("program_stub.py")
_ROOT = Path(__file__).resolve().parents[1]
#: What programs import beyond the product; neither starts a thread, which a fork would lose.
_ALSO = ("pyarrow", "pyarrow.parquet", "tests.replay.handover")


class Program:
    """A running program: what ``subprocess.Popen`` offers of one."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: "str | os.PathLike[str] | None" = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self.args = [sys.executable, *arguments]
        self.returncode: int | None = None
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        theirs: list[int] = []
        streams: list[int] = []
        for number, (name, wanted) in enumerate((("stdin", stdin), ("stdout", stdout), ("stderr", stderr))):
            end = number
            if wanted == subprocess.PIPE:
                read, write = os.pipe()
                ours, end = (write, read) if name == "stdin" else (read, write)
                setattr(self, name, os.fdopen(ours, "w" if name == "stdin" else "r", encoding="utf-8"))
                theirs.append(end)
            elif wanted == subprocess.DEVNULL:
                end = os.open(os.devnull, os.O_RDWR)
                theirs.append(end)
            elif wanted is not None:
                end = wanted
            streams.append(end)
        self._connection = connect(_template())
        self._answers = ask(
            self._connection,
            [str(argument) for argument in arguments],
            str(cwd or Path.cwd()),
            os.environ if env is None else env,
            streams,
        )
        for end in theirs:
            os.close(end)
        self.pid = int(self._answers.readline())

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    def poll(self) -> int | None:
        """Return the exit status, None while the program runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status: the negative number of the signal that ended it."""
        if self.returncode is None:
            if not _is_readable(self._connection, timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode

    def communicate(self, stdin: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Write all input, read all output and wait for the end."""
        found = {}

        def read(name: str, stream: IO[str]) -> None:
            found[name] = stream.read()
            stream.close()

        streams = {"out": self.stdout, "err": self.stderr}
        readers = [
            threading.Thread(target=read, args=(name, stream), daemon=True)
            for name, stream in streams.items()
            if stream is not None
        ]
        for reader in readers:
            reader.start()
        if self.stdin is not None:
            with suppress(BrokenPipeError):
                self.stdin.write(stdin or "")
            with suppress(BrokenPipeError):
                self.stdin.close()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(timeout)
        return found.get("out", ""), found.get("err", "")

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start(arguments: Sequence[str], **options: Any) -> "Program | subprocess.Popen[str]":
    """Start a program; ``options`` are ``cwd``, ``env``, ``stdin``, ``stdout`` and ``stderr`` as of ``Popen``."""
    if _needs_interpreter(options.get("env")):
        return subprocess.Popen([sys.executable, *map(str, arguments)], text=True, **options)
    return Program(arguments, **options)


def run(
    arguments: Sequence[str], *, text: str = "", timeout: float = 600, check: bool = False, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end with ``text`` as standard input; ``timeout`` is in seconds and ends one that hangs.

    Raises:
        subprocess.CalledProcessError: ``check`` is given, and the exit status is not 0.
        subprocess.TimeoutExpired: the program has not ended in time; it is killed.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start(arguments, **pipes | options)
    try:
        out, err = process.communicate(text, timeout=timeout)
    except BaseException:
        process.kill()
        raise
    done = subprocess.CompletedProcess(process.args, process.wait(), out, err)
    if check:
        done.check_returncode()
    return done


def shell_environment(folder: Path) -> dict[str, str]:
    """Return an environment for a shell in which ``python`` and ``streams`` start as ``run`` does.

    ``folder`` gets the two commands.
    """
    folder.mkdir(exist_ok=True)
    for name, arguments in (("python", ""), ("streams", "-m streams ")):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{STUB}" "{_template()}" {arguments}"$@"\n')
        path.chmod(0o755)
    # Other tools of the environment come after these two.
    places = (str(folder), str(Path(sys.executable).parent), os.environ["PATH"])
    return os.environ | {"PATH": os.pathsep.join(places)}


def _needs_interpreter(env: Mapping[str, str] | None) -> bool:
    """Whether an environment has other settings of Python than this process."""
    if env is None:
        return False
    names = {name for name in (*env, *os.environ) if name.startswith("PYTHON")} - {"PYTHONPATH", "PYTHONUTF8"}
    return any(env.get(name) != os.environ.get(name) for name in names)


def _is_readable(connection: socket.socket, timeout: float | None) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(timeout))


# --- the template -------------------------------------------------------------------------------------------


@cache
def _template() -> str:
    """Start the template of this process; return its address."""
    folder = tempfile.mkdtemp(prefix="streams-tests-")
    address = f"{folder}/template"
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.programs", address],
        cwd=_ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def end() -> None:
        process.stdin.close()
        process.wait()
        with suppress(OSError):
            os.rmdir(folder)

    atexit.register(end)
    if not process.stdout.readline():
        raise RuntimeError("the template of the tests' programs has not started, see above")
    process.stdout.close()
    return address


class _Template:
    """Forks a program for each connection and reports its end; ends with the process that has started it."""

    def __init__(self, address: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(address)
        self.listener.listen(64)
        self.programs: dict[int, socket.socket] = {}
        self.wake_in, self.wake_out = socket.socketpair()
        self.wake_in.setblocking(False)
        self.wake_out.setblocking(False)

    def serve(self) -> dict[str, Any] | None:
        """Serve until standard input ends; in a fork, return what it is to run."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_out.fileno(), warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            for item in (self.listener, self.wake_in, sys.stdin):
                selector.register(item, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self.listener:
                        connection, _ = self.listener.accept()
                        if (pid := os.fork()) == 0:
                            selector.close()
                            return self._become(connection)
                        self.programs[pid] = connection
                        connection.sendall(f"{pid}\n".encode())
                    elif key.fileobj is self.wake_in:
                        self.wake_in.recv(4096)
                        self._reap()
                    else:
                        return None

    def _reap(self) -> None:
        while self.programs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self.programs.pop(pid) as connection, suppress(OSError):
                connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())

    def _become(self, connection: socket.socket) -> dict[str, Any]:
        """Take over the streams, the folder and the environment of the request."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Tests that a shell has put into the background ignore SIGINT, and would hand that on.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for item in (self.listener, self.wake_in, self.wake_out, *self.programs.values()):
            item.close()
        _, streams, _, _ = socket.recv_fds(connection, 1, 3)
        request: dict[str, Any] = json.loads(connection.makefile("rb").readline())
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number, inheritable=True)
            os.close(stream)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        # Open until the end, as those of any program.
        options: Any = {"encoding": "utf-8", "closefd": False}
        sys.stdin = open(0, **options)  # noqa: SIM115
        sys.stdout = open(1, "w", buffering=1 if os.isatty(1) else -1, **options)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", **options)  # noqa: SIM115
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
        return request


def _main(arguments: list[str]) -> None:
    """Run what follows ``python``: a module, a text or a file."""
    import runpy

    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:1] = places
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        module = type(sys)("__main__")
        module.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = module
        exec(compile(arguments[1], "<string>", "exec"), module.__dict__)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


def _run_to_the_end(arguments: list[str]) -> None:
    """Run a program and end the process as the interpreter does: threads, exit functions, standard streams."""
    status = 0
    try:
        _main(arguments)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        status = end.code or 0
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        # The interpreter reports it in its own words, with its own status.
        sys.exit(status)
    os._exit(status)


def _import_product() -> None:
    import importlib
    import pkgutil

    import streams

    for module in pkgutil.walk_packages(streams.__path__, "streams."):
        # Those of Spark import what starts threads.
        if not module.name.startswith("streams.replay.spark") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _ALSO:
        importlib.import_module(name)


if __name__ == "__main__":
    _import_product()
    # Neither a collection nor the end of a program is to go through what all share.
    gc.collect()
    gc.freeze()
    template = _Template(sys.argv[1])
    os.write(1, b"ready\n")
    if (wanted := template.serve()) is not None:
        _run_to_the_end(wanted["arguments"])
    else:
        os.unlink(sys.argv[1])
