"""What aiokafka's tests take for Docker: a container of Kafka is ``streams broker`` at the address that they choose."""

import json
import os
import subprocess
from types import SimpleNamespace
from typing import Any

from attrs import define, field


class Container:
    """A container; without a process it is one that only makes files, which it does not."""

    def __init__(self, process: "subprocess.Popen[bytes] | None" = None) -> None:
        self._process = process

    def exec_run(self, command: list[str], **_: Any) -> tuple[int, bytes]:
        """Run nothing; certificates and Kerberos are left out, and Kafka's own tools are not here."""
        return 0, b""

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@define
class Client:
    """What ``from_env`` returns."""

    images: Any = field(factory=lambda: SimpleNamespace(pull=lambda image: None))
    containers: Any = field(factory=lambda: SimpleNamespace(run=_run))

    def close(self) -> None:
        """Nothing is open."""


def from_env() -> Client:
    """Return a client."""
    return Client()


def _run(environment: dict[str, Any] | None = None, **_: Any) -> Container:
    if environment is None:
        return Container()
    address = f"{environment['ADVERTISED_HOST']}:{environment['ADVERTISED_PORT']}"
    options = ["--listen", address, "--partitions", str(environment["NUM_PARTITIONS"])]
    # The broker is of another environment than the client.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"PYTHONPATH": os.environ["STREAMS_PATH"]}
    return Container(subprocess.Popen([*json.loads(os.environ["STREAMS_BROKER"]), *options], env=env))


models = SimpleNamespace(containers=SimpleNamespace(Container=Container))
