"""A program that a shell starts as if it were Python: it asks a template for a fork and ends as that does.

Started with ``python -I -S program_stub.py ADDRESS ARGUMENT...``, in 20 ms.  See ``tests.programs``.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper


def connect(address: str) -> socket.socket:
    """Connect with a template."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection


def ask(
    connection: socket.socket, arguments: Sequence[str], cwd: str, env: Mapping[str, str], streams: Sequence[int]
) -> TextIOWrapper:
    """Ask for a program with these standard streams; return the answers: a line with its pid, one with its status."""
    socket.send_fds(connection, [b"\n"], streams)
    request = {"arguments": list(arguments), "cwd": cwd, "env": dict(env)}
    connection.sendall(json.dumps(request).encode() + b"\n")
    return connection.makefile("r")


def _main(address: str, arguments: list[str]) -> int:
    connection = connect(address)
    answers = ask(connection, arguments, os.getcwd(), os.environ, (0, 1, 2))
    pid = int(answers.readline())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    status = int(answers.readline())
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], sys.argv[2:]))
