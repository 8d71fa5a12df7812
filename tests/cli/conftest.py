"""Running the program as a user does: in a process of its own, in a folder of its own."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from tests import programs

HALVES = """\
from streams import StreamsBuilder, Topic

numbers = Topic("numbers", value=int)
halves = Topic("halves", value=int)


def half(number: int) -> int:
    return 100 // number


def topology(builder: StreamsBuilder) -> None:
    builder.stream(numbers).map_values(half).to(halves)
"""

COUNTS = """\
from streams import StreamsBuilder, Topic

words = Topic("words", key=str, value=dict[str, str], key_from=lambda row: row["word"])
counts = Topic("counts", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("word-counts").to_stream().to(counts)
"""


_END = re.compile(r"streams: ([\d,]+ (records? in|out|late|dropped), )*\d+\.\d s(; .*)?\n")


@frozen
class Result:
    """What a run left behind."""

    status: int
    out: str
    #: Standard error without the line that ends a complete run over history.
    err: str
    end: str = ""

    @classmethod
    def of(cls, status: int, out: str, err: str) -> "Result":
        *lines, last = err.splitlines(keepends=True) or [""]
        is_end = _END.fullmatch(last) is not None
        return cls(status, out, "".join(lines) if is_end else err, last if is_end else "")

    def values(self) -> list[Any]:
        """Values of the records on standard output."""
        return [json.loads(line)["value"] for line in self.out.splitlines()]


@frozen
class Program:
    """The program, in a folder with the user's files."""

    folder: Path

    def write(self, name: str, text: str) -> Path:
        """Make a file, or put another one in its place: who watches it never sees half of it."""
        path = self.folder / name
        draft = path.with_name(f"{path.name}.draft")
        draft.write_text(text)
        return draft.replace(path)

    def read(self, name: str) -> list[dict[str, Any]]:
        """Return the records of an output file."""
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def __call__(self, *arguments: str, **environment: str) -> Result:
        """Run to the end."""
        done = programs.run(["-m", "streams", *arguments], cwd=self.folder, env=os.environ | environment)
        return Result.of(done.returncode, done.stdout, done.stderr)

    def on_terminal(self, *arguments: str, columns: int = 80, **environment: str) -> Result:
        """Run to the end with standard output on a terminal that is so wide and has colors."""
        terminal, inner = pty.openpty()
        modes = termios.tcgetattr(inner)
        modes[1] &= ~termios.OPOST  # Line ends stay as they are.
        termios.tcsetattr(inner, termios.TCSANOW, modes)
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        plain = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        env = plain | {"TERM": "xterm-256color"} | environment
        pipes = {"stdin": subprocess.DEVNULL, "stdout": inner, "stderr": subprocess.PIPE}
        process = programs.start(["-m", "streams", *arguments], cwd=self.folder, env=env, **pipes)
        os.close(inner)
        shown = b""
        with os.fdopen(terminal, "rb", buffering=0) as stream, suppress(OSError):  # It is closed at the other end.
            while chunk := stream.read(1 << 16):
                shown += chunk
        _, err = process.communicate()
        return Result.of(process.returncode, shown.decode(), err)

    def start(self, *arguments: str) -> Any:
        """Start, to be ended by the test."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return programs.start(["-m", "streams", *arguments], cwd=self.folder, **pipes)


@pytest.fixture
def streams(tmp_path: Path) -> Program:
    """The program, in a folder with ``halves.py`` and ``counts.py``."""
    program = Program(tmp_path)
    program.write("halves.py", HALVES)
    program.write("counts.py", COUNTS)
    return program


@pytest.fixture
def refused(streams: Program) -> Callable[..., str]:
    """Run, expect a user's mistake, and return the message."""

    def refused(*arguments: str) -> str:
        result = streams(*arguments)
        assert result.status == 2, result
        assert "Traceback" not in result.err
        assert result.out == ""
        return result.err

    return refused
