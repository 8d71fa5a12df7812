"""``capture`` reads the frames of an application's flight recorder, and the records that they refer to."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from attrs import define, field

from streams.capsule.capsule import Capsule, TaskSpan
from streams.capsule.chain import FrameChain, chains
from streams.clients import Consumer, ConsumerSettings
from streams.core.blocks.records import Block, TaskId, TopicPartition
from streams.core.errors import InputError
from streams.core.settings.client_settings import ConnectionSettings, Security
from streams.core.settings.config import SETTINGS, StreamsConfig
from streams.core.settings.setting import table_of
from streams.protocol.transport import Cluster
from streams.runtime import Frame, recorder_topic
from streams.topology import Topology

#: Settings that belong to a machine or may contain a password, such as that of a collector's address.
_LOCAL = ("bootstrap_servers", "state_dir", "application_server", "otlp_endpoint", "openlineage_url")
#: Timeout of one poll, in milliseconds.
_POLL_MS = 100


def capture(
    cluster: Cluster,
    topology: Topology,
    config: StreamsConfig,
    partition_counts: Mapping[str, int],
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    tasks: Collection[TaskId] = (),
) -> Capsule:
    """Return a capsule with the commits of an application from ``since_ms`` up to ``until_ms`` (exclusive).

    The application may be running.  ``partition_counts`` has all topics of the cluster.  The times are wall-clock times
    in epoch milliseconds (default: everything recorded); ``tasks`` selects tasks (default: all).

    Raises:
        InputError: nothing was recorded in this time span, a task is unknown, records that are needed have been
            deleted, or the topology has global stores, whose contents over time are not recorded.
    """
    if topology.global_stores:
        names = ", ".join(map(repr, topology.global_stores))
        raise InputError(f"the topology reads global stores ({names}): their content at a time is not recorded")
    topic = recorder_topic(config.application_id)
    if topic not in partition_counts:
        raise InputError(
            f"application {config.application_id!r} has recorded nothing: there is no topic {topic!r}; "
            "run it with --set flight_recorder=true"
        )
    with Consumer(
        cluster,
        settings=ConsumerSettings().replace(isolation_level="read_committed"),
        client_id=f"{config.application_id}-capture",
        auto_offset_reset="earliest",
    ) as consumer:
        reader = _Reader(consumer)
        place = TopicPartition(topic, 0)
        blocks = reader.blocks(place, 0, None)
        frames = [Frame.decoded(value) for block in blocks for value in block.values if value is not None]
        chain_of = chains(frames)
        unknown = sorted(set(tasks) - chain_of.keys())
        if unknown:
            raise InputError(f"nothing is recorded of task {unknown[0]}; recorded are {', '.join(map(str, chain_of))}")
        notes: list[str] = []
        spans = {}
        for task_id, chain in chain_of.items():
            if not tasks or task_id in tasks:
                span = _span(chain, since_ms, until_ms, notes)
                if span is not None:
                    spans[task_id] = span
        if not spans:
            times = f"{frames[0].now_ms} to {frames[-1].now_ms}" if frames else "nothing"
            raise InputError(f"no commit was recorded in that span; recorded (epoch milliseconds): {times}")
        settings, left_out = captured_settings(config)
        needed = _Needed(topology, config.application_id)
        for span in spans.values():
            needed.add(span)
        records = {partition: reader.read(partition, needed) for partition in sorted(needed.ends)}
    topics = {partition.topic for partition in records} | needed.topics()
    counts = {name: partition_counts[name] for name in sorted(topics) if name in partition_counts}
    return Capsule(config.application_id, counts, spans, records, settings, left_out, notes=notes)


def _span(chain: FrameChain, since_ms: int | None, until_ms: int | None, notes: list[str]) -> TaskSpan | None:
    frames = chain.frames
    if chain.gaps:
        notes.append(f"task {chain.task_id}: frames are missing; the span begins after them")
    first = next((i for i, frame in enumerate(frames) if since_ms is None or frame.now_ms >= since_ms), len(frames))
    if first == 0 and frames and frames[0].opening is None:
        first = 1
    stop = next((i for i, frame in enumerate(frames) if until_ms is not None and frame.now_ms >= until_ms), len(frames))
    if first >= stop:
        return None
    chosen = tuple(frames[first:stop])
    if chosen[0].opening is not None:
        return TaskSpan(chain.task_id, chosen)
    notes.append(
        f"task {chain.task_id}: the span begins within a run of the task; what its processors keep outside of "
        "stores, and punctuations scheduled after init, are not known at its start"
    )
    return TaskSpan(chain.task_id, chosen, frames[first - 1])


def captured_settings(config: StreamsConfig) -> tuple[dict[str, Any], list[str]]:
    """Return the settings that differ from their defaults, and the names of the settings that are left out."""
    private = table_of(Security).keys() | table_of(ConnectionSettings).keys()
    settings = {}
    left_out = []
    for name, setting in SETTINGS.items():
        value = _value(config, name)
        if value == setting.default:
            continue
        if name in private or setting.is_secret or callable(value) or name in _LOCAL:
            left_out.append(name)
        elif isinstance(value, str | int | bool):
            settings[name] = value
    return settings, left_out


def _value(config: StreamsConfig, name: str) -> Any:
    for part in (config, config.consumer, config.producer, config.connection, config.security, config.client):
        if hasattr(part, name):
            return getattr(part, name)
    raise AssertionError(f"setting {name!r} is in no group")


@define(eq=False)
class _Needed:
    """The offset ranges that are needed to re-run some tasks: the first and the end offset of each partition."""

    topology: Topology
    application_id: str
    starts: dict[TopicPartition, int] = field(factory=dict)
    ends: dict[TopicPartition, int] = field(factory=dict)
    #: Start positions of the inputs; all records from these offsets must still exist.
    inputs: dict[TopicPartition, int] = field(factory=dict)

    def add(self, span: TaskSpan) -> None:
        first = span.frames[0]
        start = first.opening.start if first.opening is not None else span.before.end if span.before else {}
        for partition, position in start.items():
            self.inputs[partition] = position
            self._range(partition, position, position)
        for frame in span.frames:
            for partition, position in frame.end.items():
                self._range(partition, start.get(partition, position), position)
            for row in (*frame.outputs, *(row for rows in frame.changes.values() for row in rows)):
                self._range(row.partition, row.base, row.base + row.count)
            for store, position in (frame.opening.changelogs if frame.opening else {}).items():
                self._range(self._changelog(store, span.task_id), 0, position)
        for store, position in (span.before.changelogs if span.before else {}).items():
            self._range(self._changelog(store, span.task_id), 0, position)

    def topics(self) -> set[str]:
        """Return the topics whose partition counts determine the tasks."""
        nodes = self.topology.nodes.values()
        named = {topic for node in nodes for topic in getattr(node, "topics", ())}
        named |= {topic for node in nodes if (topic := getattr(node, "topic", None))}
        own = {f"{self.application_id}-{name}" for name in self.topology.internal_topics}
        return named | own | {self.changelog(store) for store in self.topology.stores}

    def changelog(self, store: str) -> str:
        source = self.topology.source_changelogs.get(store)
        return source if source is not None else f"{self.application_id}-{store}-changelog"

    def _changelog(self, store: str, task_id: TaskId) -> TopicPartition:
        return TopicPartition(self.changelog(store), task_id.partition)

    def _range(self, partition: TopicPartition, start: int, end: int) -> None:
        self.starts[partition] = min(start, self.starts.get(partition, start))
        self.ends[partition] = max(end, self.ends.get(partition, end))


@define(eq=False)
class _Reader:
    """Reads the records of partitions between two offsets."""

    consumer: Consumer

    def read(self, partition: TopicPartition, needed: _Needed) -> Block:
        """Return the needed records of a partition as one block of records.

        Raises:
            InputError: some input records of the recorded span have been deleted.
        """
        start = needed.starts[partition]
        end = needed.ends[partition]
        oldest = self.consumer.beginning_offsets([partition])[partition]
        position = needed.inputs.get(partition, oldest)
        if position < min(oldest, end):
            raise InputError(
                f"{partition}: the span needs its records from offset {position}, but those before {oldest} have been "
                "deleted; capture a later span (--since)"
            )
        keys: list[Any] = []
        values: list[Any] = []
        times: list[int] = []
        headers: list[Any] = []
        offsets: list[int] = []
        for block in self.blocks(partition, max(start, oldest), end):
            for offset, key, value, time, record_headers in block.rows():
                if offset < end:
                    offsets.append(offset)
                    keys.append(key)
                    values.append(value)
                    times.append(time)
                    headers.append(record_headers)
        return Block(keys, values, times, headers if any(headers) else None, offsets)

    def blocks(self, partition: TopicPartition, start: int, end: int | None) -> Iterator[Block]:
        """Yield blocks of a partition's records from ``start`` to ``end``; the last may have records after ``end``.

        If ``end`` is None, ``start`` is ignored, and the whole partition is read up to its current end offset.
        """
        consumer = self.consumer
        if end is None:
            end = consumer.end_offsets([partition])[partition]
            start = consumer.beginning_offsets([partition])[partition]
        consumer.assign([partition])
        consumer.seek(partition, start)
        while consumer.position(partition) < end:
            yield from consumer.poll_blocks(_POLL_MS).get(partition, ())
