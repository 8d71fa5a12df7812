"""The broker as a machine: requests and the time in, answers out, now or later.

Knows no connection, thread or socket: in process, over TCP and in simulation the same
object answers, driven by whoever calls ``handle`` and ``tick`` (one at a time).  It
holds topics and logs, long-polling fetches, and wires the group coordinator to its log.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from attrs import define, field, frozen

from streams.broker.fetches import Answer, WaitingFetches
from streams.broker.log import PartitionLog
from streams.broker.refusals import refusal
from streams.broker.topics import INTERNAL_TOPICS, OFFSETS_TOPIC, Topic, Topics, check_name
from streams.core.errors import BrokerError, ConfigError
from streams.core.records import Block, TopicPartition
from streams.group.coordinator import Coordinator, Effect, Persist, Reply
from streams.protocol.messages import (
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeleteGroup,
    DeleteRecords,
    DeleteRecordsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    DescribeGroup,
    ErrorCode,
    Fetch,
    FetchedPartition,
    FetchResponse,
    FindCoordinator,
    FindCoordinatorResponse,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListOffsets,
    ListOffsetsResponse,
    Metadata,
    MetadataResponse,
    OffsetCommit,
    OffsetFetch,
    Produce,
    ProduceResponse,
    Request,
    SyncGroup,
    TopicMetadata,
)

_LOGGER = logging.getLogger(__name__)

_GROUP_REQUESTS = (
    JoinGroup,
    SyncGroup,
    Heartbeat,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    ListGroups,
    DescribeGroup,
    DeleteGroup,
)
_OFFSETS_PARTITION = TopicPartition(OFFSETS_TOPIC, 0)
_OFFSETS_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
_LOAD_RECORDS = 50_000
_READ_COMMITTED = 1

ErrorText: TypeAlias = tuple[ErrorCode, str]


@frozen
class BrokerConfig:
    """Settings of a broker.

    ``auto_create_topics``: a Metadata request for an unknown topic creates it with
    ``default_partitions`` (Kafka's ``auto.create.topics.enable``, true there as here).
    ``maintenance_interval_ms``: how often ``tick`` runs retention and compaction (Kafka's
    ``log.retention.check.interval.ms``); None = only when ``maintain`` is called.
    """

    node_id: int = 0
    auto_create_topics: bool = True
    default_partitions: int = 1
    maintenance_interval_ms: int | None = 300_000


@frozen(eq=False)
class _GroupToken:
    """What the coordinator gives back with its reply: whom to answer, and to what."""

    request: GroupRequest
    answer: Answer


@define(eq=False)
class Broker:
    """One broker: topics, logs, waiting fetches and groups."""

    topics: Topics
    coordinator: Coordinator
    config: BrokerConfig = field(factory=BrokerConfig)
    _fetches: WaitingFetches = field(factory=WaitingFetches, init=False)
    _unflushed: set[PartitionLog] = field(factory=set, init=False)
    _maintenance_due_ms: int | None = field(default=None, init=False)
    _handlers: dict[type, Callable[..., None]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        handlers: dict[type, Callable[..., None]] = {
            Produce: self._produce,
            Fetch: self._fetch,
            Metadata: self._metadata,
            ListOffsets: self._list_offsets,
            CreateTopics: self._create_topics,
            CreatePartitions: self._create_partitions,
            DeleteTopics: self._delete_topics,
            DeleteRecords: self._delete_records,
            FindCoordinator: self._find_coordinator,
        }
        for kind in _GROUP_REQUESTS:
            handlers[kind] = self._group
        self._handlers = handlers

    # --- what drives it ---------------------------------------------------------------------

    def load(self) -> None:
        """Open the stored topics, and rebuild groups and committed offsets from their log."""
        self.topics.load()
        log = self.topics.logs.get(_OFFSETS_PARTITION)
        if log is not None:
            self.coordinator.load(_key_values(log))

    def handle(self, request: Request, now_ms: int, answer: Answer) -> None:
        """Take a request; ``answer`` is called once, before this returns or in a later call.

        Raises:
            BrokerError: no request of the protocol.
        """
        handler = self._handlers.get(type(request))
        if handler is None:
            raise BrokerError(
                f"request {type(request).__name__} is not known to this broker", code=ErrorCode.INVALID_REQUEST
            )
        handler(request, now_ms, answer)

    def next_deadline_ms(self) -> int | None:
        """Return when ``tick`` is due next; None when nothing waits for the time."""
        deadlines = (
            self._fetches.next_deadline_ms(),
            self.coordinator.next_deadline_ms(),
            self._maintenance_due_ms,
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def tick(self, now_ms: int) -> None:
        """Let everything happen that is due: ended fetches, expired sessions, maintenance."""
        for fetch in self._fetches.take_due(now_ms):
            fetch.answer(self._fetched(fetch.request, now_ms)[0])
        group_deadline_ms = self.coordinator.next_deadline_ms()
        if group_deadline_ms is not None and group_deadline_ms <= now_ms:
            self._perform(self.coordinator.tick(now_ms), now_ms)
        if self._maintenance_due_ms is not None and self._maintenance_due_ms <= now_ms:
            self._maintenance_due_ms = None
            self.maintain(now_ms)
            self._schedule_maintenance(now_ms)

    def maintain(self, now_ms: int) -> None:
        """Apply retention and compaction to every log whose topic asks for it.

        A log whose storage fails is left as it is and reported; the others go on.
        """
        for topic in self.topics:
            for log in topic.logs:
                try:
                    log.apply_retention(now_ms)
                    log.compact(now_ms)
                except (OSError, BrokerError) as error:
                    _LOGGER.error("maintenance of %s failed and will be tried again: %s", log.partition, error)
        self._wake([log.partition for topic in self.topics for log in topic.logs], now_ms)

    def close(self) -> None:
        """Flush and close all logs."""
        self.topics.close()

    # --- records ------------------------------------------------------------------------------

    def append(self, partition: TopicPartition, blocks: Sequence[Block], now_ms: int) -> int:
        """Append to one partition, wake who waits for it, and return the base offset.

        Raises:
            UnknownTopicError, RecordTooLargeError, BrokerError: refused, nothing appended.
            OSError: the storage failed.
        """
        base = self._append(self.topics.log(partition), blocks, now_ms)
        self._wake((partition,), now_ms)
        return base

    def _append(self, log: PartitionLog, blocks: Sequence[Block], now_ms: int) -> int:
        base = log.append(blocks, now_ms)
        self._unflushed.add(log)
        if log.config.needs_maintenance:
            self._schedule_maintenance(now_ms)
        return base

    def _produce(self, request: Produce, now_ms: int, answer: Answer) -> None:
        results: dict[TopicPartition, tuple[ErrorCode, int, str]] = {}
        for partition, blocks in request.blocks.items():
            try:
                if partition.topic in INTERNAL_TOPICS:
                    raise BrokerError(
                        f"topic {partition.topic!r} is the broker's own and takes no records from clients",
                        code=ErrorCode.INVALID_TOPIC,
                    )
                base = self._append(self.topics.log(partition), blocks, now_ms)
                results[partition] = (ErrorCode.NONE, base, "")
            except (BrokerError, OSError) as error:
                code, message = _error_of(error)
                results[partition] = (code, -1, message)
        answer(ProduceResponse(results))
        self._wake([partition for partition, result in results.items() if result[0] is ErrorCode.NONE], now_ms)

    def _fetch(self, request: Fetch, now_ms: int, answer: Answer) -> None:
        response, is_ready = self._fetched(request, now_ms)
        if is_ready or request.max_wait_ms <= 0:
            answer(response)
        else:
            self._fetches.add(request, answer, now_ms + request.max_wait_ms)

    def _fetched(self, request: Fetch, now_ms: int) -> tuple[FetchResponse, bool]:
        """Return what there is to read, and whether it is worth an answer at once."""
        logs, max_records = self.topics.logs, request.max_records
        is_committed_only = request.isolation_level == _READ_COMMITTED
        partitions: dict[TopicPartition, FetchedPartition] = {}
        is_ready = False
        for partition, offset in request.positions.items():
            log = logs.get(partition)
            if log is None:
                partitions[partition] = FetchedPartition(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
                is_ready = True
                continue
            end = log.high_watermark
            try:
                blocks = log.fetch(offset, max_records, now_ms)
            except (BrokerError, OSError) as error:
                code, message = _error_of(error)
                if code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    _LOGGER.error("reading %s at offset %d failed: %s", partition, offset, message)
                partitions[partition] = FetchedPartition(code, end, log.start_offset)
                is_ready = True
                continue
            if blocks and is_committed_only and log.last_stable_offset < end:
                blocks = _below(blocks, log.last_stable_offset)
            is_ready = is_ready or bool(blocks)
            partitions[partition] = FetchedPartition(ErrorCode.NONE, end, log.start_offset, blocks)
        return FetchResponse(partitions), is_ready or not partitions

    def _wake(self, partitions: Sequence[TopicPartition], now_ms: int) -> None:
        for fetch in self._fetches.waiting(partitions):
            response, is_ready = self._fetched(fetch.request, now_ms)
            if is_ready:
                self._fetches.finish(fetch)
                fetch.answer(response)

    def _list_offsets(self, request: ListOffsets, now_ms: int, answer: Answer) -> None:
        results: dict[TopicPartition, tuple[ErrorCode, int, int]] = {}
        for partition, timestamp_ms in request.timestamps.items():
            try:
                timestamp, offset = self.topics.log(partition).offset_for(timestamp_ms)
                results[partition] = (ErrorCode.NONE, timestamp, offset)
            except (BrokerError, OSError) as error:
                results[partition] = (_error_of(error)[0], -1, -1)
        answer(ListOffsetsResponse(results))

    def _delete_records(self, request: DeleteRecords, now_ms: int, answer: Answer) -> None:
        results: dict[TopicPartition, tuple[ErrorCode, int]] = {}
        for partition, offset in request.offsets.items():
            try:
                results[partition] = (ErrorCode.NONE, self.topics.log(partition).delete_records(offset))
            except (BrokerError, OSError) as error:
                results[partition] = (_error_of(error)[0], -1)
        answer(DeleteRecordsResponse(results))
        self._wake(list(request.offsets), now_ms)

    # --- topics -------------------------------------------------------------------------------

    def _metadata(self, request: Metadata, now_ms: int, answer: Answer) -> None:
        if request.topics is None:
            topics = [self._described(topic) for topic in self.topics]
        else:
            topics = [self._found(name, request.allow_auto_topic_creation) for name in request.topics]
        answer(MetadataResponse({self.config.node_id: ""}, topics))

    def _found(self, name: str, may_create: bool) -> TopicMetadata:
        topic = self.topics.by_name.get(name)
        if topic is None:
            try:
                check_name(name)
                if not (may_create and self.config.auto_create_topics) or name in INTERNAL_TOPICS:
                    return TopicMetadata(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                topic = self.topics.create(name, self.config.default_partitions)
            except (BrokerError, ConfigError, OSError) as error:
                return TopicMetadata(name, _error_of(error)[0])
        return self._described(topic)

    def describe_topic(self, name: str) -> TopicMetadata:
        """Return partitions and settings of a topic.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        return self._described(self.topics.topic(name))

    def _described(self, topic: Topic) -> TopicMetadata:
        leaders = (self.config.node_id,) * len(topic.logs)
        return TopicMetadata(
            topic.name, ErrorCode.NONE, leaders, topic.described(), topic.is_internal, topic.partitioner
        )

    def _create_topics(self, request: CreateTopics, now_ms: int, answer: Answer) -> None:
        errors: dict[str, ErrorText] = {}
        for spec in request.topics:
            partitions = self.config.default_partitions if spec.partitions == -1 else spec.partitions
            errors[spec.name] = _attempt(self.topics.create, spec.name, partitions, spec.config)
        answer(CreateTopicsResponse(errors))

    def _create_partitions(self, request: CreatePartitions, now_ms: int, answer: Answer) -> None:
        errors = {name: _attempt(self.add_partitions, name, count) for name, count in request.counts.items()}
        answer(CreatePartitionsResponse(errors))

    def add_partitions(self, name: str, partitions: int) -> None:
        """Raise the number of a topic's partitions.

        Raises:
            UnknownTopicError: there is no such topic.
            BrokerError: it has that many already, or is the broker's own.
        """
        _refuse_internal(name)
        self.topics.add_partitions(name, partitions)

    def _delete_topics(self, request: DeleteTopics, now_ms: int, answer: Answer) -> None:
        errors = {name: _attempt(self.delete_topic, name, now_ms)[0] for name in request.topics}
        answer(DeleteTopicsResponse(errors))

    def delete_topic(self, name: str, now_ms: int) -> None:
        """Delete a topic, its records, and what groups have committed for it.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        _refuse_internal(name)
        partitions = self.topics.delete(name)
        self._unflushed.difference_update([log for log in self._unflushed if log.partition.topic == name])
        self._wake(partitions, now_ms)
        self._perform(self.coordinator.forget_topics([name]), now_ms)

    # --- groups -------------------------------------------------------------------------------

    def _find_coordinator(self, request: FindCoordinator, now_ms: int, answer: Answer) -> None:
        answer(FindCoordinatorResponse(ErrorCode.NONE, self.config.node_id))

    def _group(self, request: GroupRequest, now_ms: int, answer: Answer) -> None:
        self._perform(self.coordinator.handle(request, now_ms, _GroupToken(request, answer)), now_ms)

    def _perform(self, effects: Sequence[Effect], now_ms: int) -> None:
        """Append what is to be kept, then answer: a commit is acknowledged only when it is in the log."""
        persists = [effect for effect in effects if isinstance(effect, Persist)]
        failure: ErrorText | None = None
        if persists:
            try:
                self._persist(persists, now_ms)
            except (OSError, BrokerError) as error:
                failure = _error_of(error)
                _LOGGER.error("writing %s failed: %s", OFFSETS_TOPIC, error)
        for effect in effects:
            if isinstance(effect, Reply):
                token = effect.token
                assert isinstance(token, _GroupToken)
                token.answer(effect.response if failure is None else refusal(token.request, failure[0]))

    def _persist(self, persists: Sequence[Persist], now_ms: int) -> None:
        log = self.topics.logs.get(_OFFSETS_PARTITION)
        if log is None:
            log = self.topics.create(OFFSETS_TOPIC, 1, _OFFSETS_CONFIG).logs[0]
        # Offsets behind which records are lost would be skipped records: flush these first.
        for unflushed in self._unflushed:
            unflushed.storage.flush()
        self._unflushed.clear()
        block = Block([p.key for p in persists], [p.value for p in persists], [now_ms] * len(persists))
        log.append([block], now_ms)
        log.storage.flush()
        self._schedule_maintenance(now_ms)
        self._wake((_OFFSETS_PARTITION,), now_ms)

    def _schedule_maintenance(self, now_ms: int) -> None:
        if self._maintenance_due_ms is None and self.config.maintenance_interval_ms is not None:
            self._maintenance_due_ms = now_ms + self.config.maintenance_interval_ms


def _key_values(log: PartitionLog) -> Iterator[tuple[bytes, bytes | None]]:
    offset = log.start_offset
    while blocks := log.read(offset, _LOAD_RECORDS):
        for block in blocks:
            yield from ((key, value) for key, value in zip(block.keys, block.values, strict=True) if key is not None)
        offset = blocks[-1].offsets[-1] + 1


def _below(blocks: Sequence[Block], offset: int) -> list[Block]:
    kept = []
    for block in blocks:
        count = sum(1 for found in block.offsets if found < offset)
        if count:
            kept.append(block if count == len(block) else block.slice(0, count))
    return kept


def _refuse_internal(name: str) -> None:
    if name in INTERNAL_TOPICS:
        raise BrokerError(f"topic {name!r} is the broker's own; leave it to it", code=ErrorCode.INVALID_TOPIC)


def _attempt(action: Callable[..., object], *arguments: object) -> ErrorText:
    try:
        action(*arguments)
    except (BrokerError, ConfigError, OSError) as error:
        return _error_of(error)
    return ErrorCode.NONE, ""


def _error_of(error: Exception) -> ErrorText:
    if isinstance(error, BrokerError):
        known = error.code in ErrorCode._value2member_map_
        return ErrorCode(error.code) if known else ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
    if isinstance(error, ConfigError):
        return ErrorCode.INVALID_CONFIG, str(error)
    return ErrorCode.STORAGE_ERROR, f"the storage failed: {error}"
