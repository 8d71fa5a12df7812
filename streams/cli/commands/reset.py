"""``streams reset``: reset an application to the start of its inputs, a time, offsets or a snapshot."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from streams.cli.cluster import add_where, opened, place_of
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_execute, add_repeatable, number_of, pairs

if TYPE_CHECKING:
    from streams.broker import EmbeddedBroker
    from streams.clients import Admin
    from streams.clients.tcp import TcpCluster
    from streams.core.blocks.records import TopicPartition
    from streams.replay import Snapshot
    from streams.runtime import ResetTarget

_EXAMPLES = """\
examples:
  streams reset shop --state-dir run --execute
  streams reset shop --by-duration 2h --local-state state --bootstrap-servers localhost:9092
  streams reset shop --to 2026-01-31T12:00Z --from-snapshot noon --bootstrap-servers localhost:9092
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams reset`` and its arguments to the program."""
    parser = commands.add_parser(
        "reset",
        description="Set a stopped application back: its offsets on the input topics are set, its internal topics and "
        "its state are deleted. Without --execute, only the plan is printed.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("application", metavar="APP", help="the application id")
    to = parser.add_mutually_exclusive_group()
    to.add_argument(
        "--to",
        metavar="earliest|latest|TIME",
        default="earliest",
        help="ISO text (UTC by default) or epoch milliseconds: the first record from then on (default earliest)",
    )
    to.add_argument("--by-duration", metavar="2h", help="go back to this long ago: a number with d, h, m or s")
    to.add_argument("--to-offset", metavar="N", type=number_of("offsets", 0), help="the same offset everywhere")
    to.add_argument("--shift", metavar="N", type=int, help="records to go forward, or back if negative")
    to.add_argument("--from-file", metavar="FILE", help="lines with topic,partition,offset")
    add_repeatable(parser, "--topic", "T", "an input topic (default: all with committed offsets)")
    parser.add_argument(
        "--from-snapshot",
        metavar="DIR",
        help="load the stores from this snapshot, made to end at --to (`streams replay --until TIME --snapshot DIR`)",
    )
    add_repeatable(parser, "--cut", "TOPIC=TIME", "for a snapshot of files: see `streams golive`")
    add_repeatable(parser, "--output", "T", "delete all records of this output topic too (may be repeated)")
    add_repeatable(
        parser, "--local-state", "DIR", "state_dir of the application on this machine (with --state-dir: known)"
    )
    parser.add_argument("--force", action="store_true", help="remove members that are still in the group")
    add_execute(parser)
    add_where(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Print the plan of the reset; with ``--execute``, execute it."""
    from streams.clients import Admin
    from streams.runtime import ResetPlan

    snapshot = _snapshot(options)
    folders = [Path(options.state_dir) / "state"] if options.state_dir else []
    folders += map(_state_dir, options.local_state)
    with opened(options) as cluster, Admin(cluster) as admin:
        target = _target(options) if snapshot is None else _target_of(snapshot, cluster, admin, options)
        topics = options.topic if snapshot is None else sorted(snapshot.inputs)
        plan = ResetPlan.of(
            admin, options.application, target, topics=topics, outputs=options.output, state_dirs=folders
        )
        members = (
            f"group with {len(plan.members)} member{'s' if len(plan.members) > 1 else ''}: {', '.join(plan.members)}"
            if plan.members
            else "stopped"
        )
        print(f"application {options.application!r}: {members}")
        for line in plan.lines():
            print(f"  {line}")
        if snapshot is not None:
            print(f"  stores: loaded from {snapshot.root}")
        if not options.is_executed:
            print("nothing was changed; --execute does it")
            return 0
        plan.execute(admin, force=options.force, set_offsets=snapshot is None)
        if snapshot is not None:
            _load(snapshot, cluster, options)
    print("done; start it as usual")
    return 0


def _state_dir(folder: str) -> Path:
    # State that is left behind would be of other offsets than those of the reset.
    if not Path(folder).is_dir():
        raise UsageError(f"--local-state {folder}: there is no such folder; give the state_dir of the application")
    return Path(folder)


def _target(options: argparse.Namespace) -> "ResetTarget":
    from streams.core.clock import SystemClock
    from streams.runtime import ResetTarget

    if options.from_file is not None:
        return ResetTarget(offsets=_offsets_in(options.from_file))
    if options.to_offset is not None:
        return ResetTarget(offset=options.to_offset)
    if options.shift is not None:
        return ResetTarget(shift=options.shift)
    if options.by_duration is not None:
        return ResetTarget(to=SystemClock().now_ms() - _duration_ms(options.by_duration))
    return ResetTarget(to=place_of(options.to))


def _duration_ms(text: str) -> int:
    units = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
    if not (text[:-1].isascii() and text[:-1].isdigit() and text[-1:] in units):
        raise UsageError(f"--by-duration {text}: expected a number with d, h, m or s, such as 2h")
    return int(text[:-1]) * units[text[-1]]


def _offsets_in(file: str) -> dict["TopicPartition", int]:
    """Return the offsets in a file with lines of topic,partition,offset, the format of kafka-streams-application-reset.

    Raises:
        UsageError: the file cannot be read or is empty, or a line has another format.
    """
    from streams.core.blocks.records import TopicPartition

    try:
        lines = Path(file).read_text().splitlines()
    except OSError as error:
        raise UsageError(f"--from-file {file}: {error.strerror or error}") from error
    offsets = {}
    for number, line in enumerate(lines, 1):
        topic, _, rest = line.partition(",")
        partition, _, offset = rest.partition(",")
        if not (topic and partition.strip().isdecimal() and offset.strip().isdecimal()):
            raise UsageError(f"{file}:{number}: expected topic,partition,offset, got {line!r}")
        offsets[TopicPartition(topic.strip(), int(partition))] = int(offset)
    if not offsets:
        raise UsageError(f"--from-file {file}: is empty; expected lines with topic,partition,offset")
    return offsets


# --- from a snapshot ----------------------------------------------------------------------


def _snapshot(options: argparse.Namespace) -> "Snapshot | None":
    """Return the snapshot given by ``--from-snapshot``, or None if there is none.

    Raises:
        UsageError: the snapshot belongs to another application, or other arguments contradict it.
    """
    if options.from_snapshot is None:
        if options.cut:
            raise UsageError("--cut is for --from-snapshot")
        return None
    from streams.replay import Snapshot
    from streams.replay.storage.places import Place

    others = (options.by_duration, options.to_offset, options.shift, options.from_file)
    if options.to in ("earliest", "latest") or any(other is not None for other in others) or options.topic:
        raise UsageError("--from-snapshot: give the time at which it ends, --to TIME, and no other offsets or topics")
    snapshot = Snapshot.open(Place(options.from_snapshot))
    if snapshot.application_id != options.application:
        raise UsageError(
            f"--from-snapshot {options.from_snapshot}: is of application {snapshot.application_id!r}, not "
            f"{options.application!r}; make it with `streams replay --application-id {options.application}`"
        )
    return snapshot


def _target_of(
    snapshot: "Snapshot", cluster: "TcpCluster | EmbeddedBroker", admin: "Admin", options: argparse.Namespace
) -> "ResetTarget":
    """Return the end offsets of a snapshot as the target of the reset.

    Raises:
        UsageError: the snapshot does not end at the time of ``--to``.
    """
    from streams.clients import LATEST
    from streams.core.blocks.records import TopicPartition
    from streams.core.event_time.time_texts import time_ms
    from streams.runtime import ResetTarget

    to = time_ms(options.to, "--to")
    cut = dict(pairs(options.cut, "--cut", "TOPIC=TIME"))
    offsets = {
        TopicPartition(topic, number): end for topic in snapshot.inputs for number, end in snapshot.ends(topic).items()
    }
    # Not checked: topics of global tables, which are read to their end, and topics with --cut, which sets their end.
    free = {*cut, *(topic for topics in snapshot.live.global_topics.values() for topic in topics)}
    asked = [place for place in offsets if place.topic not in free]
    starts = admin.list_offsets(dict.fromkeys(asked, to))
    ends = admin.list_offsets(dict.fromkeys(asked, LATEST))
    for place in asked:
        end = offsets[place]
        first = starts[place]
        if 0 <= first < end:
            first = _first_record(cluster, place, first, end, to)
        # If no record has this time or a later one, only transaction markers may follow the end of the snapshot.
        is_there = end <= ends[place] if first < 0 else end == first
        if not is_there:
            raise UsageError(
                f"--from-snapshot {options.from_snapshot}: ends at offset {end} of {place}, and the first "
                f"record from {options.to} on has offset {first}; make one with `streams replay --until "
                f"{options.to} --snapshot DIR`"
            )
    return ResetTarget(offsets=offsets)


def _first_record(
    cluster: "TcpCluster | EmbeddedBroker", place: "TopicPartition", begin: int, end: int, time_ms: int
) -> int:
    """Return the offset of the first record from a time on that is between two offsets, or ``end`` if there is none.

    The broker may have found a transaction marker, whose time is that of the commit, before records of an earlier time.
    """
    from streams.clients import Consumer

    with Consumer(cluster, isolation_level="read_committed") as consumer:
        consumer.assign([place])
        consumer.seek(place, begin)
        while consumer.position(place) < end:
            for record in consumer.poll(100):
                if record.offset >= end or record.timestamp_ms >= time_ms:
                    return min(record.offset, end)
    return end


def _load(snapshot: "Snapshot", cluster: "TcpCluster | EmbeddedBroker", options: argparse.Namespace) -> None:
    from streams.replay import go_live

    done = go_live(snapshot, cluster, force=True, cut=dict(pairs(options.cut, "--cut", "TOPIC=TIME")))
    print(f"{done.changelog_records:,} changelog records loaded")
