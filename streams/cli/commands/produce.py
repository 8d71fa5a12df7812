"""``streams produce``: write lines of a file or of standard input to a topic as records."""

import argparse
import io
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from streams.cli.cluster import add_where, opened
from streams.cli.lines import say
from streams.cli.mistakes import UsageError, is_mistake
from streams.cli.options import Commands, number_of
from streams.core.errors import BrokerError, StreamsError

if TYPE_CHECKING:
    from streams.clients import Delivery, Producer
    from streams.core.serdes.serdes import Serde
    from streams.core.topic import Topic
    from streams.files import FileInput

_EXAMPLE = """\
examples:
  printf 'alice\\thello\\n' | streams produce lines --key-separator '\\t' --bootstrap-servers localhost:9092
  echo '{"customer": "ann", "cents": 250}' | streams produce shop.py:orders --bootstrap-servers localhost:9092
  streams produce shop.py:orders orders.csv --bootstrap-servers localhost:9092
"""

_READ_BYTES = 1 << 16


def add_parser(commands: Commands) -> None:
    """Add ``streams produce`` and its arguments to the program."""
    parser = commands.add_parser(
        "produce",
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
    parser.add_argument(
        "--skip-rows",
        metavar="N",
        type=number_of("rows", 0),
        default=0,
        help="leave out the first N rows, which are written already",
    )
    parser.add_argument("--timestamp-ms", metavar="T", type=int, help="event time of all records (default: now)")
    parser.add_argument(
        "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none", help="default none"
    )
    add_where(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Write the rows to the topic.

    A file is checked first, so that nothing is written if a row is bad.  Rows of standard input are written as they
    come; if one is bad, or a record is not written, the message says what was written, and how to go on.

    Raises:
        UsageError: an argument does not fit, or a row is bad.
        InputError: a row of a file is bad, or the file cannot be read.
        StreamsError: a record was not written.
    """
    from streams.cli.typed import NamedTopic
    from streams.clients import Admin, Producer

    named = NamedTopic.parse(options.topic)
    separator = None if options.key_separator is None else options.key_separator.replace("\\t", "\t").encode()
    # The input is opened first, so that its mistakes do not depend on a broker.
    rows: _Lines | _TypedRows
    if named.topic is None:
        rows = _Lines(named.name, _readable(options.file), separator, options)
    else:
        rows = _TypedRows(named.name, _typed_input(named.topic, options.file, separator), options)
    if options.file == "-" and sys.stdin.buffer.isatty():
        say("reading lines from the keyboard; Ctrl-D ends")
    with opened(options) as cluster:
        with Admin(cluster) as admin:
            # The topic is looked up without being created, so that a mistyped name is an error.
            partitions = len(admin.describe_topics([named.name])[named.name].leaders)
        if options.partition is not None and not 0 <= options.partition < partitions:
            raise UsageError(
                f"--partition {options.partition}: topic {named.name!r} has the partitions 0 to {partitions - 1}"
            )
        if Path(options.file).is_file():
            rows.check(partitions)
        compression = options.compression
        with Producer(cluster, compression_type=compression, linger_ms=20, batch_size_bytes=131_072) as producer:
            count = _sent(producer, rows.send(producer, partitions), options.skip_rows)
    say(f"{count:,} record{'' if count == 1 else 's'} to {named.name}")
    return 0


def _sent(producer: "Producer", sending: "Iterable[tuple[int, int, Delivery]]", skipped: int) -> int:
    """Send all rows, wait until they are acknowledged, and return their number.

    Raises:
        StreamsError: a row is bad, or was not written; a ``UsageError`` if a mistake is the reason.
    """
    progress = _Progress(skipped)
    try:
        for first, count, delivery in sending:
            progress.add(first, count, delivery)
        producer.flush()
    except StreamsError as error:
        with suppress(BrokerError):
            producer.flush()
        kind = UsageError if is_mistake(error) else StreamsError
        raise kind(f"{error}; {progress.way_on()}") from error
    return progress.count


@define
class _Progress:
    """Rows that were sent, in any order of acknowledgement: how many of them are acknowledged, and up to which row."""

    skipped: int
    #: Number of rows that were sent.
    count: int = 0
    #: What is not settled, with all that was sent later: number of the first row, number of rows, delivery.
    _open: "deque[tuple[int, int, Delivery]]" = field(factory=deque)

    def add(self, first: int, count: int, delivery: "Delivery") -> None:
        """Note rows that were sent, the first of them row ``first`` of the input.

        Raises:
            BrokerError: rows that were sent before have failed.
        """
        self.count += count
        self._open.append((first, count, delivery))
        while self._open and self._open[0][2].done():
            error = self._open[0][2].exception()
            if error is not None:
                raise error
            self._open.popleft()

    def way_on(self) -> str:
        """Return what was written, and the option that goes on with the rest."""
        if not self.count:
            return "nothing was written"
        lost = [(first, count) for first, count, delivery in self._open if not delivery.done() or delivery.exception()]
        acknowledged = self.count - sum(count for _, count in lost)
        first = min((first for first, _ in lost), default=self.skipped + acknowledged)
        again = acknowledged - (first - self.skipped)
        repeats = f", which writes {again:,} of them again" if again else ""
        return f"rows acknowledged: {acknowledged:,} of {self.count:,}; go on with --skip-rows {first}{repeats}"


@frozen
class _Lines:
    """Lines of a file or of standard input: each is a value, or key and value, as text."""

    topic: str
    path: str
    separator: bytes | None
    options: argparse.Namespace

    def check(self, partitions: int) -> None:
        """Read the whole file.

        Raises:
            UsageError: a line has no separator.
        """
        if self.separator is None:
            return
        try:
            for _ in self._rows():
                pass
        except UsageError as error:
            raise UsageError(f"{error}; nothing was written") from error

    def send(self, producer: "Producer", partitions: int) -> "Iterator[tuple[int, int, Delivery]]":
        """Send each line, and yield its number, counted from 0, and its delivery.

        Raises:
            UsageError: a line has no separator.
        """
        options = self.options
        for number, key, value in self._rows():
            yield (
                number,
                1,
                producer.send(
                    self.topic, value, key=key, partition=options.partition, timestamp_ms=options.timestamp_ms
                ),
            )

    def _rows(self) -> Iterator[tuple[int, bytes | None, bytes]]:
        with ExitStack() as stack:
            stream = sys.stdin.buffer if self.path == "-" else stack.enter_context(open(self.path, "rb"))
            for number, line in enumerate(stream):
                if number < self.options.skip_rows:
                    continue
                row = line.rstrip(b"\r\n")
                key, value = (
                    (None, row) if self.separator is None else _split(row, self.separator, self.path, number + 1)
                )
                yield number, key, value


@frozen
class _TypedRows:
    """Rows of a file or of standard input, with the types, keys and event times of the script."""

    topic: str
    rows: "FileInput"
    options: argparse.Namespace

    def check(self, partitions: int) -> None:
        """Check that every row can be read, before the first is sent.

        Raises:
            InputError: a row is bad.
        """
        for _ in evolve(self.rows, advice="fix the row; nothing was written")(partitions, self.options.skip_rows):
            pass

    def send(self, producer: "Producer", partitions: int) -> "Iterator[tuple[int, int, Delivery]]":
        """Send the rows in blocks, and yield for each its first row, its number of rows and its delivery.

        Raises:
            InputError: a row is bad.
        """
        from streams.core.blocks.records import TopicPartition

        options = self.options
        for blocks in self.rows(partitions, options.skip_rows):
            for number, block in blocks:
                first = block.offsets[0]
                count = len(block)
                if options.timestamp_ms is not None:
                    block.timestamps = [options.timestamp_ms] * count
                chosen = number if options.partition is None else options.partition
                yield first, count, producer.send_block(TopicPartition(self.topic, chosen), block)
            producer.poll()


def _split(line: bytes, separator: bytes, file: str, number: int) -> tuple[bytes, bytes]:
    key, mark, value = line.partition(separator)
    if not mark:
        raise UsageError(f"{file}, line {number}: there is no {separator.decode()!r} in it")
    return key, value


def _typed_input(topic: "Topic[Any, Any]", path: str, separator: bytes | None) -> "FileInput":
    """Return the reader of a file, or of lines of standard input.

    Raises:
        UsageError: the file cannot be read, or a separator is given for a file.
        InputError: the kind of the file is not known.
    """
    from streams.core.serdes.serdes import STRING
    from streams.files import FileSource, Location, open_input

    if path != "-":
        if separator is not None:
            raise UsageError("--key-separator is for lines of standard input; rows of files get keys from the topic")
        location = Location.parse(path)
        source = FileSource.local(location.path, location.kind_of(location.path))
        return open_input(topic, source, advice="fix the row")
    chunks = _chunks(sys.stdin.buffer)
    kind = ".txt" if topic.value_serde is STRING else ".jsonl"
    if separator is not None:
        chunks = _keyed(topic, chunks, separator)
        kind = ".records.jsonl"
    return open_input(topic, FileSource(f"standard input{kind}", io.BytesIO, chunks), advice="fix the row")


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
    key_json = _line_json(topic.key_serde)
    value_json = _line_json(topic.value_serde)
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

    from streams.core.serdes.serdes import STRING

    if serde is not STRING:
        return lambda part: part
    return lambda part: msgspec.json.encode(part.decode())


def _readable(path: str) -> str:
    """Return the path of a file that can be read, or ``-``.

    Raises:
        UsageError: there is no such file, or it cannot be read.
    """
    if path != "-" and (not os.access(path, os.R_OK) or Path(path).is_dir()):
        raise UsageError(f"{path}: cannot be read; check the name, or give - for standard input")
    return path
