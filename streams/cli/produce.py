"""``streams produce``: write lines of a file or of standard input to a topic as records."""

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streams.cli.cluster import add_where, opened
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands

if TYPE_CHECKING:
    from streams.clients import Producer
    from streams.core.serdes import Serde
    from streams.core.topic import Topic
    from streams.files import FileInput

_EXAMPLE = """\
examples:
  printf 'alice\\thello\\n' | streams produce lines --key-separator '\\t' --bootstrap-servers localhost:9092
  echo '{"customer": "ann", "cents": 250}' | streams produce shop.py:orders --bootstrap-servers localhost:9092
  streams produce shop.py:orders orders.csv --bootstrap-servers localhost:9092
"""

_READ_BYTES = 1 << 16
_ADVICE = "fix the row; the rows before it were written"


def add_parser(commands: Commands) -> None:
    """Add ``streams produce`` and its arguments to the program."""
    parser = commands.add_parser(
        "produce",
        help="write lines to a topic",
        description="Write each line as a record: its value, or key and value, as text. With SCRIPT.py:TOPIC, rows of "
        "a file of any kind that `streams run` reads, or of standard input (JSON, or text for values of type str), are "
        "written with the types, keys and event times that the script declares.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("topic", help="TOPIC, or SCRIPT.py:TOPIC for the types of a script")
    parser.add_argument("file", nargs="?", default="-", help="default: standard input")
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        help="separator after the key of a line, \\t for a tab; with SCRIPT.py:TOPIC, of standard input",
    )
    parser.add_argument("--partition", metavar="N", type=int, help="default: by the key")
    parser.add_argument("--timestamp-ms", metavar="T", type=int, help="event time of all records (default: now)")
    parser.add_argument(
        "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none", help="default none"
    )
    add_where(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Write the lines to the topic."""
    from streams.cli.typed import NamedTopic
    from streams.clients import Admin, Producer

    named = NamedTopic.parse(options.topic)
    separator = None if options.key_separator is None else options.key_separator.replace("\\t", "\t").encode()
    with ExitStack() as stack:
        # The input is opened first, so that its mistakes do not depend on a broker.
        rows = None if named.topic is None else _rows(named.topic, options.file, separator)
        lines = stack.enter_context(_lines(options.file)) if rows is None else iter(())
        cluster = stack.enter_context(opened(options))
        with Admin(cluster) as admin:
            # The topic is looked up without being created, so that a mistyped name is an error.
            found = admin.describe_topics([named.name])[named.name]
        compression = options.compression
        with Producer(cluster, compression_type=compression, linger_ms=20, batch_size_bytes=131_072) as producer:
            if rows is None:
                count = _send_lines(producer, named.name, lines, separator, options)
            else:
                count = _send_rows(producer, named.name, rows, len(found.leaders), options)
    print(f"streams: {count:,} records to {named.name}", file=sys.stderr)
    return 0


def _send_lines(
    producer: "Producer", topic: str, lines: Iterable[bytes], separator: bytes | None, options: argparse.Namespace
) -> int:
    count = 0
    for number, line in enumerate(lines, 1):
        key, value = (None, line) if separator is None else _split(line, separator, options.file, number)
        producer.send(topic, value, key=key, partition=options.partition, timestamp_ms=options.timestamp_ms)
        count += 1
    return count


def _split(line: bytes, separator: bytes, file: str, number: int) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        raise UsageError(f"{file}, line {number}: there is no {separator.decode()!r} in it")
    return key, value


def _send_rows(
    producer: "Producer", topic: str, rows: "FileInput", partitions: int, options: argparse.Namespace
) -> int:
    from streams.core.records import TopicPartition

    if options.partition is not None and not 0 <= options.partition < partitions:
        raise UsageError(f"--partition {options.partition}: topic {topic!r} has the partitions 0 to {partitions - 1}")
    count = 0
    for blocks in rows(partitions):
        for number, block in blocks:
            if options.timestamp_ms is not None:
                block.timestamps = [options.timestamp_ms] * len(block)
            chosen = number if options.partition is None else options.partition
            count += len(block)
            producer.send_block(TopicPartition(topic, chosen), block)
        producer.poll()
    return count


def _rows(topic: "Topic[Any, Any]", path: str, separator: bytes | None) -> "FileInput":
    """Return the reader of a file, or of lines of standard input.

    Raises:
        UsageError: the file cannot be read, or a separator is given for a file.
        InputError: the kind of the file is not known.
    """
    from streams.core.serdes import STRING
    from streams.files import FileSource, open_input

    if path != "-":
        if separator is not None:
            raise UsageError("--key-separator is for lines of standard input; rows of files get keys from the topic")
        return open_input(topic, path, advice=_ADVICE)
    chunks, kind = _chunks(sys.stdin.buffer), ".txt" if topic.value_serde is STRING else ".jsonl"
    if separator is not None:
        chunks, kind = _keyed(topic, chunks, separator), ".records.jsonl"
    return open_input(topic, FileSource(f"standard input{kind}", io.BytesIO, chunks), advice=_ADVICE)


def _chunks(stream: Any) -> Iterator[list[bytes]]:
    """Yield the lines of a stream as they arrive."""
    rest = b""
    while data := stream.read1(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _keyed(topic: "Topic[Any, Any]", chunks: Iterable[list[bytes]], separator: bytes) -> Iterator[list[bytes]]:
    """Yield lines of key and value as JSON records."""
    key_json, value_json = _line_json(topic.key_serde), _line_json(topic.value_serde)
    number = 0
    for lines in chunks:
        records = []
        for line in lines:
            number += 1
            key, value = _split(line, separator, "standard input", number)
            records.append(b'{"key":%b,"value":%b}' % (key_json(key), value_json(value)))
        yield records


def _line_json(serde: "Serde[Any]") -> Callable[[bytes], bytes]:
    """Return the function that converts a part of a line to JSON: text is unquoted, other types are JSON."""
    import msgspec

    from streams.core.serdes import STRING

    if serde is not STRING:
        return lambda part: part
    return lambda part: msgspec.json.encode(part.decode())


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
