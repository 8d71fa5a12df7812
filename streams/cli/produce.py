"""``streams produce``: write lines of a file or of standard input to a topic as records."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streams.cli.cluster import add_where, opened
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands

_EXAMPLE = """\
example:
  printf 'alice\\thello\\n' | streams produce lines --key-separator '\\t' --bootstrap-servers localhost:9092
"""


def add_parser(commands: Commands) -> None:
    """Add the command to the program."""
    parser = commands.add_parser(
        "produce",
        help="write lines to a topic",
        description="Write each line as a record: its value, or key and value, as text.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("topic")
    parser.add_argument("file", nargs="?", default="-", help="default: standard input")
    parser.add_argument("--key-separator", metavar="TEXT", help="separator after the key of a line, \\t for a tab")
    parser.add_argument("--partition", metavar="N", type=int, help="default: by the key")
    parser.add_argument("--timestamp-ms", metavar="T", type=int, help="event time of all records (default: now)")
    parser.add_argument(
        "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none", help="default none"
    )
    add_where(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Write the lines to the topic."""
    from streams.clients import Admin, Producer

    separator = None if options.key_separator is None else options.key_separator.replace("\\t", "\t").encode()
    count = 0
    with _lines(options.file) as lines, opened(options) as cluster:
        with Admin(cluster) as admin:
            # The topic is looked up without being created, so that a mistyped name is an error.
            admin.describe_topics([options.topic])
        producer = Producer(cluster, compression_type=options.compression, linger_ms=20, batch_size_bytes=131_072)
        for number, line in enumerate(lines, 1):
            key: bytes | None = None
            value = line
            if separator is not None:
                key, found, value = line.partition(separator)
                if not found:
                    raise UsageError(f"{options.file}, line {number}: there is no {options.key_separator!r} in it")
            producer.send(options.topic, value, key=key, partition=options.partition, timestamp_ms=options.timestamp_ms)
            count += 1
        producer.flush()
    print(f"streams: {count:,} records to {options.topic}", file=sys.stderr)
    return 0


@contextmanager
def _lines(path: str) -> Iterator[Iterator[bytes]]:
    if path == "-":
        yield _cut(sys.stdin.buffer)
        return
    if not os.access(path, os.R_OK) or not Path(path).is_file():
        raise UsageError(f"{path}: cannot be read; check the name, or give - for standard input")
    with open(path, "rb") as file:
        yield _cut(file)


def _cut(stream: Iterable[bytes]) -> Iterator[bytes]:
    return (line.rstrip(b"\r\n") for line in stream)
