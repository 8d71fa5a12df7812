"""A full disk is one line with the path, the room and what to do; with room the same command gives the exact result."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROWS = 4_000
SIZE = 3 << 20
VALUES = """
from streams import StreamsBuilder, Topic

values = Topic("values", key=str, value=str)


def topology(builder: StreamsBuilder) -> None:
    last = builder.stream(values).group_by_key().reduce(lambda before, value: value, "last")
    last.to_stream().to(Topic("out", key=str, value=str))
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int | None], Path]]:
    """A disk of 3 MB of which so many kB are free; None makes it large enough."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")

    def prepared(free_kb: int | None) -> Path:
        (folder / "filling").unlink(missing_ok=True)
        if free_kb is not None:
            (folder / "filling").write_bytes(bytes(SIZE - free_kb * 1024))
        else:
            subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
        return folder

    yield prepared
    subprocess.run(["umount", "-l", folder], check=True)


def arguments(place: str) -> list[str]:
    """What is on the full disk: the state directory, the output or the temporary folder."""
    out = {"output": "disk/out.records.jsonl", "parquet": "disk/out.parquet"}.get(place, "out.records.jsonl")
    state = ["--state-dir", "disk/state"] if place == "state" else []
    return ["run", "values.py", "--input", "values=values.records.jsonl", "--output", f"out={out}", *state]


@pytest.mark.case
@pytest.mark.parametrize(
    ("place", "free_kb"),
    [*(("state", free_kb) for free_kb in (700, 0, 4, 32, 128)), ("output", 100), ("parquet", 0), ("TMPDIR", 400)],
)
def test_a_full_disk_is_one_line_and_nothing_is_lost(streams, disk, place, free_kb):
    streams.write("values.py", VALUES)
    rows = [{"key": f"k{number}", "value": f"{number:0400}", "timestamp": number} for number in range(ROWS)]
    streams.write("values.records.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    folder = disk(free_kb)
    environment = {"TMPDIR": str(folder)} if place == "TMPDIR" else {}

    result = streams(*arguments(place), **environment)

    # An output that the user has named is the mistake of a user.
    assert result.status == (2 if place in ("output", "parquet") else 1), result
    assert result.err.count("\n") == 1, result.err
    assert "disk/" in result.err or str(folder) in result.err
    assert "make room" in result.err
    disk(None)
    assert streams(*arguments(place), **environment).status == 0
    if place != "parquet":
        name = "disk/out.records.jsonl" if place == "output" else "out.records.jsonl"
        assert [(row["key"], row["value"]) for row in streams.read(name)] == [
            (row["key"], row["value"]) for row in rows
        ]
