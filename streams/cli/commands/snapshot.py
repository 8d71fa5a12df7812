"""``streams snapshot``: show, verify or compare snapshots."""

import argparse

from streams.cli.lines import say
from streams.cli.options import Commands, add_debug, add_limit


def add_parser(commands: Commands) -> None:
    """Add ``streams snapshot`` and its arguments to the program."""
    parser = commands.add_parser(
        "snapshot",
        description="Show the content of a snapshot, verify that it is complete, or compare two.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    show = verbs.add_parser("show", help="positions, times, stores, outputs")
    show.add_argument("folders", metavar="DIR", nargs=1)
    verify = verbs.add_parser("verify", help="check that all files are complete and unchanged")
    verify.add_argument("folders", metavar="DIR", nargs="+")
    diff = verbs.add_parser("diff", help="positions and store contents that differ between two")
    diff.add_argument("folders", metavar="DIR", nargs=2)
    add_limit(diff, "differing keys shown per store", 10)
    for verb in (show, verify, diff):
        add_debug(verb)
        verb.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Execute the given subcommand; return 1 if a snapshot is damaged or two snapshots differ."""
    from streams.replay import Snapshot
    from streams.replay.handover.contents import differences, shown
    from streams.replay.storage.places import Place

    snapshots = [Snapshot.open(Place(folder)) for folder in options.folders]
    if options.verb == "show":
        print("\n".join(shown(snapshots[0])))
        return 0
    if options.verb == "diff":
        lines = list(differences(*snapshots, limit=options.limit))
        print("\n".join(lines) if lines else "no difference")
        return 1 if lines else 0
    damaged = False
    for snapshot in snapshots:
        problems = snapshot.verify()
        damaged = damaged or bool(problems)
        for problem in problems:
            say(f"{snapshot.root}: {problem}")
        if not problems:
            files = len(snapshot.files)
            size = sum(size for size, _ in snapshot.files.values())
            print(f"{snapshot.root}: whole: {files:,} files, {size:,} bytes")
    return 1 if damaged else 0
