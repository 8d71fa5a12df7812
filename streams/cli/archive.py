"""``streams archive``: topics of a broker into files, from which a replay reads them."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streams.cli.mistakes import UsageError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from streams.broker import OfflineTopics

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
    add_broker(parser, "which is not changed and must not be running")
    parser.set_defaults(execute=execute)


def add_broker(parser: argparse.ArgumentParser, state_dir: str) -> None:
    """Add the arguments that say which broker is meant."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--state-dir", metavar="DIR", help=f"the embedded broker of this folder of `streams run`, {state_dir}"
    )
    where.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="a Kafka cluster (not supported yet)")
    parser.add_argument("--debug", action="store_true", help="show tracebacks and more of what is going on")


def data_folder(options: argparse.Namespace) -> Path:
    """Return the data directory of the embedded broker that is meant.

    Raises:
        ConfigError: a cluster is meant.
    """
    from streams.core.errors import ConfigError

    if options.bootstrap_servers:
        raise ConfigError("bootstrap_servers: a Kafka cluster is not supported yet; give --state-dir")
    return Path(options.state_dir) / "broker"


def execute(options: argparse.Namespace) -> int:
    """Archive the topics, one after the other."""
    from streams.broker import offline_topics

    folder = data_folder(options)
    if not folder.is_dir():
        raise UsageError(f"--state-dir {options.state_dir}: no `streams run` has kept a broker here")
    with offline_topics(folder) as topics:
        names = list(dict.fromkeys(options.topic))
        for name in names:
            topics.partition_count(name)
        for name in names:
            _archive(topics, name, options.to)
    return 0


def _archive(topics: "OfflineTopics", name: str, folder: str) -> None:
    from streams.replay.archive import archive_offline

    added = 0

    def on_progress(count: int) -> None:
        nonlocal added
        added = count

    archived = archive_offline(topics, name, folder, on_progress=on_progress)
    print(f"{name}: {added:,} records added, {archived.records:,} in {folder}", file=sys.stderr)
