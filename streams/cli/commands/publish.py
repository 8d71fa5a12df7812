"""``streams publish``: write the outputs of a replay to topics of a broker."""

import argparse
import sys

from streams.cli.cluster import add_where, opened
from streams.cli.options import Commands


def add_parser(commands: Commands) -> None:
    """Add ``streams publish`` and its arguments to the program."""
    parser = commands.add_parser(
        "publish",
        description="Publish the outputs in a snapshot to topics, each record exactly once and with its event time. A "
        "run that was killed continues when it is run again. The next snapshot of the same replay continues after "
        "the records of the last one.",
    )
    parser.add_argument("snapshot", metavar="DIR", help="folder of `streams replay --snapshot`")
    parser.add_argument(
        "--topic", metavar="T", action="append", help="output topic (may be repeated; default: all of them)"
    )
    parser.add_argument(
        "--corrections",
        action="store_true",
        help="after a repair: publish the last record of each key whose published records are no longer the results, "
        "for topics that are read as tables",
    )
    add_where(parser, "created if it is missing")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Publish the output topics of the snapshot."""
    from streams.replay import Snapshot, publish
    from streams.replay.storage.places import Place

    snapshot = Snapshot.open(Place(options.snapshot))
    with opened(options, makes=True) as broker:
        counts = publish(snapshot, broker, topics=options.topic, corrects=options.corrections)
    for name, count in counts.items():
        print(f"{name}: {count:,} record{'' if count == 1 else 's'} published", file=sys.stderr)
    return 0
