"""A re-drive in a process that is killed: ``python -m tests.clients.redriving WHERE TOPIC STEP``.

``WHERE`` is the folder of an embedded broker or an address.  Before step number ``STEP`` the process kills itself
as ``kill -9`` does.  It prints the number of steps if it ends.
"""

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from streams import EmbeddedBroker
from streams.clients import DeadLetters, TcpCluster
from streams.core.settings.config import StreamsConfig
from streams.protocol.transport import Cluster


def main(where: str, topic: str, last: int) -> None:
    """Re-drive, and die before a step."""
    steps: list[str] = []

    def on_step(step: str) -> None:
        if len(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        steps.append(step)

    with ExitStack() as stack:
        cluster: Cluster
        if Path(where).is_dir():
            cluster = stack.enter_context(EmbeddedBroker(Path(where), maintenance_interval_ms=None))
        else:
            cluster = TcpCluster.of(StreamsConfig.of(bootstrap_servers=where))
        DeadLetters(cluster, topic).redrive(batch=2, on_step=on_step)
    print(len(steps))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
