"""Reading of raw blocks: keys, values and event times of one source, block by block.

A block that goes wrong is read again record by record, so that a bad record is found, goes by
its handler, and those around it are kept.  The types of what lambdas made travel in headers of
internal records and are pinned here.  Imports core and topology.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import define, field

from streams.core.dead_letters import error_headers
from streams.core.errors import ForeignFormatError, ProcessingError, StreamsError
from streams.core.marks import REMEDY
from streams.core.metrics import Counter
from streams.core.records import NO_TIMESTAMP, Block, Headers, TopicPartition
from streams.core.serdes import PinnedSerde, Serde
from streams.core.timestamps import Extractor
from streams.runtime.queues import Batch, Drop

logger = logging.getLogger(__name__)

#: Headers of internal records that carry the types of keys and values made by lambdas.
KEY_TYPE_HEADER = "__streams_key_type"
VALUE_TYPE_HEADER = "__streams_value_type"


def _empty(has_headers: bool) -> Batch:
    return Batch([], [], [], [] if has_headers else None, [])


@define(eq=False)
class SourceReader:
    """Turns the raw blocks of one input partition into batches."""

    partition: TopicPartition
    node: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    extractor: Extractor
    skips_errors: bool
    dropped: Counter
    #: Takes the bytes of dropped records: (key, value, timestamp_ms, headers).
    dead_letters: Callable[[bytes | None, bytes | None, int, Headers], None] | None = None
    #: The partition as users know it, which that of a lane is not; itself if it is None.
    known_as: TopicPartition | None = None
    #: Highest event time read so far; extractors may ask for it.
    partition_time_ms: int = NO_TIMESTAMP
    _has_types: bool = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._has_types = isinstance(self.key_serde, PinnedSerde) or isinstance(self.value_serde, PinnedSerde)

    def read(self, block: Block) -> tuple[list[Batch], Exception | None]:
        """Return the readable records with those to be dropped, and the error of the first that must fail the task."""
        headers = block.headers
        if self._has_types and headers is not None:
            headers = self._pin(headers)
        try:
            keys = self.key_serde.deserialize_all(block.keys)
            values = self.value_serde.deserialize_all(block.values)
        except StreamsError:
            return self._one_by_one(block, headers)
        timestamps = self.extractor.block(values, block.timestamps)
        if timestamps is None or (timestamps and min(timestamps) < 0):
            return self._one_by_one(block, headers)
        if timestamps:
            self.partition_time_ms = max(self.partition_time_ms, max(timestamps))
        return [Batch(keys, values, timestamps, headers, block.offsets)], None

    def _one_by_one(self, block: Block, headers: Sequence[Headers] | None) -> tuple[list[Batch], Exception | None]:
        has_headers = headers is not None
        batches = [_empty(has_headers)]
        rows = zip(block.offsets, block.keys, block.values, block.timestamps, strict=True)
        for index, (offset, raw_key, raw_value, timestamp) in enumerate(rows):
            try:
                key = self.key_serde.deserialize(raw_key)
                value = self.value_serde.deserialize(raw_value)
            except StreamsError as error:
                # A record that another program has put into an internal topic is not one bad record among good ones.
                if self.skips_errors and not isinstance(error, ForeignFormatError):
                    self._leave_out(batches[-1], f"cannot be read: {error}", block, index, error)
                    continue
                return batches, self._failure(error, offset)
            try:
                time = self.extractor.one(key, value, timestamp, self.partition_time_ms)
            except StreamsError as error:
                return batches, self._failure(error, offset)
            if time < 0:
                self._leave_out(batches[-1], f"has the invalid timestamp {time}", block, index)
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

    def _leave_out(self, batch: Batch, why: str, block: Block, index: int, error: Exception | None = None) -> None:
        drop = Drop(block.offsets[index], partial(self._drop, why, block, index, error))
        batch.drops = [*batch.drops, drop]

    def _drop(self, why: str, block: Block, index: int, error: Exception | None = None) -> None:
        self.dropped.value += 1
        offset = block.offsets[index]
        logger.warning("%s at offset %d %s; the record is dropped", self._known_as, offset, why)
        if error is not None and self.dead_letters is not None:
            own = () if block.headers is None else block.headers[index]
            origin = error_headers(error, *self._known_as, offset)
            self.dead_letters(block.keys[index], block.values[index], block.timestamps[index], own + origin)

    @property
    def _known_as(self) -> TopicPartition:
        return self.known_as or self.partition

    def _failure(self, error: StreamsError, offset: int) -> StreamsError:
        failure: StreamsError
        if isinstance(error, ForeignFormatError):
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
        failure = ProcessingError(
            f"{self._known_as} at offset {offset}, source {self.node!r}: {error}; "
            "mend the record or set deserialization_handler=continue to drop and count such records",
            node=self.node,
            topic=self._known_as.topic,
            partition=self._known_as.partition,
            offset=offset,
        )
        failure.__cause__ = error
        return failure

    def _pin(self, headers: Sequence[Headers]) -> Sequence[Headers] | None:
        """Pin serdes to the types in the headers, and return the headers without them."""
        # Records of one origin share theirs.
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
