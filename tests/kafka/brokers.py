"""A cluster of several brokers from the node's jars: one that also controls it, and others that join."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import define, field

from tests.kafka.node import NODE_ID, KafkaNode
from tests.waiting import WATCHDOG_MS, WATCHDOG_S

CLUSTER_ID = "c3RyZWFtcy10ZXN0cy0xMQ"
#: Everything is there three times, and one that is left may go on alone.
REPLICATED = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "default.replication.factor": 3,
    "min.insync.replicas": 1,
    "controlled.shutdown.enable": "true",
    # A broker that is killed leaves the replicas in sync with its session; one that is slow must not leave them.
    "replica.lag.time.max.ms": WATCHDOG_MS,
    "replica.fetch.wait.max.ms": 50,
}


@define(eq=False)
class Broker(KafkaNode):
    """A broker of a cluster; ``controller`` is the node that controls it, None for that node itself."""

    number: int = field(default=NODE_ID, kw_only=True)
    controller: "KafkaNode | None" = field(default=None, kw_only=True)

    def serves(self) -> bool:
        """Whether it is up; how many others are does not matter."""
        try:
            return super().serves() or "Kafka Server started" in self._own_log()
        except OSError:
            return False

    def _own_log(self) -> str:
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    def _write_settings(self) -> None:
        super()._write_settings()
        if self.controller is None:
            return
        text = self._properties.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line.partition("=")[0] not in ("listeners", "process.roles")]
        own = f"{NODE_ID}@127.0.0.1:{self.controller_port}"
        text = "\n".join(lines).replace(own, f"{NODE_ID}@127.0.0.1:{self.controller.controller_port}")
        text = text.replace(f"node.id={NODE_ID}", f"node.id={self.number}")
        text += f"\nprocess.roles=broker\nlisteners=PLAINTEXT://{self.bootstrap_servers}\n"
        self._properties.write_text(text, encoding="utf-8")

    def _format(self) -> None:
        command = self._java(
            "kafka.tools.StorageTool", "format", f"--cluster-id={CLUSTER_ID}", "--config", str(self._properties)
        )
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WATCHDOG_S, check=True)


@contextmanager
def brokers(folder: Path) -> Iterator[list[Broker]]:
    """Run three brokers, the first of which is the controller too."""
    with ExitStack() as stack:
        first = stack.enter_context(Broker(folder / "1", settings=REPLICATED, heap_mib=320))
        others = [
            stack.enter_context(
                Broker(folder / str(number), settings=REPLICATED, heap_mib=320, number=number, controller=first)
            )
            for number in (2, 3)
        ]
        yield [first, *others]
