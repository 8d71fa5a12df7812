"""The outputs of a task: columns of records to send, which are split into blocks by partition.

The sinks of a task's program append records to columns.  After each run of records, the columns are partitioned and
returned to the task's driver as blocks.  Records of a topic keep the order in which the sinks appended them.  The
module imports only ``core`` and ``topology``.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import define, field

from streams.core.blocks.loops import PlacedRows, bytes_in, split_by_number
from streams.core.blocks.partitioning import partitions_for
from streams.core.blocks.records import NO_LANE, NO_TIMESTAMP, Block, Headers, Lanes, RecordContext, TopicPartition
from streams.core.errors import ProcessingError, TopologyError
from streams.core.handlers import FailureOrigin, ProducerRecord
from streams.core.serdes.serde_pinned import KEY_TYPE_HEADER, VALUE_TYPE_HEADER
from streams.core.serdes.serdes import BYTES, PinnedSerde, Serde
from streams.core.topic import check_topic_name
from streams.topology import Process, SinkNode


@define(eq=False)
class TopicColumns:
    """Pending output records of one topic.

    ``partitions`` maps record indices to partitions; it is filled only for records with an explicit partition.
    """

    topic: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    keys: list[bytes | None] = field(factory=list)
    values: list[bytes | None] = field(factory=list)
    timestamps: list[int] = field(factory=list)
    headers: dict[int, Headers] = field(factory=dict)
    partitions: dict[int, int] = field(factory=dict)
    #: The place of each record, if the records of the topic are merged by place, otherwise empty.
    places: "array[int]" = field(factory=lambda: array("q"))
    #: The lane of the task in the topic; it means nothing without places.
    lane: int = NO_LANE


@define(eq=False)
class Drained:
    """Output records of one topic with the partition of each, in the order in which they were appended."""

    topic: str
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers] | None
    partitions: list[int]
    #: The place of each record, or None if the records of the topic are not merged by place.
    places: Sequence[int] | None = None
    #: The lane of the task in the topic; it means nothing without places.
    lane: int = NO_LANE


#: A function that returns the partition count of each topic, by their names in the topology.  What it does not know it
#: asks for at once: a batch of records may go to a score of new topics.
PartitionCounts: TypeAlias = Callable[[Sequence[str]], Sequence[int]]


def one_each(topics: Sequence[str]) -> list[int]:
    """Return a partition count of 1 for each topic: for tasks whose records go nowhere."""
    return [1] * len(topics)


#: A function that creates the columns of a topic from its name, key serde and value serde.
NewColumns: TypeAlias = Callable[[str, Serde[Any], Serde[Any]], TopicColumns]


class Outbox:
    """The pending output records of one task, by topic.

    ``physical`` returns the broker partition that stores a partition of the topology.  ``home`` is the partition number
    of the task; records without a key go to this partition, modulo the partition count.  ``lane_in`` returns the
    lane of the task in a topic whose records are merged by place, otherwise None; it is None itself if no topic's are.
    """

    def __init__(
        self,
        home: int,
        partition_counts: PartitionCounts,
        physical: Callable[[str, int], TopicPartition],
        is_internal: Callable[[str], bool],
        new_columns: NewColumns = TopicColumns,
        lane_in: Callable[[str], int | None] | None = None,
    ) -> None:
        self._home = home
        self._partition_counts = partition_counts
        #: The partition that stores a partition of the topology.
        self.physical = physical
        self._is_internal = is_internal
        self._new_columns = new_columns
        self._lane_in = lane_in
        self._topics: dict[str, TopicColumns] = {}
        #: The topics with places: a column that grows with their records, and the column of their places.
        self._placed: list[tuple[list[int], array[int]]] = []
        #: Notes the places of records as they are written.
        self._rows = PlacedRows(NO_TIMESTAMP, self._placed)
        #: Records for topics of others, without those for repartition topics.
        self.sent = 0
        self._laned_bytes = 0
        #: Called with the columns of a topic before they are split into blocks.
        self.on_drained: Callable[[TopicColumns], None] = lambda columns: None

    def columns(self, sink: SinkNode, topic: str | None = None) -> TopicColumns:
        """Return the output columns of a topic (default: the sink's topic), shared by all sinks that write to it."""
        name = topic or sink.topic
        assert name is not None
        return self._columns_of(name, sink.key_serde, sink.value_serde)

    def _columns_of(self, topic: str, key_serde: Serde[Any], value_serde: Serde[Any]) -> TopicColumns:
        columns = self._topics.get(topic)
        if columns is None:
            columns = self._topics[topic] = self._new_columns(topic, key_serde, value_serde)
            if self._lane_in is not None and (lane := self._lane_in(topic)) is not None:
                columns.lane = lane
                self._placed.append((columns.timestamps, columns.places))
        return columns

    @property
    def place_ms(self) -> int:
        """The highest place among the inputs that the task has processed; that of the next record, at least."""
        return self._rows.place

    @place_ms.setter
    def place_ms(self, place_ms: int) -> None:
        self._rows.note()
        self._rows.place = place_ms

    def placed(self, timestamps: Sequence[int], places: Sequence[int]) -> Iterable[int]:
        """Return the timestamps of a run; as they are taken, each output gets the place of the row that leads to it."""
        return self._rows.over(timestamps, places) if self._lane_in is not None else timestamps

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition: int | None = None,
    ) -> None:
        """Append a serialized record to a topic, which need not be a sink topic.

        Raises:
            ProcessingError: the topic has no such partition.
        """
        columns = self._columns_of(topic, BYTES, BYTES)
        index = len(columns.timestamps)
        columns.headers[index] = headers
        if partition is not None:
            (count,) = self._partition_counts([topic])
            if not 0 <= partition < count:
                raise ProcessingError(
                    f"a handler returned a dead letter for partition {partition} of topic {topic!r}, which has "
                    f"partitions 0 to {count - 1}"
                )
            columns.partitions[index] = partition
        columns.keys.append(key)
        columns.values.append(value)
        columns.timestamps.append(timestamp_ms)

    def process(
        self,
        sink: SinkNode,
        record_context: Callable[[int, Headers | None], RecordContext],
        skips: Callable[[ProducerRecord[Any, Any], Exception, FailureOrigin], bool] | None,
    ) -> Process:
        """Return the process function of a sink that chooses topic or partition, or may drop records.

        ``skips`` decides whether a record that cannot be serialized, or whose topic cannot exist, is dropped; with None
        the error is raised.
        """
        serialize_key = sink.key_serde.serialize
        serialize_value = sink.value_serde.serialize

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            topic: Any = sink.topic
            if sink.topic_for is not None:
                topic = sink.topic_for(key, value, record_context(timestamp_ms, headers))
            origin: FailureOrigin = "topic"
            try:
                if sink.topic_for is not None:
                    self._check_chosen(sink, topic)
                origin = "key"
                raw_key = serialize_key(key)
                origin = "value"
                raw_value = serialize_value(value)
            except Exception as error:
                # A value of another type is an error in the topology, not in the record (``RecordCollectorImpl``).
                if skips is None or isinstance(error.__cause__, TypeError):
                    raise
                if not skips(ProducerRecord(topic, key, value, timestamp_ms, headers or ()), error, origin):
                    raise
                return
            columns = self.columns(sink, topic)
            index = len(columns.timestamps)
            if sink.partitioner is not None:
                columns.partitions[index] = self._chosen(sink, columns.topic, key, value)
            if headers:
                columns.headers[index] = headers
            columns.keys.append(raw_key)
            columns.values.append(raw_value)
            columns.timestamps.append(timestamp_ms)

        return process

    def _check_chosen(self, sink: SinkNode, topic: object) -> None:
        if type(topic) is str and topic in self._topics:
            return
        try:
            check_topic_name(topic)
        except TopologyError as error:
            raise ProcessingError(
                f"sink {sink.name!r}: its topic function chose a name that no topic can have: {error}", node=sink.name
            ) from error

    def _chosen(self, sink: SinkNode, topic: str, key: Any, value: Any) -> int:
        (count,) = self._partition_counts([topic])
        assert sink.partitioner is not None
        chosen = sink.partitioner(topic, key, value, count)
        if chosen is None:
            return -1
        if not isinstance(chosen, int) or not 0 <= chosen < count:
            raise ProcessingError(
                f"sink {sink.name!r}: the partitioner returned {chosen!r} for topic {topic!r}, which has "
                f"partitions 0 to {count - 1}",
                node=sink.name,
            )
        return chosen

    def sizes(self) -> dict[str, int]:
        """Return the number of pending records by topic."""
        return {topic: len(columns.timestamps) for topic, columns in self._topics.items()}

    def set_header(self, name: str, value: bytes, after: Mapping[str, int]) -> None:
        """Set a header on all records that were appended since ``sizes`` returned ``after``."""
        for topic, columns in self._topics.items():
            for index in range(after.get(topic, 0), len(columns.timestamps)):
                kept = [header for header in columns.headers.get(index, ()) if header[0] != name]
                columns.headers[index] = (*kept, (name, value))

    def drain(self) -> list[tuple[TopicPartition, Block]]:
        """Return the records appended since the last call as blocks by partition, and clear the columns in place."""
        return [block for drained in self.drain_topics() for block in self.split(drained)]

    def drain_topics(self) -> list[Drained]:
        """Return the records appended since the last call by topic, and clear the columns in place."""
        result = []
        self._rows.note()
        written = [columns for columns in self._topics.values() if columns.timestamps]
        counts = self._partition_counts([columns.topic for columns in written])
        for columns, count in zip(written, counts, strict=True):
            if not self._is_internal(columns.topic):
                self.sent += len(columns.timestamps)
            if columns.places:
                self._laned_bytes += bytes_in(columns.keys) + bytes_in(columns.values)
            self.on_drained(columns)
            result.append(
                Drained(
                    columns.topic,
                    columns.keys[:],
                    columns.values[:],
                    columns.timestamps[:],
                    self._headers(columns),
                    self._partitions(columns, count) if count > 1 else [0] * len(columns.keys),
                    columns.places[:] or None,
                    columns.lane,
                )
            )
            for column in (columns.keys, columns.values, columns.timestamps, columns.places):
                del column[:]
            columns.headers.clear()
            columns.partitions.clear()
        return result

    def take_laned_bytes(self) -> int:
        """Return the size of the records drained since the last call whose topics are merged by place."""
        size = self._laned_bytes
        self._laned_bytes = 0
        return size

    def joined(self, drained: Drained) -> Block:
        """Return records of a topic as one block, whatever their partitions."""
        columns = drained.keys, drained.values, drained.timestamps, drained.headers, drained.places
        return _block(drained.lane, *columns)

    def split(self, drained: Drained) -> list[tuple[TopicPartition, Block]]:
        """Return records of a topic as blocks by partition."""
        physical = self.physical
        topic = drained.topic
        chosen = drained.partitions
        columns = (drained.keys, drained.values, drained.timestamps, drained.headers, drained.places)
        return [
            (physical(topic, partition), _block(drained.lane, *rows))
            for partition, rows in split_by_number(chosen, columns).items()
        ]

    def _partitions(self, columns: TopicColumns, count: int) -> list[int]:
        suffix = columns.key_serde.key_suffix
        home = self._home % count
        keys = columns.keys
        try:
            chosen = partitions_for(keys, count, suffix)  # type: ignore[arg-type]
        except TypeError:
            # At least one record has no key.
            chosen = [home if key is None else partitions_for([key], count, suffix)[0] for key in keys]
        for index, partition in columns.partitions.items():
            if partition >= 0:
                chosen[index] = partition
        return chosen

    def _headers(self, columns: TopicColumns) -> list[Headers] | None:
        """Return the headers column; on internal topics, headers include the names of pinned key and value types."""
        types: Headers = ()
        if self._is_internal(columns.topic):
            pins = ((KEY_TYPE_HEADER, columns.key_serde), (VALUE_TYPE_HEADER, columns.value_serde))
            types = tuple(
                (name, serde.type_name.encode())
                for name, serde in pins
                if isinstance(serde, PinnedSerde) and serde.type_name is not None
            )
        if not columns.headers:
            return [types] * len(columns.keys) if types else None
        some: Mapping[int, Headers] = columns.headers
        return [some.get(index, ()) + types if index in some else types for index in range(len(columns.keys))]


def _block(
    lane: int,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[Headers] | None,
    places: Sequence[int] | None,
) -> Block:
    lanes = None if places is None else Lanes.of_one(lane, places)
    return Block(keys, values, timestamps, headers, range(len(keys)), lanes=lanes)
