"""The entry point: parses the command line, runs a command and returns its exit status.

Exit statuses: 0 is success.  1 is a failure that a restart may cure, such as a record that could not be processed or
a state directory in use, 2 is a user mistake, and 3 means that a run over history succeeded but dropped more late
records than ``--max-dropped``.
"""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import NoReturn

from streams.cli.interrupts import INTERRUPTED
from streams.cli.lines import formed, log_line, say
from streams.cli.mistakes import report, traced
from streams.cli.parsing import Parser
from streams.core.clock import Clock, SystemClock
from streams.core.nearest import suggestion
from streams.core.notices import Minutes

#: The commands by what they are for, in the order of the help.  Each has a module of its name in ``cli.commands``,
#: which is loaded when the command is called.
_GROUPS = {
    "Write": {
        "new": "make a project with a typed topology and its tests",
        "dev": "run a script over a sample at each save, and show what changed",
        "describe": "show sub-topologies, topics and stores of a topology",
    },
    "Run": {
        "run": "run a topology over files, or live",
        "replay": "run a topology over history",
        "connect": "run sources and sinks from a file",
        "broker": "serve a broker that speaks Kafka's protocol",
    },
    "Understand": {
        "why": "explain why there is, or is not, an output record for a key",
        "diff": "compare two versions of a topology over the same history",
        "top": "show what a running application does",
        "capture": "capture a span of a live application, to run it again",
        "reproduce": "run a capsule again, record for record",
    },
    "Topics and groups": {
        "topics": "list, describe, create, alter, grow and delete topics",
        "groups": "list, describe, rewind and delete groups",
        "produce": "write lines to a topic",
        "consume": "show the records of a topic",
        "dlq": "list and show dead letters, and send them to their source topics again",
        "reset": "set an application back: offsets, internal topics, state, outputs",
    },
    "History and live": {
        "archive": "copy topics to files for a replay, with their partitions and offsets",
        "snapshot": "show, verify or compare snapshots",
        "golive": "load a snapshot into a broker, so that its application continues live",
        "publish": "publish the outputs of a replay to topics",
        "takeover": "check whether an application of Java can be gone on with here, and back",
    },
    "Shell": {"completion": "print a shell's completion script"},
}
COMMANDS = {name: text for group in _GROUPS.values() for name, text in group.items()}
#: Exit status after SIGPIPE by shell convention (128 + 13).
PIPE_CLOSED = 141
#: Variable by which a shell asks argcomplete for completions.
COMPLETION_VARIABLE = "_ARGCOMPLETE"
#: Maximum number of messages per minute that only differ in their arguments.
MESSAGES_OF_A_KIND = 10


def _overview() -> str:
    """Return the commands by what they are for, without loading them."""
    width = max(map(len, COMMANDS))
    groups = (
        "\n".join([f"{group}:", *(f"  {name:{width}}  {text}" for name, text in commands.items())])
        for group, commands in _GROUPS.items()
    )
    return "\n\n".join([*groups, "streams COMMAND --help shows the arguments of a command. To begin: streams new shop"])


def _version() -> str:
    # Not at the top: the search for the installed distribution takes a third of the start.
    from streams.core.installation import installed_version

    return installed_version() or "(not installed)"


class _Version(argparse.Action):
    """Prints the version; it is looked up if asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"streams {_version()}")
        parser.exit()


def parser(names: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the command-line parser with the named commands, by default all."""
    main_parser = Parser(
        prog="streams", usage="streams COMMAND ...", description="Kafka Streams for Python.", epilog=_overview()
    )
    main_parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = main_parser.add_subparsers(
        dest="command", prog="streams", help=argparse.SUPPRESS, required=True, parser_class=Parser
    )
    for name in names:
        import_module(f"streams.cli.commands.{name}").add_parser(commands)
    return main_parser


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments; only the module of their command is loaded.

    Raises:
        SystemExit: they are wrong, or ask for help or the version.
    """
    name = next((text for text in arguments if not text.startswith("-")), None)
    main_parser = parser([name] if name in COMMANDS else [])
    if not arguments:
        main_parser.print_help()
        main_parser.exit()
    if name is not None and name not in COMMANDS:
        main_parser.error(f"there is no command {name!r}{suggestion(name, COMMANDS, '; did you mean {}?')}")
    options, extras = main_parser.parse_known_args(arguments)
    if extras:
        command = _command_parser(main_parser, options)
        option = extras[0].partition("=")[0]
        if not option.startswith("-"):
            command.error(f"unexpected argument {option!r}")
        if option in command._option_string_actions:
            command.error(f"{option} goes behind {command.prog}")
        near = suggestion(option, command._option_string_actions, "; did you mean {}?")
        command.error(f"there is no option {option}{near}")
    return options


def _command_parser(of: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.ArgumentParser:
    """Return the parser of the command, or of its verb, that the options are of."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            return _command_parser(action.choices[getattr(options, action.dest)], options)
    return of


class MessageHandler(logging.Handler):
    """Writes messages to the current ``sys.stderr``, which a progress display may replace.

    Of messages that only differ in their arguments (for example one per bad record), the first ``limit`` per
    minute are written and the others are counted.  The count is written with the first message after that
    minute, and at the end.
    """

    def __init__(self, limit: int | None, clock: Clock) -> None:
        super().__init__()
        self._limit = limit
        self._clock = clock
        self._minutes = Minutes()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message unless its kind has reached the limit."""
        if hasattr(record, "failure"):
            # The error that ended an application is also raised, and reported by ``main``.
            return
        if self._limit is not None:
            now = self._clock.monotonic_ms()
            self._end_minutes(now)
            if self._minutes.add((record.name, str(record.msg).partition("\n")[0]), now) > self._limit:
                return
        error = record.exc_info[1] if record.exc_info and self._limit is None else None
        log_line(record.levelname, record.name, record.getMessage(), traced(error))

    def close(self) -> None:
        """Write the number of omitted messages."""
        self._end_minutes(None)
        super().close()

    def _end_minutes(self, now_ms: int | None) -> None:
        """Write how many messages were omitted in the minutes that are over (None: in all)."""
        limit = self._limit or 0
        if left_out := sum(max(0, count - limit) for _, count in self._minutes.over(now_ms)):
            log_line("WARNING", __name__, f"{left_out:,} more messages of these kinds; --debug shows them all")


@contextmanager
def _logging(*, is_debug: bool, level: str = "warning") -> Iterator[None]:
    handler = MessageHandler(None if is_debug else MESSAGES_OF_A_KIND, SystemClock())
    # asyncio logs a debug message for every poll of the broker sockets.
    loggers = [logging.getLogger(name) for name in ("streams", "asyncio")]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.INFO if is_debug else level.upper())
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, own_level, propagates in before:
            logger.removeHandler(handler)
            logger.setLevel(own_level)
            logger.propagate = propagates
        handler.close()


def _terminate(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    if COMPLETION_VARIABLE in os.environ:
        from streams.cli.commands.completion import answer

        answer(parser())
    options = _parsed(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, _terminate)
    with formed(_form_of(options)):
        return _status(options)


def _form_of(options: argparse.Namespace) -> str | None:
    """Return the form of the log: that of a service, unless a run over files goes on before the eyes of a person."""
    is_of_files = getattr(options, "input", None) or getattr(options, "next", None)
    usual = "text" if hasattr(options, "log_format") and not is_of_files else None
    return getattr(options, "log_format", None) or usual


def _status(options: argparse.Namespace) -> int:
    """Run a command; return its exit status."""
    status: int
    try:
        with _logging(is_debug=options.debug, level=getattr(options, "log_level", None) or "warning"):
            if settle := getattr(options, "settle", None):
                settle(options)
            status = options.execute(options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has closed the pipe; at exit, Python must not flush buffered output to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the last resort, which distinguishes unexpected errors.
        return report(error, is_debug=options.debug)
