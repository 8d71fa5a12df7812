"""A command of ``streams`` in a process that is killed: ``python -m tests.dying STEP COMMAND ...``.

A step is a request to a broker, or the removal of a file or a folder.  Before step number ``STEP`` the process kills
itself as ``kill -9`` does.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streams.cli import cluster
from streams.cli.commands import dlq, reset, topics
from streams.cli.program import main
from streams.protocol.request import Request

#: Events of the interpreter that remove a file or a folder.
REMOVALS = ("os.remove", "os.rmdir")


class Steps:
    """Counts steps, and ends the process before one of them."""

    def __init__(self, last: int) -> None:
        self.left = last

    def count(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


class DyingCluster:
    """A cluster that ends this process before one of its requests."""

    def __init__(self, inner: Any, steps: Steps) -> None:
        self.inner = inner
        self.steps = steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def connect(self, client_id: str) -> Any:
        return DyingConnection(self.inner.connect(client_id), self.steps)


class DyingConnection:
    """A connection of such a cluster."""

    def __init__(self, inner: Any, steps: Steps) -> None:
        self.inner = inner
        self.steps = steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def send(self, node_id: int, request: Request) -> int:
        self.steps.count()
        number: int = self.inner.send(node_id, request)
        return number


def run(last: int, arguments: list[str]) -> int:
    """Run a command that dies before a step, and return its exit status if it ends before."""
    steps, is_open = Steps(last), False

    @contextmanager
    def opened(*given: Any, **options: Any) -> Iterator[DyingCluster]:
        nonlocal is_open
        with cluster.opened(*given, **options) as found:
            is_open = True
            yield DyingCluster(found, steps)
            is_open = False

    def audited(event: str, given: tuple[Any, ...]) -> None:
        if is_open and event in REMOVALS:
            steps.count()

    dlq.opened = reset.opened = topics.opened = opened  # type: ignore[assignment]
    sys.addaudithook(audited)
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
