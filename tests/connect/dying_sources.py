"""Workers of sources in processes that are killed: ``python -m tests.connect.dying_sources`` forks them.

Before request number ``last`` to the broker a process kills itself as ``kill -9`` does.
"""

import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define

from streams.clients import TcpCluster
from streams.connect import HttpSource, SourceWorker, WebhookSource
from streams.core.topic import Topic
from tests.dying import DyingCluster, Steps
from tests.waiting import until

TOPIC = Topic("numbers", key=int, value=dict, partitions=1)
NAME = "numbers-in"
SOURCES = {"http": HttpSource, "webhook": WebhookSource}


def worker(cluster: Any, kind: str, settings: dict[str, Any]) -> SourceWorker[Any, Any]:
    source = SOURCES[kind](**settings)
    return SourceWorker(cluster, TOPIC, source, name=NAME, poll_ms=20, retry_backoff_ms=1)


@define
class Template:
    """The process that forks the others."""

    process: "subprocess.Popen[str]"

    def kill_one(self, last: int, turn: Callable[[], object] = lambda: None, **given: Any) -> None:
        """Run a worker that dies before a request, and wait for its death."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"last": last, **given}) + "\n")
        self.process.stdin.flush()
        until(lambda: select.select([self.process.stdout], [], [], 0.01)[0], turn)
        assert self.process.stdout.readline() == f"{-signal.SIGKILL}\n", "it has ended otherwise"


@contextmanager
def template() -> Iterator[Template]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.connect.dying_sources"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Template(process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def main() -> None:
    import httpx  # noqa: F401 - imported once for all forks.

    import streams.connect.http.webhook_server  # noqa: F401

    for line in sys.stdin:
        given = json.loads(line)
        process = os.fork()
        if process == 0:
            try:
                cluster = DyingCluster(TcpCluster(given["bootstrap"]), Steps(given["last"]))
                worker(cluster, given["kind"], given["settings"]).run()
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
