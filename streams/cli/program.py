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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from streams.cli.commands import (
    archive,
    broker,
    capture,
    completion,
    connect,
    consume,
    describe,
    dev,
    diff,
    dlq,
    golive,
    groups,
    new,
    produce,
    publish,
    replay,
    reproduce,
    reset,
    run,
    snapshot,
    takeover,
    top,
    topics_command,
    why,
)
from streams.cli.interrupts import INTERRUPTED
from streams.cli.mistakes import MISTAKE, report
from streams.cli.versions import installed_version
from streams.core.clock import Clock, SystemClock

#: Commands in the order in which the help lists them.
_COMMANDS = (
    new,
    dev,
    run,
    top,
    replay,
    diff,
    why,
    capture,
    reproduce,
    snapshot,
    golive,
    takeover,
    archive,
    publish,
    broker,
    topics_command,
    groups,
    dlq,
    reset,
    connect,
    produce,
    consume,
    describe,
    completion,
)
#: Exit status after SIGPIPE by shell convention (128 + 13).
PIPE_CLOSED = 141
#: Maximum number of messages per minute that only differ in their arguments.
MESSAGES_OF_A_KIND = 10
_MINUTE_MS = 60_000


class Parser(argparse.ArgumentParser):
    """A parser whose error messages refer to the help instead of printing the whole usage.

    Options cannot be abbreviated, and the line breaks of an epilog are preserved.  The value of an option cannot be
    empty, as that of a shell variable that is not set: the option would have no effect, or its default.
    """

    def __init__(self, **arguments: Any) -> None:
        formatter = argparse.RawDescriptionHelpFormatter if arguments.get("epilog") else argparse.HelpFormatter
        super().__init__(**{"allow_abbrev": False, "formatter_class": formatter, **arguments})

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if action.option_strings and not arg_string:
            raise argparse.ArgumentError(action, "its value is empty; give one, or leave the option out")
        return super()._get_value(action, arg_string)

    def error(self, message: str) -> NoReturn:
        """Exit with the message and status 2."""
        self.exit(MISTAKE, f"streams: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser with all commands."""
    main_parser = Parser(
        prog="streams",
        description="Run a stream processing topology over files or live, and describe it.",
    )
    version = installed_version() or "(not installed)"
    main_parser.add_argument("--version", action="version", version=f"streams {version}")
    commands = main_parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for command in _COMMANDS:
        command.add_parser(commands)
    return main_parser


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
        #: Kind of message -> start of the current minute, and number of messages since then.
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message unless its kind has reached the limit."""
        if hasattr(record, "failure"):
            # The error that ended an application is also raised, and reported by ``main``.
            return
        if self._limit is not None:
            now = self._clock.monotonic_ms()
            self._end_minutes(now - _MINUTE_MS)
            kind = record.name, str(record.msg).partition("\n")[0]
            since_ms, count = self._seen.get(kind, (now, 0))
            self._seen[kind] = since_ms, count + 1
            if count >= self._limit:
                return
        print(f"streams: {self.format(record)}", file=sys.stderr)

    def close(self) -> None:
        """Write the number of omitted messages."""
        self._end_minutes(None)
        super().close()

    def _end_minutes(self, until_ms: int | None) -> None:
        """Remove counts that began at or before ``until_ms`` (None: all), and write how many messages were omitted."""
        over = [kind for kind, (since_ms, _) in self._seen.items() if until_ms is None or since_ms <= until_ms]
        counts = [self._seen.pop(kind)[1] for kind in over]
        left_out = sum(max(0, count - self._limit) for count in counts) if self._limit is not None else 0
        if left_out:
            print(f"streams: {left_out:,} more messages of these kinds; --debug shows them all", file=sys.stderr)


@contextmanager
def _logging(*, is_debug: bool) -> Iterator[None]:
    handler = MessageHandler(None if is_debug else MESSAGES_OF_A_KIND, SystemClock())
    # asyncio logs a debug message for every poll of the broker sockets.
    loggers = [logging.getLogger(name) for name in ("streams", "asyncio")]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.INFO if is_debug else logging.WARNING)
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, level, propagates in before:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagates
        handler.close()


def _terminate(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    main_parser = parser()
    completion.answer_if_asked(main_parser)
    options = main_parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        with _logging(is_debug=options.debug):
            if settle := getattr(options, "settle", None):
                settle(options)
            status: int = options.execute(options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("streams: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has closed the pipe; at exit, Python must not flush buffered output to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the last resort, which distinguishes unexpected errors.
        return report(error, is_debug=options.debug)
