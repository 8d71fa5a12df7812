"""``streams archive``: copy topics of a broker to files for replays."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streams.cli.cluster import add_where, opened
from streams.cli.mistakes import UsageError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from streams.replay.history.archive import ArchivedTopic

_EXAMPLE = """\
example:
  streams archive --topic orders --topic users --to history --state-dir state
  streams replay totals.py --input orders=history --input users=history --output totals=-
"""


def add_parser(commands: "_SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = commands.add_parser(
        "archive",
        help="keep topics in files for a replay, partitions and offsets as they are",
        description="Add to an archive what it does not have yet of topics: their committed records. Run again, it "
        "adds what is new; records that were deleted in between are an error.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--topic", metavar="T", action="append", required=True, help="topic (may be repeated)")
    parser.add_argument("--to", metavar="DIR", required=True, help="folder of the archive, made if it is new")
    add_where(parser, "which is not changed and must not be running")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Archive the given topics one by one."""
    from streams.broker import offline_topics
    from streams.replay.history.archive import archive_offline, archive_topic

    names = list(dict.fromkeys(options.topic))
    if options.bootstrap_servers:
        with opened(options) as broker:
            for name in names:
                _archive(partial(archive_topic, broker, name, options.to), name, options.to)
        return 0
    folder = Path(options.state_dir) / "broker"
    if not folder.is_dir():
        raise UsageError(f"--state-dir {options.state_dir}: no `streams run` has kept a broker here")
    with offline_topics(folder) as topics:
        for name in names:
            topics.partition_count(name)
        for name in names:
            _archive(partial(archive_offline, topics, name, options.to), name, options.to)
    return 0


def _archive(archive: "Callable[..., ArchivedTopic]", name: str, folder: str) -> None:
    added = 0

    def on_progress(count: int) -> None:
        nonlocal added
        added = count

    archived = archive(on_progress=on_progress)
    print(f"{name}: {added:,} records added, {archived.records:,} in {folder}", file=sys.stderr)
