"""From the command line to a command and an exit status.

0: done.  1: a record could not be processed, or the program failed.  2: the user's mistake.
"""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import NoReturn

from streams.cli import describe, run
from streams.cli.mistakes import MISTAKE, UsageError, report

#: Exit status after an interrupt from the keyboard, as shells have it.
INTERRUPTED = 130
#: Exit status after the reader of our standard output has gone, as shells have it.
PIPE_CLOSED = 141


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
    for command in (run, describe):
        command.add_parser(commands)
    return main_parser


def _version() -> str:
    try:
        return version("streams")
    except PackageNotFoundError:  # Run from a tree that is not installed.
        return "(not installed)"


class _StandardErrorHandler(logging.Handler):
    """Writes to whatever standard error is now: a progress display replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"streams: {self.format(record)}", file=sys.stderr)


def _set_up_logging(*, is_debug: bool) -> None:
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(_StandardErrorHandler())
    logging.getLogger("streams").setLevel(logging.INFO if is_debug else logging.WARNING)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    options = parser().parse_args(arguments)
    _set_up_logging(is_debug=options.debug)
    signal.signal(signal.SIGTERM, _terminate)
    try:
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


__all__ = ["UsageError", "main", "parser"]
