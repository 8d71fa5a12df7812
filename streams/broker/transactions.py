"""The transaction coordinator: producer IDs, epochs, and two-phase commits and aborts (KIP-98, KIP-890).

The coordinator turns requests and the current time into effects.  The caller appends to the
``__transaction_state`` log before it responds, and writes the markers.  Once the prepared state
is in that log, the outcome is final: the transaction is completed, even after a restart.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from attrs import define, evolve, field, frozen

from streams.broker.logs.config import BrokerConfig
from streams.broker.logs.producers import ActiveProducer, ProducerLedger
from streams.broker.transaction_log import (
    TransactionMetadata,
    TransactionState,
    read_producer_ids,
    read_transaction,
    transaction_value,
)
from streams.core.blocks.records import TopicPartition
from streams.core.errors import DamagedLogError
from streams.group.state.timers import Timers
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
)
from streams.protocol.request import Response

_LOGGER = logging.getLogger(__name__)

#: The highest epoch of a producer; the next bump assigns a new producer ID.
_LAST_EPOCH = 32_766
#: Number of producer IDs that are reserved in the log at once.
_PRODUCER_ID_BLOCK = 1_000
#: Exclusive upper bound of producer IDs.
_NEVER_GIVEN = 1 << 62
#: Delay in milliseconds before failed markers are retried.
_RETRY_MS = 100


_S = TransactionState
_LEGAL_NEXT: Mapping[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_ABORT}),
    _S.COMPLETE_ABORT: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_ABORT}),
}
_PREPARED = {_S.PREPARE_COMMIT, _S.PREPARE_ABORT}
#: States in which the outcome is final, by whether it is a commit.
_ENDED = {True: {_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT}, False: {_S.PREPARE_ABORT, _S.COMPLETE_ABORT}}


@frozen
class AnswerRequest:
    """An effect: send this response to the request that has this token."""

    token: object
    response: Response


@frozen
class PersistTransaction:
    """An effect: append the state of a transactional ID to ``__transaction_state`` before any later response is sent.

    If ``value`` is None, the record is a tombstone, which deletes the ID.
    """

    transactional_id: str
    value: bytes | None


@frozen
class PersistProducerIds:
    """An effect: reserve all producer IDs less than ``below`` in ``__transaction_state``."""

    below: int


@frozen
class WriteMarkers:
    """An effect: write transaction markers to these partitions, then call ``on_ended`` or ``on_end_failed``."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]
    is_commit: bool


TransactionEffect: TypeAlias = AnswerRequest | PersistTransaction | PersistProducerIds | WriteMarkers
CoordinatedRequest: TypeAlias = InitProducerId | AddPartitionsToTxn | AddOffsetsToTxn | EndTxn


@define(eq=False)
class TransactionCoordinator:
    """The coordinator of all transactional IDs of a broker.

    ``offsets_partition`` returns the partition that stores a group's committed offsets; a transaction
    that commits offsets includes this partition.

    The effects of a request must be performed in order.  If a ``PersistTransaction`` fails, the remaining
    effects are dropped, ``restore`` reverts the change, and the request is rejected.
    """

    offsets_partition: Callable[[str], TopicPartition]
    config: BrokerConfig = field(factory=BrokerConfig)
    #: The producers of each log; their IDs are never assigned.
    ledgers: Callable[[], Iterable[ProducerLedger]] = tuple
    _by_id: dict[str, TransactionMetadata] = field(factory=dict)
    _next_producer_id: int = 0
    #: IDs below this one are reserved in the log: they are not assigned again after a restart.
    _noted_below: int = 0
    _timers: Timers[str] = field(factory=Timers)
    _effects: list[TransactionEffect] = field(factory=list)

    # --- called by the service ------------------------------------------------------------

    def handle(self, request: CoordinatedRequest, now_ms: int, token: object) -> list[TransactionEffect]:
        """Handle a request, and return the effects to perform, in order."""
        match request:
            case InitProducerId(transactional_id=None):
                self._answer(token, InitProducerIdResponse(ErrorCode.NONE, self._new_producer_id(), 0))
            case InitProducerId():
                self._initialize(request, now_ms, token)
            case AddPartitionsToTxn():
                error = self._add(request, now_ms, tuple(request.partitions))
                self._answer(token, AddPartitionsToTxnResponse(dict.fromkeys(request.partitions, error)))
            case AddOffsetsToTxn():
                error = self._add(request, now_ms, (self.offsets_partition(request.group_id),))
                self._answer(token, AddOffsetsToTxnResponse(error))
            case EndTxn():
                self._end(request, now_ms, token)
        return self._take_effects()

    def on_ended(self, transactional_id: str, now_ms: int) -> list[TransactionEffect]:
        """Complete a transaction whose markers have been written."""
        transaction = self._by_id[transactional_id]
        is_commit = transaction.state is _S.PREPARE_COMMIT
        state = _S.COMPLETE_COMMIT if is_commit else _S.COMPLETE_ABORT
        self._timers.cancel(transactional_id)
        self._change(evolve(transaction, state=state, partitions=(), started_ms=-1, previous_producer_id=-1), now_ms)
        return self._take_effects()

    def on_end_failed(self, transactional_id: str, now_ms: int) -> None:
        """Schedule a retry for markers that could not be written."""
        self._timers.set(transactional_id, now_ms + _RETRY_MS)

    def next_deadline_ms(self) -> int | None:
        """Return the monotonic time at which ``tick`` is due next, or None if no timer is set."""
        return self._timers.next_ms()

    def tick(self, now_ms: int) -> list[TransactionEffect]:
        """Abort transactions that have timed out, and retry failed commits and aborts."""
        while (transactional_id := self._timers.pop_due(now_ms)) is not None:
            transaction = self._by_id.get(transactional_id)
            if transaction is None:
                continue
            if transaction.state is _S.ONGOING:
                # Fence the producer: later records of this transaction must be rejected.
                self._prepare(_next_epoch(transaction), is_commit=False, now_ms=now_ms)
            elif transaction.state in _PREPARED:
                self._write_markers(transaction)
        return self._take_effects()

    def expire(self, now_ms: int) -> list[TransactionEffect]:
        """Delete transactional IDs that have not been used for ``transactional_id_expiration_ms``."""
        for transaction in list(self._by_id.values()):
            is_idle = transaction.state is not _S.ONGOING and transaction.state not in _PREPARED
            if is_idle and transaction.updated_ms < now_ms - self.config.transactional_id_expiration_ms:
                del self._by_id[transaction.transactional_id]
                self._effects.append(PersistTransaction(transaction.transactional_id, None))
        return self._take_effects()

    def load(self, records: Iterable[tuple[bytes, bytes | None]], now_ms: int) -> list[TransactionEffect]:
        """Rebuild the state from the records of the transaction log, and return the effects to perform.

        Prepared commits and aborts are completed.  The timeouts of open transactions count from their start, as in
        Kafka; one that began in the future, because the wall clock was set back, begins now.
        """
        for key, value in records:
            noted = read_producer_ids(key, value)
            # No broker assigns IDs above the bound: a client sent an invented one.
            self._next_producer_id = max(self._next_producer_id, noted if noted < _NEVER_GIVEN else 0)
            read = read_transaction(key, value)
            if read is None:
                continue
            transactional_id, stored = read
            if stored is None:
                self._by_id.pop(transactional_id, None)
            else:
                self._by_id[transactional_id] = stored
        for transaction in self._by_id.values():
            if transaction.producer_id < _NEVER_GIVEN:
                self._next_producer_id = max(self._next_producer_id, transaction.producer_id + 1)
            if transaction.state is _S.ONGOING:
                begun_ms = min(now_ms, transaction.started_ms)
                self._timers.set(transaction.transactional_id, begun_ms + transaction.timeout_ms)
            elif transaction.state in _PREPARED:
                self._write_markers(transaction)
        return self._take_effects()

    def check(self, *, tolerates: bool) -> None:
        """Check that the transactions in the logs are those of the transaction log.

        Otherwise a log has lost its end.  A transaction whose marker is lost would hide all later records of its
        partition, and committed offsets, for ever.  With ``tolerates`` this is only logged.

        Raises:
            DamagedLogError: a log has lost its end.
        """
        for ledger in self.ledgers():
            for producer in ledger.active():
                if not self._contradicts(ledger.partition, producer):
                    continue
                what = (
                    f"a transaction of producer {producer.producer_id} (epoch {producer.epoch}) in {ledger.partition} "
                    "is not as the transaction log says: one of these two logs has lost its end, as in a power failure "
                    "or an incomplete copy"
                )
                if not tolerates:
                    raise DamagedLogError(
                        f"{what}; put the data back from a copy, or start over with another directory",
                        partition=str(ledger.partition),
                        path="",
                        offset=producer.open_offset,
                    )
                _LOGGER.error("%s; if it is open, kafka-transactions.sh --abort ends it", what)

    def _contradicts(self, partition: TopicPartition, producer: ActiveProducer) -> bool:
        """Whether a producer in a log is ahead of its state here, or has a transaction that has ended here.

        A state is in the transaction log before a record or a marker that depends on it is in another log.
        """
        for transaction in self._by_id.values():
            is_prepared = transaction.state in _PREPARED
            if transaction.producer_id == producer.producer_id:
                is_behind = transaction.state is _S.ONGOING and producer.epoch < transaction.epoch
                if producer.epoch > transaction.epoch or (producer.open_offset >= 0 and is_behind):
                    return True
            elif not is_prepared or transaction.previous_producer_id != producer.producer_id:
                continue
            is_open = (is_prepared or transaction.state is _S.ONGOING) and partition in transaction.partitions
            return producer.open_offset >= 0 and not is_open
        return producer.open_offset >= 0

    def restore(self, transactional_id: str | None, before: TransactionMetadata | None) -> None:
        """Restore the state of a transactional ID from before a change that could not be written to the log."""
        # The record for producer IDs may have failed: write it again with the next ID.
        self._noted_below = min(self._noted_below, self._next_producer_id)
        if transactional_id is None:
            return
        if before is None:
            self._by_id.pop(transactional_id, None)
        else:
            self._by_id[transactional_id] = before

    def get(self, transactional_id: str | None) -> TransactionMetadata | None:
        """Return the state of a transactional ID, or None if the ID is unknown."""
        return None if transactional_id is None else self._by_id.get(transactional_id)

    def all(self) -> Iterable[TransactionMetadata]:
        """Return the states of all transactional IDs."""
        return tuple(self._by_id.values())

    def check_write(self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition) -> ErrorCode:
        """Check whether a producer may write to a partition as part of a transaction.

        Returns ``NONE`` if it may, otherwise the error code.
        """
        transaction = self._by_id.get(transactional_id)
        if transaction is None or transaction.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction.epoch != epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if transaction.state in _PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        is_part = transaction.state is _S.ONGOING and partition in transaction.partitions
        return ErrorCode.NONE if is_part else ErrorCode.INVALID_TXN_STATE

    # --- requests -------------------------------------------------------------------------

    def _initialize(self, request: InitProducerId, now_ms: int, token: object) -> None:
        transactional_id = request.transactional_id
        assert transactional_id is not None
        transaction = self._by_id.get(transactional_id)
        if not transactional_id:
            self._answer(token, InitProducerIdResponse(ErrorCode.INVALID_REQUEST))
        elif not 0 < request.transaction_timeout_ms <= self.config.transaction_max_timeout_ms:
            self._answer(token, InitProducerIdResponse(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        elif transaction is None:
            new = TransactionMetadata(transactional_id, self._new_producer_id(), 0, request.transaction_timeout_ms)
            self._change(new, now_ms)
            self._answer(token, InitProducerIdResponse(ErrorCode.NONE, new.producer_id, new.epoch))
        elif _is_fenced(transaction, request):
            self._answer(token, InitProducerIdResponse(ErrorCode.PRODUCER_FENCED))
        elif transaction.state is _S.ONGOING:
            # Fence the previous producer and abort its transaction first; the new producer retries.
            self._prepare(_next_epoch(transaction), is_commit=False, now_ms=now_ms)
            self._answer(token, InitProducerIdResponse(ErrorCode.CONCURRENT_TRANSACTIONS))
        elif transaction.state in _PREPARED:
            self._answer(token, InitProducerIdResponse(ErrorCode.CONCURRENT_TRANSACTIONS))
        else:
            # A producer that has not read its next epoch gets it again.
            is_repeated = _is_last(transaction, request) and transaction.epoch <= _LAST_EPOCH
            renewed = transaction if is_repeated else self._renewed(transaction)
            renewed = evolve(
                renewed,
                timeout_ms=request.transaction_timeout_ms,
                state=_S.EMPTY,
                last_epoch=request.producer_epoch if request.producer_id >= 0 else -1,
                previous_producer_id=-1,
            )
            self._change(renewed, now_ms)
            self._answer(token, InitProducerIdResponse(ErrorCode.NONE, renewed.producer_id, renewed.epoch))

    def _add(
        self,
        request: AddPartitionsToTxn | AddOffsetsToTxn,
        now_ms: int,
        partitions: tuple[TopicPartition, ...],
    ) -> ErrorCode:
        transaction = self._by_id.get(request.transactional_id)
        if transaction is None or transaction.producer_id != request.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction.epoch != request.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        if transaction.state in _PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        is_begun = transaction.state is _S.ONGOING
        grown = evolve(
            transaction,
            state=_S.ONGOING,
            partitions=tuple(dict.fromkeys((*transaction.partitions, *partitions))),
            started_ms=transaction.started_ms if is_begun else now_ms,
        )
        if grown != transaction:
            self._change(grown, now_ms)
        if not is_begun:
            self._timers.set(transaction.transactional_id, now_ms + transaction.timeout_ms)
        return ErrorCode.NONE

    def _end(self, request: EndTxn, now_ms: int, token: object) -> None:
        transaction = self._by_id.get(request.transactional_id)
        error = ErrorCode.NONE
        if transaction is None or transaction.producer_id != request.producer_id:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
            if transaction is not None and self._is_repeated(transaction, request):
                error = ErrorCode.NONE
        elif transaction.epoch != request.producer_epoch:
            error = ErrorCode.NONE if self._is_repeated(transaction, request) else ErrorCode.PRODUCER_FENCED
        elif transaction.state is _S.ONGOING:
            # The producer continues with the next epoch, so that late requests are rejected (KIP-890).
            following = self._renewed(transaction) if request.bumps_epoch else transaction
            self._prepare(following, is_commit=request.is_commit, now_ms=now_ms)
            transaction = self._by_id[request.transactional_id]
        elif not request.bumps_epoch and transaction.state in _ENDED[request.is_commit]:
            error = ErrorCode.NONE
        elif request.bumps_epoch and not request.is_commit and transaction.state not in _PREPARED:
            # Nothing was added; the next epoch keeps out what may still arrive of the aborted transaction.
            self._change(evolve(self._renewed(transaction), state=_S.COMPLETE_ABORT, previous_producer_id=-1), now_ms)
            transaction = self._by_id[request.transactional_id]
        elif transaction.state in _PREPARED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            error = ErrorCode.INVALID_TXN_STATE
        if error is ErrorCode.NONE and transaction is not None:
            self._answer(token, EndTxnResponse(error, transaction.producer_id, transaction.epoch))
        else:
            self._answer(token, EndTxnResponse(error))

    def _is_repeated(self, transaction: TransactionMetadata, request: EndTxn) -> bool:
        """Whether a request retries the commit or abort that has just completed, because the response was lost."""
        if transaction.state not in _ENDED[request.is_commit]:
            return False
        if transaction.producer_id == request.producer_id:
            return transaction.epoch == request.producer_epoch + 1
        return transaction.epoch == 0 and request.producer_epoch == _LAST_EPOCH

    # --- changes --------------------------------------------------------------------------

    def _prepare(self, transaction: TransactionMetadata, *, is_commit: bool, now_ms: int) -> None:
        state = _S.PREPARE_COMMIT if is_commit else _S.PREPARE_ABORT
        self._timers.set(transaction.transactional_id, now_ms + _RETRY_MS)
        prepared = evolve(transaction, state=state)
        self._change(prepared, now_ms)
        self._write_markers(prepared)

    def _write_markers(self, transaction: TransactionMetadata) -> None:
        # Once the marker is written, the logs reject lower epochs.  The records of a producer whose epochs are used up
        # have its previous ID.
        producer_id, epoch = transaction.producer_id, transaction.epoch
        if transaction.previous_producer_id >= 0:
            producer_id = transaction.previous_producer_id
            epoch = _LAST_EPOCH + 1
        is_commit = transaction.state is _S.PREPARE_COMMIT
        self._effects.append(
            WriteMarkers(transaction.transactional_id, producer_id, epoch, transaction.partitions, is_commit)
        )

    def _change(self, transaction: TransactionMetadata, now_ms: int) -> None:
        before = self._by_id.get(transaction.transactional_id)
        assert before is None or transaction.state in _LEGAL_NEXT[before.state], (
            f"{before.state} -> {transaction.state}"
        )
        transaction = evolve(transaction, updated_ms=now_ms)
        self._by_id[transaction.transactional_id] = transaction
        self._effects.append(PersistTransaction(transaction.transactional_id, transaction_value(transaction)))

    def _renewed(self, transaction: TransactionMetadata) -> TransactionMetadata:
        """Return the state with the producer ID and epoch for the next transaction.

        They are the same ID with the next epoch or, after the last epoch, a new ID.
        """
        if transaction.epoch < _LAST_EPOCH:
            return _next_epoch(transaction)
        return evolve(
            transaction,
            producer_id=self._new_producer_id(),
            epoch=0,
            last_epoch=transaction.epoch,
            previous_producer_id=transaction.producer_id,
        )

    def _new_producer_id(self) -> int:
        producer_id = self._next_producer_id
        while any(ledger.epoch_of(producer_id) >= 0 for ledger in self.ledgers()):
            producer_id += 1
        self._next_producer_id = producer_id + 1
        if producer_id >= self._noted_below:
            self._noted_below = producer_id + _PRODUCER_ID_BLOCK
            self._effects.append(PersistProducerIds(self._noted_below))
        return producer_id

    def _answer(self, token: object, response: Response) -> None:
        self._effects.append(AnswerRequest(token, response))

    def _take_effects(self) -> list[TransactionEffect]:
        effects = self._effects
        self._effects = []
        return effects


def _next_epoch(transaction: TransactionMetadata) -> TransactionMetadata:
    """Return the state with a bumped epoch that fences the producer; the highest epoch is reserved for fencing."""
    return evolve(transaction, epoch=transaction.epoch + 1, last_epoch=transaction.epoch)


def _is_fenced(transaction: TransactionMetadata, request: InitProducerId) -> bool:
    """Whether a request names a producer that the transactional ID does not belong to any more."""
    if request.producer_id < 0 or (request.producer_id, request.producer_epoch) == (
        transaction.producer_id,
        transaction.epoch,
    ):
        return False
    return transaction.state is _S.ONGOING or not _is_last(transaction, request)


def _is_last(transaction: TransactionMetadata, request: InitProducerId) -> bool:
    """Whether a request names the producer before its last epoch bump, whose response it may not have read (KIP-360).

    Each request with a producer bumps the epoch, and each end of a transaction, also that of a timeout.
    """
    is_same = transaction.producer_id == request.producer_id or transaction.epoch == 0
    return is_same and request.producer_id >= 0 and 0 <= transaction.last_epoch == request.producer_epoch
