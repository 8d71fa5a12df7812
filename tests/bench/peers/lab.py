"""The scratch folder of the comparison: what the peers need, fetched and made once, and the broker's data.

Kafka Streams' jars come by Maven, the Python peers by pip into environments of their own.  The peers' programs
lie outside of the project: where, is an option.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from streams import Admin
from tests.bench.peers.topics import PARTITIONS, fresh_topic, records_of
from tests.kafka.node import KafkaNode

PROJECT = Path(__file__).resolve().parents[3]
SCRATCH = PROJECT / ".bench"
PEERS = PROJECT.parent / "shared" / "bench"

#: Programs of the peers that are called here.
_NEEDED = [
    "KsBench.java",
    "KsLat.java",
    "pom.xml",
    "ks.sh",
    "common.py",
    "gen.py",
    "proto.py",
    "native.py",
    "bench_quix.py",
    "bench_bytewax.py",
    "lat_app.py",
]
_OWN_JAVA = Path(__file__).with_name("java")

#: Of 50 events 46 are bids.
_EVENTS, _BIDS = 50, 46

_ENVIRONMENTS = {
    "python": ["quixstreams==3.28.1", "orjson", "rocksdict", "google-crc32c"],
    "bytewax": ["bytewax[kafka]==0.21.1", "orjson"],
}
_BROKER: dict[str, str | int] = {
    "num.partitions": PARTITIONS,
    "log.cleaner.enable": "false",
    "log.retention.check.interval.ms": 360_000_000,
    # Each run deletes what it has written: the disk gets it back at once.
    "file.delete.delay.ms": 1000,
}


class LabError(Exception):
    """The comparison cannot be run here; the text says what is missing."""


@frozen
class Lab:
    """Folders of the peers' programs and of all that is made for them."""

    peers: Path = PEERS
    scratch: Path = SCRATCH
    _servers: list[str] = field(factory=list)

    @property
    def servers(self) -> str:
        """Where the broker listens."""
        return self._servers[0]

    def found(self, servers: str) -> None:
        """Say where the broker listens, once it does."""
        self._servers[:] = [servers]

    def python(self, name: str) -> str:
        """The interpreter of an environment."""
        return str(self.scratch / f"venv-{name}" / "bin" / "python")

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """What the peers' programs read."""
        return {
            **os.environ,
            "BOOTSTRAP": self.servers,
            "LAB": str(self.scratch),
            "PYTHONDONTWRITEBYTECODE": "1",
            # For librdkafka: with its default of a second it pauses where it has fetched more than it thinks good.
            "FQB": "5",
            **(more or {}),
        }

    @property
    def class_path(self) -> str:
        return f"{self.scratch / 'classes'}:{self.scratch / 'kafka' / 'libs'}/*"

    def prepare(self) -> None:
        """Fetch and build what is not there yet.

        Raises:
            LabError: the peers' programs or a tool are missing, or one of the steps failed.
        """
        missing = [name for name in _NEEDED if not (self.peers / name).exists()]
        if missing:
            raise LabError(
                f"the peers' programs are not in {self.peers} ({', '.join(missing)} missing): say where they are "
                "with --peers FOLDER"
            )
        for tool in ("java", "javac", "mvn"):
            if shutil.which(tool) is None:
                raise LabError(f"no {tool} on the PATH: Kafka Streams needs Java 17 or later and Maven")
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._once("jars", self._fetch_jars)
        self._once("classes", self._compile)
        for name, packages in _ENVIRONMENTS.items():
            self._once(f"venv-{name}", lambda name=name, packages=packages: self._install(name, packages))

    def node(self) -> KafkaNode:
        """The broker, with the input of earlier runs if there is any."""
        return KafkaNode(self.scratch / "broker", settings=_BROKER, heap_mib=1024)

    def fill(self, admin: Admin, bids: int) -> None:
        """Let the broker have the input, and the one of a single partition by which sessions are compared."""
        for prefix, partitions, count in (("", PARTITIONS, bids), ("one-", 1, checked_bids(bids))):
            names = {f"{prefix}{kind}" for kind in ("bids", "auctions")}
            there = names <= set(admin.list_topics())
            if there and records_of(admin, f"{prefix}bids", partitions) == count:
                continue
            _say(f"{count:,} bids for {prefix}bids, {partitions} partitions")
            for name in sorted(names):
                fresh_topic(admin, name, partitions)
            self._produce(prefix, count)

    def _produce(self, prefix: str, bids: int) -> None:
        from confluent_kafka import Producer

        events = self._generator().events(-(-bids * _EVENTS // _BIDS))
        settings: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "queue.buffering.max.messages": 2_000_000,
        }
        producer = Producer(settings)
        seen = 0
        for number, (kind, key, value, timestamp_ms) in enumerate(events):
            seen += kind == "bids"
            if kind != "persons" and seen <= bids:
                producer.produce(f"{prefix}{kind}", value, key, timestamp=timestamp_ms)
            if not number % 1000:
                producer.poll(0)
        if producer.flush(60):
            raise LabError(f"the broker did not take all of the input for {prefix}bids")

    def _generator(self) -> Any:
        spec = importlib.util.spec_from_file_location("peers_gen", self.peers / "gen.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # The peers' folder may be read-only, and is not ours.
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            spec.loader.exec_module(module)
        finally:
            sys.dont_write_bytecode = before
        return module

    def _once(self, what: str, make: Any) -> None:
        stamp = self.scratch / f".{what}"
        if not stamp.exists():
            _say(f"preparing {what}")
            make()
            stamp.touch()

    def _fetch_jars(self) -> None:
        folder = self.scratch / "kafka" / "libs"
        pom = str(self.peers / "pom.xml")
        _run(["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={folder}"])

    def _compile(self) -> None:
        folder = self.scratch / "classes"
        folder.mkdir(exist_ok=True)
        sources = [self.peers / "KsBench.java", self.peers / "KsLat.java", *sorted(_OWN_JAVA.glob("*.java"))]
        _run(["javac", "-nowarn", "-cp", self.class_path, "-d", str(folder), *map(str, sources)])

    def _install(self, name: str, packages: Sequence[str]) -> None:
        folder = self.scratch / f"venv-{name}"
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([self.python(name), "-m", "pip", "install", "--quiet", *packages])


def checked_bids(bids: int) -> int:
    """Bids of the input with one partition: a quarter."""
    return bids // 4 // 4 * 4


def _say(what: str) -> None:
    print(f"# {what}", file=sys.stderr, flush=True)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise LabError(f"{command[0]} failed with status {done.returncode}:\n{tail}")
