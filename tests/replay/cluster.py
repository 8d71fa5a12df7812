"""A standalone cluster of Spark on this machine: a master and workers in processes of their own, on loopback.

Knows Spark's own launcher and its logs; nothing of streams.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Self

from attrs import define, field

from tests.waiting import until


@define(eq=False)
class Daemon:
    """A process of the cluster, with its log; ``kill`` ends it as a machine that is lost."""

    log: Path
    _process: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, kind: str, log: Path, *arguments: str) -> "Daemon":
        """Start the class ``kind`` of Spark's package ``deploy``."""
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        home = Path(spec.origin).parent
        settings = log.with_suffix(".conf")
        settings.write_text("spark.master.rest.enabled false\nspark.ui.enabled false\n")
        command = [
            home / "bin" / "spark-class",
            f"org.apache.spark.deploy.{kind}",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
        ]
        command += ["--webui-port", "0", "--properties-file", settings, *arguments]
        given = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=given, start_new_session=True)
        return cls(log, process)

    def found(self, pattern: str) -> str:
        """Wait until the log has a line with the pattern, and return its first group."""

        def is_there() -> bool:
            assert self._process.poll() is None, self.log.read_text()
            return re.search(pattern, self.log.read_text()) is not None

        until(is_there, seen=self.log.read_text)
        match = re.search(pattern, self.log.read_text())
        assert match is not None
        return match[1]

    def kill(self) -> None:
        """Kill the process, and the executors that it has started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@define(eq=False)
class SparkCluster:
    """A master and its workers, each of which has one core, and a folder of its own for the executors."""

    folder: Path
    master: str = field(default="", init=False)
    #: The workers that were not killed, by the name of their folder.
    _workers: dict[str, Daemon] = field(factory=dict, init=False)
    _stack: ExitStack = field(factory=ExitStack, init=False)
    _numbers: Iterator[int] = field(factory=count, init=False)

    def __enter__(self) -> Self:
        """Start the master."""
        daemon = Daemon.start("master.Master", self.folder / "master.log")
        self._stack.callback(daemon.kill)
        self.master = daemon.found(r"Starting Spark master at (spark://\S+)")
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all that is left of the cluster."""
        self._stack.close()

    def have(self, number: int) -> None:
        """Start workers until there are this many."""
        while len(self._workers) < number:
            name = f"worker-{next(self._numbers)}"
            arguments = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name), self.master)
            daemon = Daemon.start("worker.Worker", self.folder / f"{name}.log", *arguments)
            self._stack.callback(daemon.kill)
            daemon.found(r"(Successfully registered with master)")
            self._workers[name] = daemon

    def kill(self, folder: Path) -> None:
        """Kill the worker whose executor has this working folder."""
        self._workers.pop(folder.relative_to(self.folder).parts[0]).kill()
