"""Deserialization of blocks of raw records from one source into keys, values and event times.

If the deserialization of a block of records fails, its records are deserialized one by one, so that the exception
handler is called only for the records that fail.  Pinned serdes get their types from the headers of internal records.
The module imports only ``core`` from outside ``runtime``.
"""

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import define, evolve, field, frozen

from streams.core.blocks.marks import REMEDY
from streams.core.blocks.records import (
    NO_LANE,
    NO_TIMESTAMP,
    Block,
    ConsumerRecord,
    Headers,
    Lanes,
    TaskId,
    TopicPartition,
)
from streams.core.errors import ForeignFormatError, HandlerError, ProcessingError, StreamsError
from streams.core.event_time.timestamps import EventTime
from streams.core.handlers import ErrorHandlerContext
from streams.core.metrics import DropReason
from streams.core.serdes.serde_pinned import KEY_TYPE_HEADER, VALUE_TYPE_HEADER
from streams.core.serdes.serdes import PinnedSerde, Serde
from streams.runtime.tasks.batches import Batch, Drop
from streams.runtime.tasks.columns.reader import ColumnReader
from streams.runtime.tasks.handling import Handlers
from streams.runtime.tasks.key_sampler import KeySampler
from streams.runtime.tasks.queues import PartitionQueue

logger = logging.getLogger(__name__)


def _is_of_record(error: Exception) -> bool:
    """Return whether a handler may be asked about an error.

    A foreign format in an internal topic is not the fault of a single record, and ``sys.exit()`` is no failure of one.
    """
    return not isinstance(error, ForeignFormatError) and isinstance(error.__cause__, Exception | None)


def _empty(has_headers: bool) -> Batch:
    return Batch([], [], [], [] if has_headers else None, [])


@frozen
class TaskInput:
    """One partition that a task reads.

    ``topic`` is the name of the topic in the topology.  In a bounded run several inputs share this name if
    the topic has one lane per producing task.
    """

    partition: TopicPartition
    source: str
    topic: str
    #: Partition number in the topic of the topology, which differs from the partition number of a lane.
    number: int
    #: Name of the topic in user code; the name of an internal topic includes the application id.
    name: str
    #: Number of partition groups among which the keys of the topic are divided; None if its records reach no store.
    groups: int | None = None


@define(eq=False)
class SourceReader:
    """Deserializes blocks of raw records of one input partition into batches."""

    task_id: TaskId
    partition: TopicPartition
    node: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    extractor: EventTime
    handlers: Handlers
    #: The partition of the topology if ``partition`` is a lane, otherwise None.
    known_as: TopicPartition | None = None
    #: What is added to the lanes of the application's tasks; None if the records are not merged by place, so that their
    #: lanes mean nothing.
    lanes_base: int | None = None
    #: Highest event time read so far, passed to timestamp extractors.
    partition_time_ms: int = NO_TIMESTAMP
    #: Reads blocks as columns, or None if no program takes them.
    columns: ColumnReader | None = None
    #: Samples the keys, or None where it does not matter in which partition they are.
    keys: KeySampler | None = None
    _has_types: bool = field(init=False)
    #: Raw blocks with unprocessed records, kept if a handler may need their bytes.
    _raw: deque[Block] = field(factory=deque, init=False)

    def __attrs_post_init__(self) -> None:
        self._has_types = isinstance(self.key_serde, PinnedSerde) or isinstance(self.value_serde, PinnedSerde)

    def read(self, block: Block) -> tuple[list[Batch], Exception | None]:
        """Deserialize a block; return its records and drops as batches, and the error if a record fails the task."""
        stop = None if self.keys is None else self.keys.look(block)
        if stop is None:
            return self._read(block)
        index, misplaced = stop
        batches, failure = self._read(block.slice(0, index))
        return batches, failure or misplaced

    def _read(self, block: Block) -> tuple[list[Batch], Exception | None]:
        headers = block.headers
        if self.handlers.settings.may_ask:
            self._raw.append(block)
        if self.columns is not None and (rows := self.columns.read(block)) is not None:
            self.partition_time_ms = max(self.partition_time_ms, max(rows.timestamps))
            lanes = self._lanes_of(block)
            return [Batch(rows.keys, rows.values, rows.timestamps, None, block.offsets, lanes=lanes)], None
        if self._has_types and headers is not None:
            headers = self._pin(headers)
        is_readable = True
        try:
            keys = self.key_serde.deserialize_all(block.keys)
            values = self.value_serde.deserialize_all(block.values)
        except StreamsError:
            is_readable = False
        if not is_readable:
            # Outside of the ``except`` block, so that later errors do not have this one as their context.
            return self._readable(block, headers)
        timestamps = self.extractor.block(values, block.timestamps)
        if timestamps is None or (timestamps and min(timestamps) < 0):
            return self._readable(block, headers)
        if timestamps:
            self.partition_time_ms = max(self.partition_time_ms, max(timestamps))
        return [Batch(keys, values, timestamps, headers, block.offsets, lanes=self._lanes_of(block))], None

    def _lanes_of(self, block: Block) -> Lanes | None:
        if self.lanes_base is None or block.lanes is None:
            return None
        return block.lanes.above(self.lanes_base) if self.lanes_base else block.lanes

    def _readable(self, block: Block, headers: Sequence[Headers] | None) -> tuple[list[Batch], Exception | None]:
        batches, failure = self._one_by_one(block, headers)
        if self.lanes_base is not None:
            index_of = {offset: index for index, offset in enumerate(block.offsets)}
            lanes = self._lanes_of(block)
            numbers = lanes.lanes if lanes else [NO_LANE] * len(block)
            places = lanes.places if lanes else block.timestamps
            for batch in batches:
                if lanes is not None:
                    batch.lanes = lanes.pick(map(index_of.__getitem__, batch.offsets))
                rows = [index_of[drop.offset] for drop in batch.drops]
                batch.drops = [
                    evolve(drop, lane=numbers[row], place_ms=places[row])
                    for drop, row in zip(batch.drops, rows, strict=True)
                ]
        return batches, failure

    def _one_by_one(self, block: Block, headers: Sequence[Headers] | None) -> tuple[list[Batch], Exception | None]:
        has_headers = headers is not None
        batches = [_empty(has_headers)]
        rows = zip(block.offsets, block.keys, block.values, block.timestamps, strict=True)
        for index, (offset, raw_key, raw_value, timestamp) in enumerate(rows):
            try:
                key = self.key_serde.deserialize(raw_key)
                value = self.value_serde.deserialize(raw_value)
                own = () if headers is None else headers[index]
                time = self.extractor.one(key, value, timestamp, self.partition_time_ms, own)
            except StreamsError as error:
                if self._may_skip(error):
                    self._leave_out(batches[-1], offset, partial(self._ask, block, index, error))
                    continue
                return batches, self._unreadable(error, offset)
            if time < 0:
                self._leave_out(batches[-1], offset, partial(self._drop_invalid, offset, time))
                continue
            self.partition_time_ms = max(self.partition_time_ms, time)
            if batches[-1].drops:
                batches.append(_empty(has_headers))
            batch = batches[-1]
            batch.keys.append(key)  # type: ignore[attr-defined]
            batch.values.append(value)  # type: ignore[attr-defined]
            batch.timestamps.append(time)  # type: ignore[attr-defined]
            batch.offsets.append(offset)  # type: ignore[attr-defined]
            if headers is not None and batch.headers is not None:
                batch.headers.append(headers[index])  # type: ignore[attr-defined]
        return batches, None

    def _may_skip(self, error: StreamsError) -> bool:
        """Return whether the handler is asked about a record that cannot be read, or whose time cannot be extracted."""
        return _is_of_record(error) and self.handlers.settings.may_skip("deserialization_handler")

    def _leave_out(self, batch: Batch, offset: int, effect: Callable[[], Exception | None]) -> None:
        batch.drops = [*batch.drops, Drop(offset, effect)]

    def _ask(self, block: Block, index: int, error: Exception) -> Exception | None:
        """Call the handler for a record that cannot be deserialized; return the error if the task must fail."""
        topic, number = self._known_as
        offset = block.offsets[index]
        key = block.keys[index]
        value = block.values[index]
        time = block.timestamps[index]
        headers = () if block.headers is None else block.headers[index]
        context = ErrorHandlerContext(
            self.node,
            self.task_id,
            topic,
            number,
            offset,
            time,
            headers,
            key,
            value,
            dead_letter_topic=self.handlers.settings.dead_letter_topic,
        )
        record = ConsumerRecord(topic, number, offset, time, key, value, headers)
        try:
            if self.handlers.skips("deserialization_handler", context, record, error):
                return None
        except HandlerError as failure:
            return failure
        return self._unreadable(error, offset)

    def _drop_invalid(self, offset: int, time: int) -> None:
        where = f"{self._known_as} at offset {offset}"
        logger.info("%s has the invalid timestamp %d; the record is dropped", where, time)
        self.handlers.metrics.drop(
            DropReason.INVALID_TIMESTAMP, task=self.task_id, node=self.node, example=f"{where}: timestamp {time}"
        )

    def raw_record(self, offset: int) -> tuple[bytes | None, bytes | None]:
        """Return the raw key and value of an unprocessed record, or (None, None) if they are not kept."""
        for block in self._raw:
            if block.offsets[-1] >= offset:
                index = bisect_left(block.offsets, offset)
                if block.offsets[index] == offset:
                    return block.keys[index], block.values[index]
        return None, None

    def forget_raw(self, queue: PartitionQueue) -> None:
        """Remove the kept blocks of raw records that end before the position of their queue."""
        position = queue.position if self._raw else None
        while position is not None and self._raw and self._raw[0].offsets[-1] < position:
            self._raw.popleft()

    @property
    def _known_as(self) -> TopicPartition:
        return self.known_as or self.partition

    def _unreadable(self, error: Exception, offset: int) -> StreamsError:
        if not isinstance(error, ForeignFormatError):
            hint = "; fix the record, or set deserialization_handler=continue to drop and count such records"
            return self._failure(error, offset, hint if _is_of_record(error) else "")
        topic, partition = self._known_as
        failure = ForeignFormatError(
            f"{self._known_as} at offset {offset}, source {self.node!r}: {error}; {REMEDY}",
            what=error.what,
            topic=topic,
            partition=partition,
            offset=offset,
        )
        failure.__cause__ = error
        return failure

    def _failure(self, error: Exception, offset: int, hint: str = "") -> ProcessingError:
        failure = ProcessingError(
            f"{self._known_as} at offset {offset}, source {self.node!r}: {error}{hint}",
            node=self.node,
            task_id=self.task_id,
            topic=self._known_as.topic,
            partition=self._known_as.partition,
            offset=offset,
        )
        failure.__cause__ = error
        return failure

    def _pin(self, headers: Sequence[Headers]) -> Sequence[Headers] | None:
        """Pin the serdes to the types named in the headers, and return the headers without these type names."""
        # Records with the same origin share their headers.
        distinct = {id(entry): entry for entry in headers}
        stripped = {number: self._strip(entry) for number, entry in distinct.items()}
        if not any(stripped.values()):
            return None
        return [stripped[id(entry)] for entry in headers]

    def _strip(self, headers: Headers) -> Headers:
        rest = []
        for name, value in headers:
            if name == KEY_TYPE_HEADER and value is not None:
                if isinstance(self.key_serde, PinnedSerde):
                    self.key_serde.pin(value.decode())
            elif name == VALUE_TYPE_HEADER and value is not None:
                if isinstance(self.value_serde, PinnedSerde):
                    self.value_serde.pin(value.decode())
            else:
                rest.append((name, value))
        return tuple(rest)
