"""``streams archive``: copy topics of a broker to files for replays."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from streams.cli.cluster import add_where, broker_folder, opened
from streams.cli.options import Commands

if TYPE_CHECKING:
    from streams.replay.history.archive import ArchivedTopic

_EXAMPLE = """\
example:
  streams archive --topic orders --topic users --to history --state-dir state
  streams replay totals.py --input orders=history --input users=history --output totals=-
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams archive`` and its arguments to the program."""
    parser = commands.add_parser(
        "archive",
        description="Append the committed records of topics to an archive. A further run appends the new records; "
        "records that were deleted in between are an error.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("--topic", metavar="T", action="append", required=True, help="topic (may be repeated)")
    parser.add_argument("--to", metavar="DIR", required=True, help="folder of the archive, created if it is missing")
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
    with offline_topics(broker_folder(options.state_dir)) as topics:
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
