"""``streams golive``: load a snapshot into the changelogs and committed offsets of a live application."""

import argparse
from pathlib import Path

from streams.cli.cluster import add_where, opened
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_repeatable, pairs


def add_parser(commands: Commands) -> None:
    """Add ``streams golive`` and its arguments to the program."""
    parser = commands.add_parser(
        "golive",
        description="Load changelogs, and commit offsets last; a run that was killed can be repeated.",
    )
    parser.add_argument("snapshot", metavar="DIR", help="snapshot that `streams replay --snapshot` has written")
    add_where(parser)
    parser.add_argument("--force", action="store_true", help="overwrite offsets that the group has committed already")
    add_repeatable(
        parser,
        "--cut",
        "TOPIC=TIME",
        "the history of a topic, replayed from files, ends at this time (ISO text or epoch milliseconds); the "
        "topic continues with its first record from then on (may be repeated)",
    )
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Load the snapshot into the cluster or embedded broker."""
    from streams.replay import Snapshot, go_live
    from streams.replay.storage.places import Place

    folder = Path(options.state_dir or "")
    if options.state_dir and not (folder / "broker").is_dir():
        raise UsageError(
            f"--state-dir {folder}: has no broker yet; `streams run --from-snapshot {options.snapshot} "
            f"--state-dir {folder}` creates one"
        )
    cut = dict(pairs(options.cut, "--cut", "TOPIC=TIME"))
    snapshot = Snapshot.open(Place(options.snapshot))
    with opened(options) as broker:
        done = go_live(snapshot, broker, force=options.force, cut=cut)
    if done.was_live:
        print(f"{snapshot.application_id} is live from this snapshot already")
    else:
        print(
            f"{snapshot.application_id}: {done.changelog_records:,} changelog records loaded, "
            f"offsets of {done.partitions:,} partitions committed; start it as usual"
        )
    return 0
