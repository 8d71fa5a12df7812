"""What this process and those below it use: CPU of driver, JVM and Python workers apart, peak memory.

Reads /proc, so Linux only.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from attrs import define, field

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_LOOK_S = 0.2


class Cpu(NamedTuple):
    """Seconds of CPU by whose they are."""

    driver: float = 0.0
    jvm: float = 0.0
    workers: float = 0.0

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(*(mine - its for mine, its in zip(self, other, strict=True)))


class _Process(NamedTuple):
    pid: int
    parent: int
    name: str
    own_s: float
    #: Of children that have ended.
    children_s: float


def _processes() -> dict[int, _Process]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # It has ended meanwhile.
                head, _, rest = (entry / "stat").read_text().rpartition(") ")
                fields = rest.split()
                user, system, child_user, child_system = (int(text) * _TICK_S for text in fields[11:15])
                found[int(entry.name)] = _Process(
                    int(entry.name), int(fields[1]), head.partition("(")[2], user + system, child_user + child_system
                )
    return found


def below() -> Iterator[_Process]:
    """Yield this process and all below it."""
    known = _processes()
    children: dict[int, list[_Process]] = {}
    for process in known.values():
        children.setdefault(process.parent, []).append(process)
    waiting = [known[os.getpid()]]
    while waiting:
        process = waiting.pop()
        yield process
        waiting += children.get(process.pid, [])


def cpu_used() -> Cpu:
    """Return what was used so far; the worker daemon's includes that of workers that have ended."""
    driver = jvm = workers = 0.0
    for process in below():
        if process.pid == os.getpid():
            driver += process.own_s
        elif process.name == "java":
            jvm += process.own_s
        else:
            workers += process.own_s + process.children_s
    return Cpu(driver, jvm, workers)


@define
class PeakMemory:
    """Highest resident memory of each process while the block runs, in MiB; those that end within it too."""

    driver: int = 0
    jvm: int = 0
    #: Of the largest one.
    worker: int = 0
    #: Last seen CPU time of each worker in seconds: Spark's daemon does not count workers that have ended.
    worker_cpu_s: dict[int, float] = field(factory=dict)
    _done: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "PeakMemory":
        for process in below():
            with suppress(OSError):
                Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # Peaks from now on.
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        assert self._thread is not None
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        for process in below():
            with suppress(OSError, StopIteration):
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                peak = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) >> 10
                if process.pid == os.getpid():
                    self.driver = max(self.driver, peak)
                elif process.name == "java":
                    self.jvm = max(self.jvm, peak)
                else:
                    self.worker = max(self.worker, peak)
                    self.worker_cpu_s[process.pid] = process.own_s
