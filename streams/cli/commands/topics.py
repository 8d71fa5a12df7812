"""``streams topics``: list, describe, create, alter, grow and delete topics of a cluster or an embedded broker."""

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from streams.cli.cluster import add_where, opened
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_repeatable, names_of, pairs, partition_count

if TYPE_CHECKING:
    from streams.protocol.messages import TopicMetadata

_EXAMPLES = """\
examples:
  streams topics list --bootstrap-servers localhost:9092
  streams topics create orders --partitions 4 --topic-set cleanup.policy=compact --bootstrap-servers localhost:9092
  streams topics describe orders --keys --bootstrap-servers localhost:9092
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams topics`` and its arguments to the program."""
    parser = commands.add_parser(
        "topics",
        description="List, describe, create, alter, grow and delete topics.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="names of topics")
    listing.add_argument("--internal", action="store_true", help="also internal topics of the broker")
    describe = verbs.add_parser("describe", help="partitions, offsets and settings")
    describe.add_argument("topic", nargs="+")
    describe.add_argument(
        "--keys",
        action="store_true",
        help="also sample keys: whether they are in the partitions where joins and tables look for them, and which "
        "partitioner put them elsewhere",
    )
    create = verbs.add_parser("create", help="create topics")
    create.add_argument("topic", nargs="+")
    create.add_argument(
        *names_of("--partitions"), metavar="N", type=partition_count, default=-1, help="default: the broker's"
    )
    create.add_argument("--replicas", metavar="N", type=partition_count, default=-1, help="default: the broker's")
    add_repeatable(create, "--topic-set", "NAME=VALUE", "a topic setting of Kafka (may be repeated)")
    create.add_argument("--if-missing", action="store_true", help="do nothing if the topic exists")
    alter = verbs.add_parser("alter", help="change settings of a topic")
    alter.add_argument("topic")
    alter.add_argument(
        "setting", nargs="+", metavar="NAME=VALUE", help="a topic setting of Kafka; others are not changed"
    )
    grow = verbs.add_parser("grow", help="add partitions to topics")
    grow.add_argument("topic", nargs="+")
    grow.add_argument(*names_of("--partitions"), metavar="N", type=partition_count, required=True)
    delete = verbs.add_parser("delete", help="delete topics with their records")
    delete.add_argument("topic", nargs="+")
    for verb in (listing, describe, create, alter, grow, delete):
        add_where(verb)
        verb.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Execute the given subcommand of ``streams topics``."""
    from streams.clients import Admin
    from streams.protocol.messages import TopicSpec

    makes = options.verb == "create"
    with opened(options, makes=makes) as cluster, Admin(cluster) as admin:
        if options.verb == "list":
            for name in admin.list_topics(include_internal=options.internal):
                print(name)
        elif options.verb == "describe":
            _describe(cluster, admin, options.topic, with_keys=options.keys)
        elif options.verb == "create":
            config = dict(pairs(options.topic_set, "--topic-set", "NAME=VALUE"))
            specs = [TopicSpec(name, options.partitions, config, options.replicas) for name in options.topic]
            admin.create_topics(specs, exist_ok=options.if_missing)
        elif options.verb == "alter":
            cluster.alter_topic(options.topic, dict(pairs(options.setting, "topics alter", "NAME=VALUE")))
        elif options.verb == "grow":
            admin.create_partitions(dict.fromkeys(options.topic, options.partitions))
        elif options.verb == "delete":
            admin.delete_topics(options.topic)
        else:
            raise UsageError(f"topics: there is no verb {options.verb!r}")
    return 0


def _describe(cluster: Any, admin: Any, names: list[str], *, with_keys: bool) -> None:
    from streams.clients import EARLIEST, LATEST
    from streams.core.blocks.records import TopicPartition

    for name, topic in admin.describe_topics(names).items():
        partitions = [TopicPartition(name, number) for number in range(len(topic.leaders))]
        starts = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))
        total = sum(ends[partition] - starts[partition] for partition in partitions)
        sys.stdout.write(
            f"{name}: {len(partitions)} partition{'' if len(partitions) == 1 else 's'}, {total:,} offsets\n"
        )
        for partition, leader in zip(partitions, topic.leaders, strict=True):
            sys.stdout.write(
                f"  partition {partition.partition}: leader {leader}, "
                f"offsets {starts[partition]} to {ends[partition]}\n"
            )
        for key in ("cleanup.policy", "retention.ms", "max.message.bytes", "min.insync.replicas"):
            if key in topic.config:
                sys.stdout.write(f"  {key}={topic.config[key]}\n")
        if with_keys:
            sys.stdout.writelines(f"  {line}\n" for line in _keys(cluster, admin, topic))


def _keys(cluster: Any, admin: Any, topic: "TopicMetadata") -> Iterator[str]:
    """Yield what a sample of a topic's keys says of their places."""
    from streams.clients import PARTITIONER_CONFIG
    from streams.core.blocks.key_places import KeyPlaces
    from streams.core.blocks.records import TopicPartition
    from streams.core.serdes.serdes import WINDOW_SUFFIXES
    from streams.takeover import ClusterReader

    partitioner = topic.config.get(PARTITIONER_CONFIG, "default")
    if partitioner != "default":
        yield f"keys: placed by the topic's partitioner {partitioner}, not by their hash"
        return
    count = len(topic.leaders)
    # A windowed key is placed without its window; whether keys have one is not known here.
    plain, *windowed = (KeyPlaces(topic.name, count, suffix) for suffix in (0, *WINDOW_SUFFIXES))
    records = 0
    with ClusterReader(cluster, admin) as reader:
        for at, block in reader.samples(TopicPartition(topic.name, number) for number in range(count)):
            records += len(block)
            for places in (plain, *windowed):
                places.look(at.partition, block.keys, block.offsets, {at.partition})
    if not plain.sampled:
        yield f"keys: none in {records:,} sampled records"
        return
    if plain.misplaced and not all(places.misplaced for places in windowed):
        yield f"keys: {plain.sampled:,} sampled, 0 misplaced: windowed keys, placed without their windows"
        return
    yield f"keys: {plain.summary}"
    if plain.first is not None:
        yield f"  the first: {plain.first}"
