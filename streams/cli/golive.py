"""``streams golive``: from a snapshot to the offsets and changelogs of a live application."""

import argparse
from pathlib import Path
from typing import Any

from streams.cli.mistakes import UsageError


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser = commands.add_parser(
        "golive",
        help="load a snapshot into a broker, so that its application goes on live",
        description="Load changelogs, and commit offsets last; a run that was killed is simply repeated.",
        allow_abbrev=False,
    )
    parser.add_argument("snapshot", metavar="DIR", help="snapshot that `streams replay --snapshot` has written")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="Kafka cluster to load it into")
    parser.add_argument("--state-dir", metavar="DIR", help="folder of an embedded broker to load it into")
    parser.add_argument("--force", action="store_true", help="go over offsets that the group has committed already")
    parser.add_argument("--debug", action="store_true", help="show tracebacks and more of what is going on")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Load the snapshot."""
    from streams import EmbeddedBroker
    from streams.replay import Snapshot, go_live
    from streams.replay.places import Place

    if options.bootstrap_servers:
        raise UsageError("--bootstrap-servers: a Kafka cluster is not supported yet; give --state-dir")
    if not options.state_dir:
        raise UsageError("say where to: --state-dir DIR of an embedded broker")
    folder = Path(options.state_dir)
    if not (folder / "broker").is_dir():
        raise UsageError(
            f"--state-dir {folder}: has no broker yet; `streams run --from-snapshot {options.snapshot} "
            f"--state-dir {folder}` makes one"
        )
    snapshot = Snapshot.open(Place(options.snapshot))
    with EmbeddedBroker(folder / "broker", maintenance_interval_ms=None) as broker:
        done = go_live(snapshot, broker, force=options.force)
    if done.was_live:
        print(f"{snapshot.application_id} is live from this snapshot already")
    else:
        print(
            f"{snapshot.application_id}: {done.changelog_records:,} changelog records loaded, "
            f"offsets of {done.partitions:,} partitions committed; start it as always"
        )
    return 0
