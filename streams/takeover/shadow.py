"""The shadow: the application here, run in memory over records that the other one has processed already.

It begins with the state, the committed offsets and their metadata of a mark, on a broker in this process, and ends when
all records up to the committed offsets are processed.  The cluster is only read.  User code runs as usual: what it does
to other systems, it does.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, cast

from attrs import define, frozen

from streams.app import Streams
from streams.broker import EmbeddedBroker
from streams.clients import Admin
from streams.core.blocks.records import Block, TopicPartition
from streams.core.settings.client_settings import ConnectionSettings, Security
from streams.core.settings.setting import table_of
from streams.core.settings.settings import ApplicationSettings
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.messages import TopicSpec
from streams.topology import Topology

_LOOK_MS = 20
#: Settings of the shadow, whatever the application has: all results are written, and only its broker is used.
_ANEW: dict[str, Any] = {
    "default_store": "in_memory",
    "processing_guarantee": "at_least_once",
    "cache_max_bytes": 0,
    "commit_interval_ms": 100,
    "auto_offset_reset": "earliest",
    "num_standby_replicas": 0,
    "unknown_state": "ignore",
    "flight_recorder": False,
}
#: Settings that are those of a machine or a cluster.
_LOCAL = ("bootstrap_servers", "state_dir", "application_server", "otlp_endpoint", "openlineage_url")

#: Value and timestamp of a record.
_Row = tuple[bytes | None, int]


@frozen
class Stretch:
    """What a shadow is given: partitions with their first offset and records, and what is committed at the begin."""

    #: All topics that it reads or writes.
    topics: Mapping[str, TopicSpec]
    starts: Mapping[TopicPartition, int]
    records: Mapping[TopicPartition, Block]
    committed: Mapping[TopicPartition, OffsetAndMetadata]
    #: The partitions that tasks read.
    reads: tuple[TopicPartition, ...]
    outputs: tuple[str, ...]
    #: Number of input records to process.
    inputs: int


@define
class OutputDifference:
    """How the outputs of a topic differ: numbers of records, and of keys by how they differ."""

    topic: str
    had: int = 0
    has: int = 0
    keys: int = 0
    #: Keys whose records are the same; of which one has only some of the other's, with the same last one.
    equal: int = 0
    fewer: int = 0
    #: Keys with the same last record after other ones; with another last record; and of one side only.
    others: int = 0
    last: int = 0
    only_there: int = 0
    only_here: int = 0
    example: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether last records differ."""
        return bool(self.last or self.only_there or self.only_here)


def shadow_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an application without those of its machine and its connection."""
    left_out = {*_LOCAL, *table_of(Security), *table_of(ConnectionSettings)}
    return {name: value for name, value in settings.items() if name not in left_out}


def play(
    topology: Topology, application_id: str, settings: Mapping[str, Any], stretch: Stretch
) -> dict[str, list[Block]]:
    """Run an application over a stretch; return the records of its outputs.

    Raises:
        StreamsError: the application failed.
    """
    with EmbeddedBroker(auto_create_topics=False, maintenance_interval_ms=None) as broker, Admin(broker) as admin:
        admin.create_topics(stretch.topics.values())
        for at, start in stretch.starts.items():
            broker.begin_at(at, start)
        for at, block in stretch.records.items():
            if len(block):
                broker.append(at, block)
        if stretch.committed:
            admin.alter_offsets(application_id, dict(stretch.committed))
        options = cast("ApplicationSettings", {**settings, **_ANEW, "application_id": application_id})
        with Streams(topology, broker=broker, **options) as app:
            while not _is_done(broker, admin, application_id, stretch):
                app.wait(_LOOK_MS)
        return {
            topic: [
                block
                for number in range(stretch.topics[topic].partitions)
                for block in _all(broker, TopicPartition(topic, number))
            ]
            for topic in stretch.outputs
        }


def _is_done(broker: EmbeddedBroker, admin: Admin, application_id: str, stretch: Stretch) -> bool:
    """Whether all inputs are processed, also those that processing has added to internal topics.

    The ends are read after the commits: what a task has written is in the log before it commits.
    """
    committed = admin.committed_offsets(application_id)
    for at in stretch.reads:
        end = broker.end_offset(at)
        position = committed[at].offset if at in committed else broker.start_offset(at)
        if position < end:
            return False
    return True


def _all(broker: EmbeddedBroker, at: TopicPartition) -> list[Block]:
    blocks = []
    position = broker.start_offset(at)
    end = broker.end_offset(at)
    while position < end and (chunk := broker.read(at, position)):
        blocks += chunk
        position = chunk[-1].offsets[-1] + 1
    return blocks


def compare(
    topic: str, had: list[Block], has: list[Block], shown: Callable[[bytes | None, bytes | None], str]
) -> OutputDifference:
    """Compare what the other implementation wrote to a topic with what the shadow wrote.

    ``shown`` returns key and value of a record as text.
    """
    one = _by_key(had)
    two = _by_key(has)
    result = OutputDifference(topic, sum(map(len, one.values())), sum(map(len, two.values())), len(one.keys() | two))
    for key in sorted(one.keys() | two, key=lambda key: key or b""):
        kind = _kind(key, one.get(key, []), two.get(key, []))
        setattr(result, kind, getattr(result, kind) + 1)
        if kind in ("last", "only_there", "only_here") and not result.example:
            last = [shown(key, rows[-1][0]) if rows else "nothing" for rows in (one.get(key), two.get(key))]
            result.example = f"{last[0]} was written last there, and {last[1]} here"
    return result


def _by_key(blocks: list[Block]) -> dict[bytes | None, list[_Row]]:
    rows: dict[bytes | None, list[_Row]] = defaultdict(list)
    for block in blocks:
        for _, key, value, time_ms, _ in block.rows():
            rows[key].append((value, time_ms))
    return rows


def _kind(key: bytes | None, one: list[_Row], two: list[_Row]) -> str:
    """Return the counter of a key with these records."""
    if one == two or (key is None and Counter(one) == Counter(two)):
        # Records without a key are in any partition, and in any order.
        return "equal"
    if not one:
        return "only_here"
    if not two:
        return "only_there"
    if one[-1] != two[-1]:
        return "last"
    return "fewer" if _is_part(one, two) or _is_part(two, one) else "others"


def _is_part(some: list[_Row], all_: list[_Row]) -> bool:
    """Whether records are some of the others, in the same order."""
    rest = iter(all_)
    return all(row in rest for row in some)
