"""``streams dlq``: list and show dead letters, and send them back to their source topics."""

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streams.cli.cluster import add_where, opened
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_application_id, add_execute, add_form, add_repeatable, number_of

if TYPE_CHECKING:
    from streams.clients import DeadLetters
    from streams.core.dead_letters import Letter

#: Whether a letter is selected.
Filter = Callable[["Letter"], bool]

_EXAMPLES = """\
examples:
  streams dlq list dead --state-dir run
  streams dlq show dead 0:17 --script shop.py --state-dir run
  streams dlq redrive dead --reason ValueError --test shop.py --execute --state-dir run
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams dlq`` and its arguments to the program."""
    parser = commands.add_parser(
        "dlq",
        description="List and show the letters of a dead letter topic, and send them to their source topics again.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="letters by reason, node and line of your code")
    add_form(listing, "json: an object for each group, on a line of its own (default text)")
    show = verbs.add_parser("show", help="a letter with key, value, headers and stack trace")
    redrive = verbs.add_parser(
        "redrive",
        help="send letters to the partitions they came from, each once",
        description="Send letters to the partitions they came from, each once. Without --execute, only a plan is "
        "printed.",
    )
    for verb in (listing, show, redrive):
        verb.add_argument("topic", metavar="TOPIC", help="the dead letter topic")
    show.add_argument("place", metavar="PARTITION:OFFSET", type=_offsets, help="place in the dead letter topic")
    show.add_argument("--script", metavar="SCRIPT[:FUNCTION]", help="decode key and value by this topology")
    for verb in (listing, redrive):
        _add_filters(verb)
    redrive.add_argument(
        "--test",
        metavar="SCRIPT[:FUNCTION]",
        help="process each letter by this topology first, in memory and from empty stores; re-drive those that pass",
    )
    redrive.add_argument("--rate", metavar="N", type=number_of("letters", 1), help="maximum per second")
    redrive.add_argument(
        "--max-redrives",
        metavar="N",
        type=number_of("re-drives", 1),
        default=3,
        help="leave records that were re-driven so often (default 3)",
    )
    add_execute(redrive)
    for verb in (show, redrive):
        add_application_id(verb, "of the topology, for its internal topics (default: its script)")
    for verb in (listing, redrive):
        verb.add_argument(
            "--group", metavar="ID", help="group whose offsets record what was re-driven (default: TOPIC-redrive)"
        )
    for verb in (listing, show, redrive):
        add_where(verb)
        verb.set_defaults(execute=execute)


def _add_filters(verb: argparse.ArgumentParser) -> None:
    add_repeatable(verb, "--reason", "TEXT", "only errors of this class, or with this text in the message")
    add_repeatable(verb, "--node", "NODE", "only letters of this node")
    add_repeatable(verb, "--line", "TEXT", "only errors raised at a line of code with this text, such as shop.py:12")
    add_repeatable(verb, "--source", "TOPIC", "only letters from this topic")
    add_repeatable(verb, "--key", "TEXT", "only records with this key, as text")
    verb.add_argument("--since", metavar="TIME", help="only records from this event time on: ISO text "
                      "(UTC by default) or epoch milliseconds")  # fmt: skip
    verb.add_argument("--until", metavar="TIME", help="only records before this event time")
    add_repeatable(
        verb, "--offsets", "P:A[-B]", "only letters at these offsets of a partition, both included", type=_offsets
    )


def execute(options: argparse.Namespace) -> int:
    """Execute the given subcommand of ``streams dlq``."""
    from streams.clients import DeadLetters

    with opened(options) as cluster:
        if options.verb == "show":
            return _show(DeadLetters(cluster, options.topic), options)
        letters = DeadLetters(cluster, options.topic, options.group or "")
        if options.verb == "list":
            return _list(letters, options)
        return _redrive(letters, options)


# --- list ---------------------------------------------------------------------------------


def _list(letters: "DeadLetters", options: argparse.Namespace) -> int:
    from streams.clients import grouped

    matches = _filter(options)
    redriven = letters.redriven()
    matching = [letter for letter in letters.letters() if matches(letter)]
    groups = [(group, of) for group, of in grouped(matching).items()]
    counts = [sum(letter.offset in redriven[letter.partition] for letter in of) for _, of in groups]
    if options.format == "json":
        for (group, of), done in zip(groups, counts, strict=True):
            print(json.dumps(_summary(group, of, done), ensure_ascii=False))
        return 0
    print(f"{options.topic}: letters: {len(matching):,}, of them re-driven: {sum(counts):,}")
    for (group, of), done in zip(groups, counts, strict=True):
        shown = _summary(group, of, done)
        print(f"\n{len(of):,}  {_headline(of[0])}" + (f"  ({done:,} re-driven)" if done else ""))
        if shown["line"]:
            print(f"    {shown['line']}")
        print(f"    from {', '.join(shown['sources']) or 'no source record'}, {shown['from']} to {shown['to']}")
        print(f"    first {shown['first']}, last {shown['last']}")
    return 0


def _summary(group: tuple[str, str, str], letters: list["Letter"], done: int) -> dict[str, Any]:
    reason, node, line = group
    times = sorted(letter.timestamp_ms for letter in letters)
    return {
        "reason": reason,
        "node": node,
        "line": line,
        "message": _message(letters[0]),
        "letters": len(letters),
        "redriven": done,
        "sources": sorted({letter.source.topic for letter in letters if letter.source}),
        "from": _time_text(times[0]),
        "to": _time_text(times[-1]),
        "first": letters[0].place,
        "last": letters[-1].place,
    }


def _headline(letter: "Letter") -> str:
    from streams.core.dead_letters import NODE_HEADER

    node = letter.errors.get(NODE_HEADER)
    return f"{letter.reason}{f' at {node}' if node else ''}: {_message(letter)}"


def _message(letter: "Letter") -> str:
    from streams.core.dead_letters import MESSAGE_HEADER

    return letter.errors.get(MESSAGE_HEADER, "").partition("\n")[0]


# --- show ---------------------------------------------------------------------------------


def _show(letters: "DeadLetters", options: argparse.Namespace) -> int:
    from streams.core.dead_letters import LINE_HEADER, OFFSET_HEADER, STACKTRACE_HEADER

    number, first, last = options.place
    if first != last:
        raise UsageError(f"show has one letter at a time, not {number}:{first}-{last}; give {number}:{first}")
    letter = letters.letter(number, first)
    if letter is None:
        raise UsageError(
            f"{options.topic}: there is no letter {number}:{first}; `streams dlq list` shows where they are"
        )
    errors, source = letter.errors, letter.source
    key, value = _decoded(letter, options)
    print(_headline(letter))
    if LINE_HEADER in errors:
        print(f"line:     {errors[LINE_HEADER]}")
    print(f"source:   {f'{source} at offset {errors.get(OFFSET_HEADER)}' if source else 'none'}")
    print(f"time:     {_time_text(letter.timestamp_ms)}")
    print(f"redrives: {letter.redrives}")
    print(f"key:      {key}")
    print(f"value:    {value}")
    for name, content in letter.headers:
        if name not in errors:
            print(f"header:   {name}={_text(content)}")
    if STACKTRACE_HEADER in errors:
        print(f"\n{errors[STACKTRACE_HEADER].rstrip()}")
    return 0


def _decoded(letter: "Letter", options: argparse.Namespace) -> tuple[str, str]:
    """Return a dead letter's key and value as text; with ``--script``, the serdes of its source topic are used."""
    from streams.core.errors import SerializationError

    if options.script is None or letter.source is None:
        return _text(letter.key), _text(letter.value)
    from streams.cli.scripts import Script, load
    from streams.cli.topic_declarations import declared_source
    from streams.core.settings.config import StreamsConfig

    script = Script.parse(options.script)
    topology = load(script, StreamsConfig.of(application_id=options.application_id or script.application_id))
    declared = declared_source(topology, letter.source.topic)
    shown = []
    for serde, data in ((declared.key_serde, letter.key), (declared.value_serde, letter.value)):
        try:
            shown.append(repr(serde.deserialize(data)))
        except SerializationError as error:
            shown.append(f"{_text(data)} (cannot be read: {error})")
    return shown[0], shown[1]


# --- redrive ------------------------------------------------------------------------------


def _redrive(letters: "DeadLetters", options: argparse.Namespace) -> int:
    matches = _filter(options)
    test = None
    if options.test:
        test = _Test(options)
        before = matches
        matches = lambda letter: before(letter) and test.passes(letter)  # noqa: E731 - combines both filters.
    if options.is_executed:
        done = letters.redrive(matches, max_redrives=options.max_redrives, rate=options.rate)
    else:
        done = letters.plan(matches, max_redrives=options.max_redrives)
    if test is not None:
        test.report()
    count = sum(done.sent.values())
    print(f"{options.topic}: letters {'re-driven' if options.is_executed else 'to re-drive'}: {count:,}")
    for source, number in sorted(done.sent.items()):
        print(f"  {number:,} to {source}")
    for why, number in sorted(done.refused.items()):
        print(f"  {number:,} left: {why}")
    if not options.is_executed:
        print("nothing was sent; --execute does it")
    return 0


class _Test:
    """Processes dead letters with another version of the topology, in a ``TopologyTestDriver``."""

    def __init__(self, options: argparse.Namespace) -> None:
        from streams.cli.scripts import Script, load
        from streams.core.settings.config import StreamsConfig

        self._name = options.test
        script = Script.parse(options.test)
        application_id = options.application_id or script.application_id
        self._topology = load(script, StreamsConfig.of(application_id=application_id))
        self._application_id = application_id
        self._driver: Any = None
        self._failures: list[str] = []
        self._passed = 0
        self._failed: dict[str, int] = {}

    def passes(self, letter: "Letter") -> bool:
        """Process the record of a dead letter, and return whether this succeeded."""
        source = letter.source
        if source is None or (letter.key is None and letter.value is None):
            return True  # ``redrive`` refuses it and reports the reason.
        self._failures.clear()
        try:
            self._opened().pipe_bytes(
                source.topic, letter.key, letter.value, letter.timestamp_ms, letter.redriven_headers
            )
        except Exception as error:  # noqa: BLE001 - any exception means that the letter does not pass.
            self._failures.append(f"{type(error).__name__}: {error}".partition("\n")[0])
            self._driver = None
        for why in self._failures[:1]:
            self._failed[why] = self._failed.get(why, 0) + 1
        self._passed += not self._failures
        return not self._failures

    def report(self) -> None:
        """Print how many dead letters were processed without error, and the errors of the others."""
        total = self._passed + sum(self._failed.values())
        print(f"{self._name}: letters that pass: {self._passed:,} of {total:,}")
        for why, number in sorted(self._failed.items(), key=lambda item: -item[1]):
            print(f"  {number:,} fail: {why}")

    def _opened(self) -> Any:
        from streams.testing import TopologyTestDriver

        if self._driver is None:
            self._driver = TopologyTestDriver(
                self._topology,
                application_id=self._application_id,
                deserialization_handler=self._note,
                processing_handler=self._note,
                production_handler=self._note,
            )
        return self._driver

    def _note(self, context: Any, record: Any, error: Exception) -> Any:
        from streams.core.handlers import HandlerResponse

        del record
        message = str(error).partition("\n")[0]
        self._failures.append(f"{type(error).__name__} at {context.node}: {message}")
        return HandlerResponse.resume()


# --- filters and forms --------------------------------------------------------------------


def _filter(options: argparse.Namespace) -> Filter:
    """Return a function that selects the dead letters that match all given filters."""
    from streams.core.dead_letters import LetterFilter

    since = None if options.since is None else _time(options.since, "--since")
    until = None if options.until is None else _time(options.until, "--until")
    criteria = options.reason, options.node, options.line, options.source, options.key
    return LetterFilter(*criteria, since, until, options.offsets)


def _offsets(text: str) -> tuple[int, int, int]:
    """Parse PARTITION:OFFSET or PARTITION:FIRST-LAST into (partition, first offset, last offset).

    >>> _offsets("0:17"), _offsets("2:5-9")
    ((0, 17, 17), (2, 5, 9))
    """
    partition, _, offsets = text.partition(":")
    first, dash, last = offsets.partition("-")
    numbers = partition, first, last if dash else first
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r}: expected PARTITION:OFFSET, or PARTITION:FIRST-LAST")
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


def _time(text: str, option: str) -> int:
    from streams.core.event_time.time_texts import time_ms

    return time_ms(text, option)


def _time_text(time_ms: int) -> str:
    from streams.core.event_time.time_texts import time_text

    return time_text(time_ms)


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode("utf-8", "backslashreplace")
