"""From the command line to a command and an exit status.

0: done.  1: a record could not be processed, or the program failed.  2: the user's mistake.
3: a run over history is done, but more records than ``--max-dropped`` were dropped as late.
"""

import argparse
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import NoReturn

from streams.cli import (
    archive,
    broker,
    consume,
    describe,
    diff,
    golive,
    groups,
    produce,
    publish,
    replay,
    run,
    snapshot,
    topics_command,
)
from streams.cli.mistakes import MISTAKE, report

#: In the order in which help lists them.
_COMMANDS = (
    run,
    replay,
    diff,
    snapshot,
    golive,
    archive,
    publish,
    broker,
    topics_command,
    groups,
    produce,
    consume,
    describe,
)
#: Exit status after an interrupt from the keyboard, as shells have it.
INTERRUPTED = 130
#: Exit status after the reader of our standard output has gone, as shells have it.
PIPE_CLOSED = 141
#: How many messages that differ in their arguments only are shown.
MESSAGES_OF_A_KIND = 10


class Parser(argparse.ArgumentParser):
    """Says where help is, instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        """End with the message and exit status 2."""
        self.exit(MISTAKE, f"streams: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    main_parser = Parser(
        prog="streams",
        description="Run a stream processing topology over files or live, and show what it looks like.",
        allow_abbrev=False,
    )
    main_parser.add_argument("--version", action="version", version=f"streams {_version()}")
    commands = main_parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for command in _COMMANDS:
        command.add_parser(commands)
    return main_parser


def _version() -> str:
    try:
        return version("streams")
    except PackageNotFoundError:  # Run from a tree that is not installed.
        return "(not installed)"


class MessageHandler(logging.Handler):
    """Writes messages to whatever standard error is now: a progress display replaces it.

    Of messages that differ in their arguments only (one per bad record, say) it writes the first
    ``limit`` and counts the rest.
    """

    def __init__(self, limit: int | None) -> None:
        super().__init__()
        self._limit = limit
        self._seen: Counter[tuple[str, str]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message, unless there were enough like it."""
        if hasattr(record, "failure"):
            # What ended an application is raised too, and reported by ``main``: once is enough.
            return
        kind = record.name, str(record.msg)
        self._seen[kind] += 1
        if self._limit is None or self._seen[kind] <= self._limit:
            print(f"streams: {self.format(record)}", file=sys.stderr)

    def close(self) -> None:
        """Say how many messages were left out."""
        limit = self._limit
        if limit is not None:
            left_out = sum(count - limit for count in self._seen.values() if count > limit)
            if left_out:
                print(f"streams: {left_out:,} more messages of these kinds; --debug shows them all", file=sys.stderr)
        self._seen.clear()
        super().close()


@contextmanager
def _logging(*, is_debug: bool) -> Iterator[None]:
    handler = MessageHandler(None if is_debug else MESSAGES_OF_A_KIND)
    logger = logging.getLogger("streams")
    before, propagates = logger.level, logger.propagate
    logger.setLevel(logging.INFO if is_debug else logging.WARNING)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        logger.propagate = propagates
        handler.close()


def _terminate(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        with _logging(is_debug=options.debug):
            status: int = options.execute(options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("streams: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has had enough; Python must not flush into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - the last resort; unexpected ones are told apart there.
        return report(error, is_debug=options.debug)
