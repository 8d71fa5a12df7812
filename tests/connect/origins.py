"""The systems of all sources, empty ones: how to make a source, and how to add to the system.

``python -m tests.connect.origins NAME KILLS [exception] [process]`` runs the kit on one of them, or in both ways.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import psycopg
from attrs import frozen

from streams.connect import FolderSource, GrowingFileSource, PostgresPollingSource, PostgresSource, SourceConnector
from streams.core.clock import SystemClock
from streams.core.topic import Topic
from streams.testing import source_kit
from tests.postgres import new_database, running

NAMES = ("file", "folder", "postgres", "postgres_polling")


class Row(TypedDict):
    id: int
    name: str


def name_of(row: Row) -> str:
    return row["name"]


NAMED = Topic("named", key=str, value=Row, key_from=name_of)
NUMBERED = Topic("numbered", key=int, value=Row)


@frozen
class Origin:
    """A system; ``add`` adds something with a number to it, and returns the records."""

    make: Callable[[], SourceConnector[Any, Any]]
    add: Callable[[int], list[tuple[Any, Any]]]
    topic: Topic[Any, Any]


def row(number: int) -> Row:
    return Row(id=number, name=f"key-{number % 5}")


@contextmanager
def origin(name: str, folder: Path, *, rotated_after: int = 3) -> Iterator[Origin]:
    """An empty system; a file is rotated once so many sources were made.

    What is rotated before the first source has read is not read.  The kit makes one that is not opened, and one that
    may fail before it has read.
    """
    if name == "file":
        path = folder / "rows.jsonl"
        sources: list[str] = []

        def make() -> GrowingFileSource:
            sources.append(str(path))
            return GrowingFileSource(str(path), interval_ms=5)

        yield Origin(make, lambda number: _line(path, number, is_rotated=len(sources) >= rotated_after), NAMED)
    elif name == "folder":
        make = partial(FolderSource, str(folder), settle_ms=0, interval_ms=5)
        yield Origin(make, partial(_file, folder), NAMED)
    else:
        with running() as postgres, new_database(postgres, "origin") as dsn:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("create table rows (id bigint primary key, name text)")
                kind = PostgresSource if name == "postgres" else PostgresPollingSource
                yield Origin(lambda: kind(dsn, "rows", interval_ms=5), partial(_row, connection), NUMBERED)
                connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")


def _line(path: Path, number: int, *, is_rotated: bool) -> list[tuple[Any, Any]]:
    """Append a line; now and then the file is rotated before."""
    if number % 17 == 0 and is_rotated:
        older = sorted(path.parent.glob("rows.jsonl.*"), key=lambda it: -int(it.suffix[1:]))
        for old in older:
            old.rename(path.with_name(f"rows.jsonl.{int(old.suffix[1:]) + 1}"))
        path.rename(path.with_name("rows.jsonl.1"))
    with path.open("a") as file:
        file.write(json.dumps(row(number)) + "\n")
    return [(name_of(row(number)), row(number))]


def _file(folder: Path, number: int) -> list[tuple[Any, Any]]:
    rows = [row(3 * number + index) for index in range(3)]
    part = folder / f"_{number}"
    part.write_text("".join(json.dumps(found) + "\n" for found in rows))
    part.rename(folder / f"{number:06}.jsonl")
    return [(name_of(found), found) for found in rows]


def _row(connection: "psycopg.Connection[Any]", number: int) -> list[tuple[Any, Any]]:
    found = row(number)
    connection.execute("insert into rows values (%s, %s)", [found["id"], found["name"]])
    return [(number, found)]


def main(name: str, kills: str, *ways: str) -> None:
    for by in ways or ("exception", "process"):
        with tempfile.TemporaryDirectory() as folder, origin(name, Path(folder), rotated_after=1_000) as found:
            began = SystemClock().monotonic_ms()
            report = source_kit.check(found.make, found.add, topic=found.topic, kills=int(kills), by=by)  # type: ignore[arg-type]
            took = (SystemClock().monotonic_ms() - began) / 1000
            print(f"{name}, by {by}: {sum(report.faults.values())} faults, {report.records} records, {took:.0f} s")
            print(f"  {report.faults}", flush=True)


if __name__ == "__main__":
    # Classes of a module are sent to processes by its name.
    from tests.connect import origins

    origins.main(*sys.argv[1:])
