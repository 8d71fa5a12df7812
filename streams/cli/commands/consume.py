"""``streams consume``: print the records of topics as lines."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from streams.cli.cluster import add_where, opened
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_format, number_of

if TYPE_CHECKING:
    from streams.cli.typed import NamedTopic
    from streams.clients import Consumer, ConsumerRecord
    from streams.core.serdes.display import RecordTable
    from streams.values import Form

_POLL_MS = 500


def add_parser(commands: Commands) -> None:
    """Add ``streams consume`` and its arguments to the program."""
    parser = commands.add_parser(
        "consume",
        description="Show records as lines, until SIGINT or SIGTERM. Bytes that are not text are shown as \\xNN, "
        'and those of headers as {"$hex": "00ff"}, as in files.',
    )
    parser.add_argument("topic", nargs="+", help="TOPIC, or SCRIPT.py:TOPIC to show keys and values as JSON")
    parser.add_argument("--group", metavar="ID", help="join a consumer group, and commit printed records")
    parser.add_argument("--from-beginning", action="store_true", help="read from the first record (default: new ones)")
    parser.add_argument("--to-end", action="store_true", help="read to the current end, then exit")
    parser.add_argument("--max", metavar="N", type=number_of("records", 1), help="exit after this many records")
    parser.add_argument("--partition", metavar="N", type=int, help="read only this partition")
    parser.add_argument("--read-uncommitted", action="store_true", help="also records of open and aborted transactions")
    add_format(parser, "a table on a terminal, else values; key-value has a tab between both", "key-value")
    parser.add_argument(
        "--type",
        choices=("text", "long", "double"),
        help="type of values of topics without a script: text, or 8 bytes of Kafka's long or double serde (default "
        "text)",
    )
    add_where(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Print the records of the topics."""
    from streams.cli.typed import NamedTopic
    from streams.clients import Consumer

    named = [NamedTopic.parse(text) for text in options.topic]
    names = [topic.name for topic in named]
    if options.group and (options.to_end or options.partition is not None):
        raise UsageError("--group reads the partitions that the group assigns: omit --to-end and --partition")
    level: Literal["read_uncommitted", "read_committed"]
    level = "read_uncommitted" if options.read_uncommitted else "read_committed"
    begin: Literal["earliest", "latest"] = "earliest" if options.from_beginning or options.to_end else "latest"
    with (
        opened(options) as cluster,
        Consumer(
            cluster,
            options.group,
            auto_offset_reset=begin,
            enable_auto_commit=False,
            isolation_level=level,
            allow_auto_create_topics=False,
        ) as consumer,
    ):
        if options.group:
            consumer.subscribe(names)
        else:
            _assign(consumer, names, options.partition)
        try:
            return _show(consumer, _printers(named, options), options)
        except KeyboardInterrupt:
            # SIGINT or SIGTERM is the normal end.
            return 0


def _assign(consumer: "Consumer", topics: Sequence[str], partition: int | None) -> None:
    from streams.core.errors import UnknownTopicError

    partitions = []
    for topic in topics:
        available = consumer.partitions_for(topic)
        chosen = [p for p in available if partition in (None, p.partition)]
        if not chosen:
            what = f"{topic!r}" if not available else f"{topic!r} has no partition {partition}"
            raise UnknownTopicError(f"topic {what}: check the name; `streams topics list` shows those that are there")
        partitions += chosen
    consumer.assign(partitions)


def _show(consumer: "Consumer", printers: Mapping[str, "_Printer"], options: argparse.Namespace) -> int:
    from streams.core.blocks.records import TopicPartition

    ends = consumer.end_offsets(consumer.assignment()) if options.to_end else None
    shown = 0
    done: dict[TopicPartition, int] = {}
    while ends is None or any((consumer.known_position(p) or 0) < end for p, end in ends.items()):
        records = consumer.poll(_POLL_MS)
        for record in records:
            if options.max is not None and shown == options.max:
                break
            sys.stdout.write(printers[record.topic](record))
            done[TopicPartition(record.topic, record.partition)] = record.offset + 1
            shown += 1
        sys.stdout.flush()
        if options.group and done:
            consumer.commit_sync(done)
            done.clear()
        if options.max is not None and shown >= options.max:
            break
    return 0


_Printer: TypeAlias = "Callable[[ConsumerRecord[Any, Any]], str]"


def _printers(topics: "Sequence[NamedTopic]", options: argparse.Namespace) -> dict[str, _Printer]:
    """Return for each topic the function that formats its records as lines.

    Raises:
        UsageError: ``--type`` is given for a topic with a script.
    """
    from streams.core.serdes.display import RecordTable, reader
    from streams.files import standard_form
    from streams.values import form_of

    form = standard_form(options.format, "value")
    printers: dict[str, _Printer] = {}
    for named in topics:
        title = named.name.ljust(max(len(each.name) for each in topics)) if len(topics) > 1 else ""
        if named.topic is None:
            kind = options.type or "text"
            printers[named.name] = (
                partial(_table_line, RecordTable(None, title), _text, partial(_value, kind=kind))
                if form == "table"
                else partial(_text_line, form=form, kind=kind)
            )
        elif options.type is not None:
            raise UsageError(f"--type {options.type}: the script declares the types of {named.name!r}; omit it")
        elif form == "table":
            key_serde = named.topic.key_serde
            table = RecordTable(key_serde, title)
            printers[named.name] = partial(_table_line, table, reader(key_serde), reader(named.topic.value_serde))
        else:
            key = form_of(named.topic.key_serde)
            value = form_of(named.topic.value_serde)
            printers[named.name] = partial(_typed_line, form=form, key=key, value=value)
    return printers


def _table_line(
    table: "RecordTable", key: Callable[[Any], Any], value: Callable[[Any], Any], record: "ConsumerRecord[Any, Any]"
) -> str:
    return table.lines([(key(record.key), value(record.value))])[0] + "\n"


def _typed_line(record: "ConsumerRecord[Any, Any]", *, form: str, key: "Form", value: "Form") -> str:
    """Return a record with key and value as JSON of their types."""
    import msgspec

    key_text = key.to_json(record.key)
    value_text = value.to_json(record.value)
    if form == "json":
        document = _document(record, msgspec.Raw(key_text), msgspec.Raw(value_text))
        return msgspec.json.encode(document).decode() + "\n"
    text = value_text.decode()
    return f"{key_text.decode()}\t{text}\n" if form == "key-value" else f"{text}\n"


def _text_line(record: "ConsumerRecord[Any, Any]", *, form: str, kind: str) -> str:
    value = _value(record.value, kind)
    if form == "json":
        return json.dumps(_document(record, _text(record.key), value), ensure_ascii=False) + "\n"
    text = "" if value is None else str(value)
    return f"{_text(record.key) or ''}\t{text}\n" if form == "key-value" else f"{text}\n"


def _document(record: "ConsumerRecord[Any, Any]", key: Any, value: Any) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": key,
        "value": value,
        "headers": [[name, _header(content)] for name, content in record.headers],
    }


def _header(content: bytes | None) -> Any:
    from streams.values import text_or_hex_json

    return None if content is None else json.loads(text_or_hex_json(content))


def _value(data: bytes | None, kind: str) -> Any:
    from streams.core.serdes.serdes import DOUBLE, LONG

    if data is None:
        return None
    if kind == "text" or len(data) != 8:
        return _text(data)
    return (LONG if kind == "long" else DOUBLE).deserialize(data)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
