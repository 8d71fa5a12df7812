"""What the measurements of size share: a broker in a process of its own, what a process uses, a note of the figures."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

#: Where figures are noted, a line of JSON each, for the plot.
NOTES = Path(".bench") / "scale.jsonl"


class Served(NamedTuple):
    """A broker in a process of its own."""

    address: str
    pid: int


@contextmanager
def served(*options: str) -> Iterator[Served]:
    """Serve the project's broker on a free port."""
    command = [sys.executable, "-m", "streams", "broker", "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"listens on (\S+?),", line)
        if found is None:
            raise RuntimeError(f"the broker does not say where it listens, but: {line}")
        try:
            yield Served(found[1], process.pid)
        finally:
            process.terminate()


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used, with its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the memory of a process's own; pages of files that it has mapped are the system's."""
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(int(kib) << 10 for kib in re.findall(r"Rss(?:Anon|Shmem):\s+(\d+)", status))


def note(name: str, figures: Mapping[str, Any]) -> None:
    """Add figures to the notes."""
    NOTES.parent.mkdir(exist_ok=True)
    with NOTES.open("a") as notes:
        notes.write(json.dumps({"name": name, **figures}) + "\n")
