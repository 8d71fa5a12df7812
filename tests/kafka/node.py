"""A real Apache Kafka of one node, for tests: started from its published jars, killed and restarted.

Knows Kafka's jars, its log and two requests on a raw socket; nothing of streams but the clock.
"""

import shutil
import signal
import socket
import struct
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from attrs import define, field

from streams.core.clock import SystemClock
from tests.ports import free_ports
from tests.waiting import WATCHDOG_MS, WATCHDOG_S

JARS = Path(__file__).resolve().parents[2] / ".kafka"
"""Where `make kafka-jars` puts Kafka's jars (`node`) and those of Spark's source (`spark`)."""

NODE_ID = 1
_CLOCK = SystemClock()

# What a node of its own needs: every internal topic with one replica, and no wait for further members.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": NODE_ID,
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": 2,
    "num.io.threads": 4,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    # Tests' records are older than seven days, and the first check comes half a minute after the start.
    "log.retention.ms": -1,
    # Changelogs of windows have a retention of their own, by the clock, which the cleaner sees to every 15 s:
    # what tests have written with times of years ago would be gone before it is restored.
    "log.cleaner.backoff.ms": 86_400_000,
    # A killed node comes back only when its last session has run out: nine seconds by default.
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 3_000,
}


class NodeError(Exception):
    """The node did not do what it should; the text ends with the tail of its log."""


def jars(name: str) -> list[Path]:
    """Jars of one class path of pom.xml.

    Raises:
        NodeError: they have not been fetched, or there is no Java to run them.
    """
    if shutil.which("java") is None:
        raise NodeError("no java on the PATH: the tests of a real Kafka need Java 17 or later")
    found = sorted((JARS / name).glob("*.jar"))
    if not found:
        raise NodeError(f"no jars in {JARS / name}: fetch them with `make kafka-jars`")
    return found


def compiled(source: Path, target: Path) -> Path:
    """Compile a Java program that uses Kafka Streams, with the classes of its folder that it names."""
    classpath = ":".join(map(str, jars("streams")))
    command = ["javac", "-d", str(target), "-cp", classpath, "-sourcepath", str(source.parent), str(source)]
    subprocess.run(command, timeout=WATCHDOG_S, check=True)
    return target


@define(eq=False)
class KafkaNode:
    """Controller and broker in one process, on ports of the loopback that it keeps over restarts.

    ``folder`` holds data, settings and ``server.log``, and is the node's alone. ``settings`` are Kafka's,
    and win over those of this module; a changed one holds from the next start. The heap is given in MiB.
    In a `with` the node is up, and stopped behind it.
    """

    folder: Path
    settings: Mapping[str, str | int] = field(factory=dict, kw_only=True)
    heap_mib: int = field(default=512, kw_only=True)
    #: A folder of classes for the node, or None.
    classes: Path | None = field(default=None, kw_only=True)
    port: int = field(init=False)
    controller_port: int = field(init=False)
    _log_start: int = field(default=0, init=False)
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)
    _guard: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.port, self.controller_port = free_ports(2)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """What a client is given."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """Its process is there, whether it answers or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        """What all its processes have said so far."""
        return self.folder / "server.log"

    def start(self) -> None:
        """Start it on what is in its folder, and return when it serves clients.

        Raises:
            NodeError: it runs already, it ended, or it never serves.
        """
        if self.is_running:
            raise NodeError(f"node on {self.bootstrap_servers} is running")
        self._dismiss_guard()
        self._write_settings()
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        if not (self.folder / "data" / "meta.properties").exists():
            self._format()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._properties)), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        # Whoever kills the tests' process takes the node along: the guard's input then ends.
        self._guard = subprocess.Popen(
            ["sh", "-c", 'read -r _ || kill -9 "$0"', str(self._process.pid)], stdin=subprocess.PIPE
        )
        try:
            self._await_service(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop it as an operator does, with SIGTERM; nothing happens if it is down.

        Raises:
            NodeError: it never ends; it is killed then.
        """
        if self.is_running:
            self._end(signal.SIGTERM)
        self._dismiss_guard()

    def kill(self) -> None:
        """End it at once, as `kill -9` does; nothing happens if it is down."""
        if self.is_running:
            self._end(signal.SIGKILL)
        self._dismiss_guard()

    def _end(self, by: signal.Signals) -> None:
        assert self._process is not None
        # The guard goes first: it must not outlive the process whose number it knows.
        self._dismiss_guard()
        self._process.send_signal(by)
        try:
            self._process.wait(WATCHDOG_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise NodeError(self._said(f"did not stop within {WATCHDOG_MS} ms of {by.name}, and was killed")) from None

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _java(self, main: str, *arguments: str) -> list[str]:
        return [
            "java",
            f"-Xmx{self.heap_mib}m",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            # It lists 300 settings at each start.
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
            "-cp",
            ":".join(map(str, [*jars("node"), *([self.classes] if self.classes else [])])),
            main,
            *arguments,
        ]

    def _write_settings(self) -> None:
        settings = {
            **_SETTINGS,
            **self.settings,
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "log.dirs": self.folder / "data",
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")

    def _format(self) -> None:
        """Make the data folder that of a new cluster."""
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self._java(
            "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config", str(self._properties)
        )
        with self.log.open("ab") as log:
            try:
                subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=WATCHDOG_S, check=True
                )
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                raise NodeError(self._said(f"could not format its storage ({error})")) from error

    def _await_service(self, process: "subprocess.Popen[bytes]") -> None:
        deadline_ms = _CLOCK.monotonic_ms() + WATCHDOG_MS
        tried: OSError | None = None
        while _CLOCK.monotonic_ms() < deadline_ms:
            try:
                if self.serves():
                    return
            except OSError as error:
                tried = error
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            raise NodeError(self._said(f"ended with status {process.returncode} while it started"))
        raise NodeError(self._said(f"does not serve {WATCHDOG_MS} ms after its start (last error: {tried})"))

    def serves(self) -> bool:
        """Whether it answers ApiVersions, and has itself as broker that topics can be placed on.

        Raises:
            OSError: no connection, or one that ended within the answer.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            (error,) = struct.unpack_from(">h", _ask(connection, 18, 0, b""))
            # Metadata v4: no topics are asked for; time throttled, then the brokers that are unfenced.
            (brokers,) = struct.unpack_from(">i", _ask(connection, 3, 4, struct.pack(">i?", 0, False)), 4)
        return bool(error == 0 and brokers == 1)

    def _said(self, what: str) -> str:
        """What went wrong, with all that this start has said of errors, and the last that it said at all."""
        said: list[str] = []
        if self.log.exists():
            with self.log.open("rb") as log:
                log.seek(self._log_start)
                said = log.read().decode("utf-8", "replace").splitlines()
        errors = [line for line in said if " ERROR " in line or "Exception" in line]
        header = f"Kafka on {self.bootstrap_servers} {what}; from {self.log}:"
        return "\n".join([header, *errors[-15:], "...", *said[-15:]])


def _ask(connection: socket.socket, api_key: int, api_version: int, body: bytes) -> bytes:
    """The answer's body to a request with header version 1."""
    client = b"streams-tests"
    request = struct.pack(">hhih", api_key, api_version, 0, len(client)) + client + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)[4:]


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError(f"connection ended after {len(received)} of {size} bytes")
        received += chunk
    return bytes(received)
