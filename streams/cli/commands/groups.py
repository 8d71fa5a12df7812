"""``streams groups``: list, describe, rewind and delete groups of a cluster or an embedded broker."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from streams.cli.cluster import add_where, opened, place_of
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_repeatable

if TYPE_CHECKING:
    from streams.clients import Admin
    from streams.core.blocks.records import TopicPartition

_EXAMPLES = """\
examples:
  streams groups describe shop --bootstrap-servers localhost:9092
  streams groups rewind shop --to earliest --topic orders --bootstrap-servers localhost:9092
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams groups`` and its arguments to the program."""
    parser = commands.add_parser(
        "groups",
        description="List, describe, rewind and delete groups; the group of an application is its application id.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="names and states")
    describe = verbs.add_parser("describe", help="members, committed offsets and lag")
    describe.add_argument("group")
    rewind = verbs.add_parser("rewind", help="set the committed offsets of a stopped group")
    rewind.add_argument("group")
    to = rewind.add_mutually_exclusive_group(required=True)
    to.add_argument(
        "--to", metavar="earliest|latest|TIME", help="ISO text or epoch milliseconds: the first record then"
    )
    to.add_argument("--shift", metavar="N", type=int, help="records to go forward, or back if negative")
    add_repeatable(rewind, "--topic", "T", "default: all topics with committed offsets")
    delete = verbs.add_parser("delete", help="delete groups with their offsets")
    delete.add_argument("group", nargs="+")
    for verb in (rewind, delete):
        verb.add_argument("--force", action="store_true", help="also for an application, whose state is not changed")
    for verb in (listing, describe, rewind, delete):
        add_where(verb)
        verb.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Execute the given subcommand of ``streams groups``."""
    from streams.clients import Admin

    with opened(options) as cluster, Admin(cluster) as admin:
        if options.verb == "list":
            for listed in admin.list_groups():
                print(f"{listed.group_id}\t{listed.protocol_type}\t{listed.state}")
        elif options.verb == "describe":
            _describe(admin, options.group)
        elif options.verb == "rewind":
            _rewind(admin, options)
        else:
            for group in options.group:
                admin.delete_group(group, force=options.force)
    return 0


def _describe(admin: "Admin", group: str) -> None:
    from streams.clients import LATEST
    from streams.group import decode_assignment
    from streams.group.assignment.subscriptions import CONSUMER_PROTOCOL_TYPE

    description = admin.describe_group(group)
    committed = admin.committed_offsets(group)
    if description.state == "Dead" and not committed:
        raise UsageError(f"there is no group {group!r}; `streams groups list` shows those that are there")
    print(
        f"{group}: {description.state}, {len(description.members)} member{'' if len(description.members) == 1 else 's'}"
    )
    for member in description.members:
        owned: Iterable[TopicPartition] = ()
        if description.protocol_type == CONSUMER_PROTOCOL_TYPE and member.assignment:
            owned = decode_assignment(member.assignment).partitions
        print(f"  {member.client_id} ({member.member_id}): {', '.join(map(str, owned)) or 'nothing'}")
    ends = admin.list_offsets(dict.fromkeys(committed, LATEST)) if committed else {}
    for partition, offset in sorted(committed.items()):
        print(f"  {partition}: committed {offset.offset}, lag {max(0, ends[partition] - offset.offset)}")


def _rewind(admin: "Admin", options: argparse.Namespace) -> None:
    from streams.core.blocks.records import TopicPartition

    partitions = None
    if options.topic:
        described = admin.describe_topics(options.topic)
        partitions = [TopicPartition(name, n) for name, topic in described.items() for n in range(len(topic.leaders))]
    to = None if options.to is None else place_of(options.to)
    for partition, offset in sorted(
        admin.rewind(options.group, to=to, shift=options.shift, partitions=partitions, force=options.force).items()
    ):
        print(f"{partition}: {offset}")
