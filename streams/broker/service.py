"""The broker as a state machine that turns requests and the current time into responses, now or later.

``now_ms`` is the monotonic time, for session, transaction and fetch deadlines.  Timestamps, retention and times to
live use the wall clock (``wall_ms``), which may be changed.

The broker has no connections, threads or sockets: the same object serves clients in this process, over TCP and in
simulations, driven by ``handle`` and ``tick`` (one call at a time).  It has the topics, logs and waiting fetches, and
connects the group coordinator to its log.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias, get_args

from attrs import Factory, define, evolve, field

from streams.broker.catalogue import Catalogue, refuse_internal
from streams.broker.features import served
from streams.broker.fetch_sessions import FetchSessions
from streams.broker.fetches import Answer, Fetches, WaitingFetch
from streams.broker.group_desk import GroupDesk, note_storage
from streams.broker.logs.config import INTERNAL_CONFIG, BrokerConfig
from streams.broker.logs.log import PartitionLog, RefusedRecordsError
from streams.broker.maintenance import PAUSE_MS, Maintenance
from streams.broker.reads import listed_offsets
from streams.broker.refusals import error_of, refusal
from streams.broker.topics import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topics
from streams.broker.transaction_log import producer_ids_key, producer_ids_value, transaction_key
from streams.broker.transactions import (
    CoordinatedRequest,
    PersistProducerIds,
    PersistTransaction,
    TransactionCoordinator,
    TransactionEffect,
    WriteMarkers,
)
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import BrokerError
from streams.core.notices import Notices
from streams.group import Coordinator, Persist
from streams.protocol.admin_messages import ApiVersions, ApiVersionsResponse
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetCommit, OffsetCommitResponse
from streams.protocol.group_requests import GroupRequest
from streams.protocol.markers import marker
from streams.protocol.messages import (
    COORDINATOR_GROUP,
    COORDINATOR_TRANSACTION,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    CreatePartitions,
    CreateTopics,
    DeletedRecords,
    DeleteRecords,
    DeleteRecordsResponse,
    DeleteTopics,
    EndTxn,
    Fetch,
    FindCoordinator,
    FindCoordinatorResponse,
    InitProducerId,
    ListOffsets,
    ListOffsetsResponse,
    Metadata,
    Produce,
    Produced,
    ProduceResponse,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from streams.protocol.request import Request, Response
from streams.protocol.wire import UnsupportedVersionError

_LOGGER = logging.getLogger(__name__)
_GROUP_REQUESTS: tuple[type, ...] = get_args(GroupRequest)
_OFFSETS_PARTITION = TopicPartition(OFFSETS_TOPIC, 0)
_TRANSACTIONS_PARTITION = TopicPartition(TRANSACTIONS_TOPIC, 0)
_TRANSACTION_REQUESTS = (InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn)
_LOAD_RECORDS = 50_000
#: Answers one kind of request at once, at a monotonic time in milliseconds.
Handler: TypeAlias = "Callable[[Broker, Any, int], Response]"


@define(eq=False)
class Broker:
    """The state machine of a broker: topics, logs, waiting fetches, groups and transactions.

    ``handlers`` answer the requests that need no more than a function; ``streams.broker.HANDLERS`` has all of them.
    """

    topics: Topics
    coordinator: Coordinator
    config: BrokerConfig = field(factory=BrokerConfig)
    handlers: Mapping[type, Handler] = field(kw_only=True)
    transactions: TransactionCoordinator = field(
        default=Factory(lambda it: TransactionCoordinator(lambda _: _OFFSETS_PARTITION, it.config), takes_self=True),
        kw_only=True,
    )
    fetch_sessions: FetchSessions = field(factory=FetchSessions, kw_only=True)
    #: The addresses that clients of other processes are told, as Kafka's advertised.listeners.
    advertised: Callable[[], Sequence[str]] = field(default=tuple, kw_only=True)
    catalogue: Catalogue = field(init=False)
    groups: GroupDesk = field(init=False)
    #: Wall clock minus monotonic time, in milliseconds.
    clock_ahead_ms: int = field(default=0, init=False)
    _fetches: Fetches = field(init=False)
    _unflushed: set[PartitionLog] = field(factory=set, init=False)
    _maintenance: Maintenance = field(init=False)
    _maintenance_due_ms: int | None = field(default=None, init=False)
    _handlers: dict[type, Callable[..., None]] = field(init=False)
    #: Partitions whose last write failed.
    _unwritten: set[TopicPartition] = field(factory=set, init=False)
    #: The broker of one process logs none, because its clients do.
    notices: Notices = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._maintenance = Maintenance(self.topics)
        self.notices = Notices(is_logged=not self.config.is_private)
        self._fetches = Fetches(self.topics, self.fetch_sessions, self.wall_ms)
        self.catalogue = Catalogue(self.topics, self.config, self.delete_topic)
        self.groups = GroupDesk(self.coordinator, self.catalogue, self._append_groups, self.notices)
        self.transactions.ledgers = lambda: (log.producers for log in self.topics.logs.values())
        handlers: dict[type, Callable[..., None]] = {
            Produce: self._produce,
            Fetch: self._fetch,
            Metadata: self.catalogue.metadata,
            ListOffsets: self._list_offsets,
            CreateTopics: self.catalogue.create_topics,
            CreatePartitions: self.catalogue.create_partitions,
            DeleteTopics: self.catalogue.delete_topics,
            DeleteRecords: self._delete_records,
            FindCoordinator: self._find_coordinator,
            TxnOffsetCommit: self._commit_in_transaction,
        }
        handlers[ApiVersions] = lambda request, now_ms, answer: answer(self.served())
        handlers |= dict.fromkeys(_GROUP_REQUESTS, self.groups.handle)
        handlers |= dict.fromkeys(_TRANSACTION_REQUESTS, self._transaction)
        for kind, handler in self.handlers.items():
            handlers[kind] = partial(self._answer_now, handler)
        self._handlers = handlers

    def served(self) -> ApiVersionsResponse:
        """Return the version ranges of all served APIs, and the features."""
        return served()

    @property
    def is_ending(self) -> bool:
        """Whether the broker is closing; bulk requests then stop early."""
        return self.catalogue.is_ending

    def begin_to_end(self) -> None:
        """Make bulk requests stop early, because the broker is closing; may be called from any thread."""
        self.catalogue.is_ending = True

    def wall_ms(self, now_ms: int) -> int:
        """Return the wall-clock time in epoch milliseconds for a monotonic time."""
        return now_ms + self.clock_ahead_ms

    # --- life cycle and timers --------------------------------------------------------------

    def load(self, now_ms: int) -> None:
        """Open the stored topics, and rebuild groups, committed offsets and transactions from their logs.

        Raises:
            ConfigError: a file in the data directory cannot be used.
            DamagedLogError: records of a partition are damaged, or transactions have lost their end, and either
                ``serves_damaged`` is False or the partition is internal, so that committed offsets would be lost.
        """
        self.topics.load()
        self.topics.check_sound(tolerates=self.config.serves_damaged)
        for log in self.topics.logs.values():
            log.load(self.wall_ms(now_ms))
        self.coordinator.load(self._blocks(_OFFSETS_PARTITION))
        rows = (
            (key, value)
            for block in self._blocks(_TRANSACTIONS_PARTITION)
            if block.producer is None or not block.producer.is_control
            for key, value in zip(block.keys, block.values, strict=True)
            if key is not None
        )
        effects = self.transactions.load(rows, now_ms)
        if _TRANSACTIONS_PARTITION in self.topics.logs:
            # A copy of one partition (``offline``) has no transaction log.
            self.transactions.check(tolerates=self.config.serves_damaged)
        self._perform_transaction(effects, now_ms)

    def _blocks(self, partition: TopicPartition) -> Iterator[Block]:
        """Yield all blocks of an internal partition, which need not exist."""
        log = self.topics.logs.get(partition)
        offset = 0 if log is None else log.start_offset
        while log is not None and (blocks := log.read(offset, _LOAD_RECORDS)):
            yield from blocks
            offset = blocks[-1].offsets[-1] + 1

    def handle(self, request: Request, now_ms: int, answer: Answer) -> None:
        """Handle a request; ``answer`` is called once, before this method returns or in a later call.

        Raises:
            UnsupportedVersionError: the broker does not have this request.
        """
        handler = self._handlers.get(type(request))
        if handler is None:
            raise UnsupportedVersionError(
                f"the embedded broker does not have the request {type(request).__name__}; a Kafka cluster may",
                api_key=-1,
                version=-1,
            )
        handler(request, now_ms, answer)

    def handle_remote(self, request: Request, now_ms: int, answer: Answer) -> None:
        """Handle a request from another process; offset commits for unknown partitions are rejected.

        Clients in this process may commit offsets for partitions that do not exist yet: the hand-over of a replayed
        application commits offsets for topics that the application creates when it starts.
        """
        if isinstance(request, OffsetCommit | TxnOffsetCommit):
            logs = self.topics.logs
            unknown = [partition for partition in request.offsets if partition not in logs]
            if unknown:
                self._commit_known(request, unknown, now_ms, answer)
                return
        self.handle(request, now_ms, answer)

    def _answer_now(self, handler: Handler, request: Request, now_ms: int, answer: Answer) -> None:
        answer(handler(self, request, now_ms))

    @property
    def requests(self) -> frozenset[type]:
        """The request types that have a handler."""
        return frozenset(self._handlers)

    def next_deadline_ms(self) -> int | None:
        """Return the monotonic time at which ``tick`` is due next, or None if there is no deadline."""
        deadlines = (
            self._fetches.next_deadline_ms(),
            self.coordinator.next_deadline_ms(),
            self.transactions.next_deadline_ms(),
            self._maintenance_due_ms,
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def tick(self, now_ms: int) -> None:
        """Process everything that is due: fetches, session and transaction timeouts, and maintenance."""
        self._fetches.answer_due(now_ms)
        self.notices.look(now_ms)
        group_deadline_ms = self.coordinator.next_deadline_ms()
        if group_deadline_ms is not None and group_deadline_ms <= now_ms:
            self.groups.perform(self.coordinator.tick(now_ms), now_ms)
        transaction_deadline_ms = self.transactions.next_deadline_ms()
        if transaction_deadline_ms is not None and transaction_deadline_ms <= now_ms:
            self._perform_by_itself(self.transactions.tick(now_ms), now_ms)
        if self._maintenance_due_ms is not None and self._maintenance_due_ms <= now_ms:
            self._maintenance_due_ms = None
            if self._maintenance.step(self.wall_ms(now_ms)):
                self._after_maintenance(now_ms)
                self._schedule_maintenance(now_ms)
            else:
                self._maintenance_due_ms = now_ms + PAUSE_MS

    def maintain(self, wall_ms: int) -> None:
        """Apply retention and compaction to every log, as of a wall-clock time in epoch milliseconds.

        If the storage of a log fails, the error is logged and the log is skipped.
        """
        self._maintenance.run(wall_ms)
        self._after_maintenance(wall_ms - self.clock_ahead_ms)

    def _after_maintenance(self, now_ms: int) -> None:
        self._perform_by_itself(self.transactions.expire(now_ms), now_ms)
        self._fetches.wake([log.partition for topic in self.topics for log in topic.logs], now_ms)

    def close(self) -> None:
        """Flush and close all logs."""
        self._maintenance.stop()
        self.topics.close()

    # --- records ------------------------------------------------------------------------------

    def append(self, partition: TopicPartition, blocks: Sequence[Block], now_ms: int) -> int:
        """Append blocks of records to a partition, and return the offset of the first record.

        Waiting fetches that are now complete receive their responses.

        Raises:
            UnknownTopicError, RecordTooLargeError, BrokerError: the append is rejected; nothing is appended.
            OSError: the storage failed.
        """
        base = self._append(self.topics.log(partition), blocks, now_ms)
        self._fetches.wake((partition,), now_ms)
        return base

    def _append(self, log: PartitionLog, blocks: Sequence[Block], now_ms: int) -> int:
        base = log.append(blocks, self.wall_ms(now_ms))
        self._unflushed.add(log)
        if log.config.needs_maintenance:
            self._schedule_maintenance(now_ms)
        return base

    def _produce(self, request: Produce, now_ms: int, answer: Answer) -> None:
        results: dict[TopicPartition, Produced] = {}
        if request.adds_partitions:
            self._add_partitions(request, now_ms)
        for partition, blocks in request.blocks.items():
            try:
                if partition.topic in INTERNAL_TOPICS:
                    raise BrokerError(
                        f"topic {partition.topic!r} is internal and takes no records from clients",
                        code=ErrorCode.INVALID_TOPIC,
                    )
                log = self.topics.log(partition)
                self._check_transaction(request, partition, blocks)
                base = self._append(log, blocks, now_ms)
                if self._unwritten:
                    # Topics may have been deleted.
                    self._unwritten &= self.topics.logs.keys() - {partition}
                if not self._unwritten:
                    self.notices.end(_LOGGER, ErrorCode.STORAGE_ERROR, now_ms, "the storage is written again")
                is_stamped = log.config.timestamp_type == "LogAppendTime"
                append_ms = self.wall_ms(now_ms) if is_stamped else -1
                results[partition] = Produced(ErrorCode.NONE, base, append_ms, log.start_offset)
            except (BrokerError, OSError) as error:
                code, message = error_of(error)
                refused = self.topics.logs.get(partition)
                start_offset = -1 if refused is None else refused.start_offset
                if code is ErrorCode.STORAGE_ERROR:
                    self._unwritten.add(partition)
                    note_storage(self.notices, message, now_ms)
                reasons = error.reasons if isinstance(error, RefusedRecordsError) else {}
                results[partition] = Produced(
                    code, log_start_offset=start_offset, record_errors=reasons, message=message
                )
        answer(ProduceResponse(results))
        self._fetches.wake(
            [partition for partition, result in results.items() if result.error is ErrorCode.NONE], now_ms
        )

    def _add_partitions(self, request: Produce, now_ms: int) -> None:
        """Add the partitions of records to the transaction (KIP-890); each is then checked as if it had been before."""
        transactional_id = request.transactional_id
        by_producer: dict[tuple[int, int], list[TopicPartition]] = {}
        for partition, blocks in request.blocks.items():
            stamp = blocks[0].producer if blocks else None
            is_known = partition in self.topics.logs and partition.topic not in INTERNAL_TOPICS
            if transactional_id is None or stamp is None or not stamp.is_transactional or not is_known:
                continue
            code = self.transactions.check_write(transactional_id, stamp.producer_id, stamp.epoch, partition)
            if code is ErrorCode.INVALID_TXN_STATE:
                by_producer.setdefault((stamp.producer_id, stamp.epoch), []).append(partition)
        for (producer_id, epoch), partitions in by_producer.items():
            assert transactional_id is not None
            add = AddPartitionsToTxn(transactional_id, producer_id, epoch, tuple(partitions))
            self._transaction(add, now_ms, lambda _: None)

    def _check_transaction(self, request: Produce, partition: TopicPartition, blocks: Sequence[Block]) -> None:
        """Reject transactional records for a partition that has not been added to the open transaction."""
        for block in blocks:
            stamp = block.producer
            if stamp is None or not (stamp.is_transactional or stamp.is_control or request.transactional_id):
                continue
            code = ErrorCode.INVALID_TXN_STATE
            if stamp.is_control:
                code = ErrorCode.INVALID_RECORD
            elif request.transactional_id is not None and stamp.is_transactional:
                code = self.transactions.check_write(
                    request.transactional_id, stamp.producer_id, stamp.epoch, partition
                )
            if code is not ErrorCode.NONE:
                raise BrokerError(
                    f"records of transaction {request.transactional_id!r} (producer {stamp.producer_id}, epoch "
                    f"{stamp.epoch}) are rejected by {partition}: {code.name}",
                    code=code,
                )

    def _fetch(self, request: Fetch, now_ms: int, answer: Answer) -> None:
        self.fetch(request, now_ms, answer)

    def fetch(self, request: Fetch, now_ms: int, answer: Answer) -> WaitingFetch | None:
        """Handle a fetch; ``answer`` is called once, now or later.

        Returns the waiting fetch (for ``on_disconnect``), or None if the response has already been sent.
        """
        return self._fetches.handle(request, now_ms, answer)

    def on_disconnect(self, fetch: WaitingFetch) -> None:
        """Drop the waiting fetch of a client that has disconnected."""
        self._fetches.forget(fetch)

    def _list_offsets(self, request: ListOffsets, now_ms: int, answer: Answer) -> None:
        answer(ListOffsetsResponse(listed_offsets(self.topics.log, request)))

    def _delete_records(self, request: DeleteRecords, now_ms: int, answer: Answer) -> None:
        results: dict[TopicPartition, DeletedRecords] = {}
        for partition, offset in request.offsets.items():
            try:
                low_watermark = self.topics.log(partition).delete_records(offset)
                results[partition] = DeletedRecords(ErrorCode.NONE, low_watermark)
            except (BrokerError, OSError) as error:
                results[partition] = DeletedRecords(error_of(error)[0], -1)
        answer(DeleteRecordsResponse(results))
        self._fetches.wake(list(request.offsets), now_ms)

    # --- topics -------------------------------------------------------------------------------

    def delete_topic(self, name: str, now_ms: int) -> None:
        """Delete a topic, its records and its committed offsets.

        Raises:
            UnknownTopicError: the topic does not exist.
        """
        refuse_internal(name)
        partitions = self.topics.delete(name)
        self._unflushed.difference_update([log for log in self._unflushed if log.partition.topic == name])
        self._fetches.wake(partitions, now_ms)
        self.groups.perform(self.coordinator.forget_topics([name]), now_ms)

    def alter_topic(self, name: str, config: Mapping[str, str], now_ms: int) -> None:
        """Replace all settings of a topic.

        Raises:
            UnknownTopicError: the topic does not exist.
            BrokerError: a setting is invalid or cannot be altered, or the topic is internal.
            OSError: the new settings could not be stored; the old settings stay in effect.
        """
        refuse_internal(name)
        self.topics.alter(name, config)
        if self.topics.topic(name).config.needs_maintenance:
            self._schedule_maintenance(now_ms)

    # --- transactions -------------------------------------------------------------------------

    def _transaction(self, request: CoordinatedRequest, now_ms: int, answer: Answer) -> None:
        if isinstance(request, AddPartitionsToTxn):
            unknown = [partition for partition in request.partitions if partition not in self.topics.logs]
            if unknown:
                errors = dict.fromkeys(request.partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
                errors |= dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                answer(AddPartitionsToTxnResponse(errors))
                return
        elif isinstance(request, AddOffsetsToTxn):
            self._internal_log(_OFFSETS_PARTITION)
        before = self.transactions.get(request.transactional_id)
        effects = self.transactions.handle(request, now_ms, answer)
        try:
            self._perform_transaction(effects, now_ms)
        except (OSError, BrokerError) as error:
            # The new state is not in the log, so revert it; no response has been sent yet.
            self.transactions.restore(request.transactional_id, before)
            note_storage(self.notices, f"writing {_TRANSACTIONS_PARTITION.topic} failed: {error}", now_ms)
            answer(refusal(request, error_of(error)[0]))

    def _perform_by_itself(self, effects: Sequence[TransactionEffect], now_ms: int) -> None:
        """Perform effects of the transaction coordinator without a request; failures are logged and retried."""
        try:
            self._perform_transaction(effects, now_ms)
        except (OSError, BrokerError) as error:
            message = f"writing {_TRANSACTIONS_PARTITION.topic} failed and will be retried: {error}"
            note_storage(self.notices, message, now_ms)

    def _perform_transaction(self, effects: Sequence[TransactionEffect], now_ms: int) -> None:
        """Perform effects of the transaction coordinator, in order.

        If an effect ends a transaction, the effects of completing it are performed before later responses are sent.
        """
        for effect in effects:
            match effect:
                case PersistTransaction(transactional_id, value):
                    block = Block([transaction_key(transactional_id)], [value], [self.wall_ms(now_ms)])
                    self._append_internal(_TRANSACTIONS_PARTITION, [block], now_ms)
                case PersistProducerIds(below):
                    block = Block([producer_ids_key()], [producer_ids_value(below)], [self.wall_ms(now_ms)])
                    self._append_internal(_TRANSACTIONS_PARTITION, [block], now_ms)
                case WriteMarkers():
                    self._end_transaction(effect, now_ms)
                case _:
                    answer = effect.token
                    assert callable(answer)
                    answer(effect.response)

    def _end_transaction(self, end: WriteMarkers, now_ms: int) -> None:
        """Write the commit or abort markers of a transaction to its partitions.

        Failed writes are retried, because the outcome of the transaction is already in the transaction log.
        """
        block = marker(end.producer_id, end.epoch, is_commit=end.is_commit, timestamp_ms=self.wall_ms(now_ms))
        is_complete = True
        for partition in end.partitions:
            log = self.topics.logs.get(partition)
            if log is not None and log.damage is not None:
                # Whether the log has records of the transaction is unknown until it is repaired: write the marker then.
                is_complete = False
                continue
            # No marker is needed for deleted topics and for partitions that already have one.
            if log is None or not (log.producers.is_open(end.producer_id) or partition == _OFFSETS_PARTITION):
                continue
            try:
                self._append(log, [block], now_ms)
            except (OSError, BrokerError) as error:
                message = f"ending a transaction in {partition} failed and will be retried: {error}"
                note_storage(self.notices, message, now_ms)
                is_complete = False
                continue
            if partition == _OFFSETS_PARTITION:
                self.coordinator.end_transaction(end.producer_id, is_commit=end.is_commit)
        self._fetches.wake(end.partitions, now_ms)
        if not is_complete:
            self.transactions.on_end_failed(end.transactional_id, now_ms)
            return
        try:
            self._perform_transaction(self.transactions.on_ended(end.transactional_id, now_ms), now_ms)
        except (OSError, BrokerError) as error:
            # All markers are written; after a restart, the transaction is completed again without effect.
            message = f"noting the end of transaction {end.transactional_id!r} failed: {error}"
            note_storage(self.notices, message, now_ms)

    def write_marker(
        self, partition: TopicPartition, producer_id: int, epoch: int, now_ms: int, *, is_commit: bool
    ) -> ErrorCode:
        """End a producer's transaction in one partition, regardless of the coordinator state (KIP-664).

        No marker is written if the producer has no open transaction in the partition.
        """
        log = self.topics.logs.get(partition)
        if log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if epoch < log.producers.epoch_of(producer_id):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if not log.producers.is_open(producer_id):
            return ErrorCode.NONE
        try:
            self._append(
                log, [marker(producer_id, epoch, is_commit=is_commit, timestamp_ms=self.wall_ms(now_ms))], now_ms
            )
        except (OSError, BrokerError) as error:
            return error_of(error)[0]
        if partition == _OFFSETS_PARTITION:
            self.coordinator.end_transaction(producer_id, is_commit=is_commit)
        self._fetches.wake((partition,), now_ms)
        return ErrorCode.NONE

    def _commit_in_transaction(self, request: TxnOffsetCommit, now_ms: int, answer: Answer) -> None:
        if request.adds_group:
            add = AddOffsetsToTxn(
                request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
            )
            self._transaction(add, now_ms, lambda _: None)
        code = self.transactions.check_write(
            request.transactional_id, request.producer_id, request.producer_epoch, _OFFSETS_PARTITION
        )
        if code is not ErrorCode.NONE:
            answer(TxnOffsetCommitResponse(dict.fromkeys(request.offsets, code)))
            return
        self.groups.handle(request, now_ms, answer)

    # --- groups -------------------------------------------------------------------------------

    def _find_coordinator(self, request: FindCoordinator, now_ms: int, answer: Answer) -> None:
        if request.key_type in (COORDINATOR_GROUP, COORDINATOR_TRANSACTION):
            answer(FindCoordinatorResponse(ErrorCode.NONE, self.config.node_id))
        else:  # Of share groups (KIP-932), which this broker does not have.
            answer(FindCoordinatorResponse(ErrorCode.INVALID_REQUEST, -1))

    def _commit_known(
        self, request: OffsetCommit | TxnOffsetCommit, unknown: Sequence[TopicPartition], now_ms: int, answer: Answer
    ) -> None:
        """Commit offsets for existing partitions.

        The ``unknown`` partitions are rejected here, because the coordinator does not check whether partitions exist.
        """
        errors = dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        offsets = {partition: offset for partition, offset in request.offsets.items() if partition not in errors}

        def answer_all(response: Response) -> None:
            assert isinstance(response, OffsetCommitResponse | TxnOffsetCommitResponse)
            answer(evolve(response, errors={**response.errors, **errors}))

        if offsets:
            self.handle(evolve(request, offsets=offsets), now_ms, answer_all)
        else:
            answer_all(OffsetCommitResponse({}) if isinstance(request, OffsetCommit) else TxnOffsetCommitResponse({}))

    def _append_groups(self, persists: Sequence[Persist], now_ms: int) -> None:
        """Append records of the group coordinator to its log."""
        blocks: list[Block] = []
        wall_ms = self.wall_ms(now_ms)
        for producer, group in groupby(persists, key=lambda persist: persist.producer):
            rows = list(group)
            blocks.append(
                Block([row.key for row in rows], [row.value for row in rows], [wall_ms] * len(rows), producer=producer)
            )
        self._append_internal(_OFFSETS_PARTITION, blocks, now_ms)

    def _append_internal(self, partition: TopicPartition, blocks: Sequence[Block], now_ms: int) -> None:
        log = self._internal_log(partition)
        # After a power failure a committed offset above the log's end would skip records: flush the records first.
        for unflushed in self._unflushed:
            unflushed.storage.flush()
        self._unflushed.clear()
        log.append(blocks, self.wall_ms(now_ms))
        log.storage.flush()
        self._schedule_maintenance(now_ms)
        self._fetches.wake((partition,), now_ms)

    def _internal_log(self, partition: TopicPartition) -> PartitionLog:
        topic = partition.topic
        return self.topics.logs.get(partition) or self.topics.create(topic, 1, INTERNAL_CONFIG).logs[0]

    def _schedule_maintenance(self, now_ms: int) -> None:
        if self._maintenance_due_ms is None and self.config.maintenance_interval_ms is not None:
            self._maintenance_due_ms = now_ms + self.config.maintenance_interval_ms
