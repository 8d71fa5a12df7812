"""The state of a transactional producer: its identity, its phase, and its transaction's partitions.

This module only holds state, which the sender and the transactor use (KIP-98, KIP-360, KIP-890).  Its table lists the
legal transitions.  Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from attrs import define, field

from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError, ProducerFencedError, StreamsError, TransactionError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import AddPartitionsToTxn


class TransactionPhase(Enum):
    """The phases of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE = "to be aborted"
    FATAL = "out of use"


_S = TransactionPhase
_TRANSITIONS: Final[dict[TransactionPhase, frozenset[TransactionPhase]]] = {
    _S.UNINITIALIZED: frozenset({_S.READY, _S.FATAL}),
    _S.READY: frozenset({_S.IN_TRANSACTION, _S.FATAL}),
    _S.IN_TRANSACTION: frozenset({_S.COMMITTING, _S.ABORTING, _S.ABORTABLE, _S.READY, _S.FATAL}),
    _S.ABORTABLE: frozenset({_S.ABORTING, _S.FATAL}),
    # The broker may have received EndTxn, which can only be retried from here.
    _S.COMMITTING: frozenset({_S.READY, _S.ABORTABLE, _S.FATAL}),
    _S.ABORTING: frozenset({_S.READY, _S.FATAL}),
    _S.FATAL: frozenset(),
}

#: Codes for a fenced producer: another producer has its transactional id, or the broker ended the transaction.
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})

_LAST_EPOCH: Final = 32_767


@define(eq=False)
class Identity:
    """A producer's id and epoch, which are -1 until the broker has assigned them."""

    producer_id: int = -1
    epoch: int = -1

    @property
    def is_known(self) -> bool:
        """Whether the broker has assigned a producer id."""
        return self.producer_id >= 0

    @property
    def pair(self) -> tuple[int, int]:
        """The producer id and epoch."""
        return self.producer_id, self.epoch

    def set(self, producer_id: int, epoch: int) -> None:
        """Set the producer id and epoch that the broker has assigned."""
        self.producer_id = producer_id
        self.epoch = epoch

    def bump(self) -> bool:
        """Increment the epoch (KIP-360); return False after the last epoch, when a new producer id is needed."""
        if self.epoch >= _LAST_EPOCH:
            self.set(-1, -1)
            return False
        self.epoch += 1
        return True


@define(eq=False)
class Transaction:
    """The state of a transactional producer, and of its open transaction, if any."""

    transactional_id: str
    identity: Identity
    state: TransactionPhase = TransactionPhase.UNINITIALIZED
    error: BrokerError | None = None
    #: Partitions added at the coordinator, and partitions still to be added, in order.
    added: dict[TopicPartition, None] = field(factory=dict)
    pending: dict[TopicPartition, None] = field(factory=dict)
    groups: dict[str, None] = field(factory=dict)
    #: Whether the next transaction needs a new epoch: the sequence has a gap, or a request may still arrive.
    needs_new_epoch: bool = False
    #: Whether the transaction may be open at the coordinator.
    is_started: bool = False
    #: Whether the cluster has transactions of version 2 (KIP-890): brokers add partitions and groups by themselves, and
    #: each transaction has its own epoch.
    is_second_version: bool = False
    #: Number of the transaction, to recognize responses to an earlier one.
    serial: int = 0

    # --- states -----------------------------------------------------------------------

    def move(self, to: TransactionPhase) -> None:
        """Enter another phase; the transition must be legal."""
        assert to in _TRANSITIONS[self.state], f"{self.state} -> {to}"
        self.state = to

    def require(self, verb: str, *states: TransactionPhase) -> None:
        """Raise an error if the current phase is not one of ``states``; ``verb`` describes the call.

        Raises:
            ProducerFencedError, BrokerError: the producer can no longer be used.
            TransactionError: the transaction has to be aborted first.
            StreamsError: the application has made the calls in the wrong order.
        """
        if self.state in states:
            return
        if self.error is not None and self.state in (_S.FATAL, _S.ABORTABLE):
            raise self.again(self.error)
        phases = " or ".join(repr(state.value) for state in states)
        raise StreamsError(
            f"{verb} of producer {self.transactional_id!r}: it is {self.state.value!r}, not {phases}; "
            "the order is init_transactions, then begin, send and commit or abort for each transaction"
        )

    def begin(self) -> None:
        """Open a transaction."""
        self.require("begin_transaction", _S.READY)
        self.error = None
        self.serial += 1
        self.move(_S.IN_TRANSACTION)

    def finish(self) -> None:
        """End the transaction; the producer is ready for the next one."""
        self.move(_S.READY)
        self.error = None
        self.needs_new_epoch = self.is_started = False
        for collection in (self.added, self.pending, self.groups):
            collection.clear()

    def fail(self, cause: BrokerError, what: str) -> BrokerError:
        """Record and return a failure: fatal if the producer is fenced; otherwise the transaction has to be aborted."""
        if cause.code in FENCED or isinstance(cause, ProducerFencedError):
            return self.fence(cause, what)
        if self.state in (_S.IN_TRANSACTION, _S.COMMITTING):
            error = TransactionError(
                f"transaction of producer {self.transactional_id!r}: {what}: {cause}; "
                "only abort_transaction is possible now",
                code=cause.code,
                transactional_id=self.transactional_id,
            )
            error.__cause__ = cause
            self.error = error
            self.move(_S.ABORTABLE)
        return self.error or cause

    def fence(self, cause: BrokerError, what: str) -> BrokerError:
        """Mark the producer as fenced, which is fatal; return the error."""
        if isinstance(self.error, ProducerFencedError):
            return self.error
        error = ProducerFencedError(
            f"producer {self.transactional_id!r} (id {self.identity.producer_id}, epoch {self.identity.epoch}): "
            f"{what}: "
            "another producer with this transactional id has begun, or the transaction was ended after its timeout; "
            "close this producer and make a new one",
            code=cause.code,
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
        )
        error.__cause__ = cause
        self.die(error)
        return error

    def die(self, error: BrokerError) -> None:
        """Record that the producer has failed for good."""
        self.error = error
        if self.state is not _S.FATAL:
            self.move(_S.FATAL)

    def again(self, error: BrokerError) -> BrokerError:
        """Return a copy of a recorded error with a separate traceback, so that it can be raised again."""
        if isinstance(error, ProducerFencedError):
            copy: BrokerError = ProducerFencedError(
                str(error),
                code=error.code,
                transactional_id=error.transactional_id,
                producer_id=error.producer_id,
                producer_epoch=error.producer_epoch,
            )
        elif isinstance(error, TransactionError):
            copy = TransactionError(str(error), code=error.code, transactional_id=error.transactional_id)
        else:
            return error
        copy.__cause__ = error.__cause__
        return copy

    @property
    def is_failed(self) -> bool:
        """Whether no more records can be sent in this transaction."""
        return self.state in (_S.ABORTABLE, _S.FATAL, _S.ABORTING)

    # --- partitions -------------------------------------------------------------------

    def admits(self, partition: TopicPartition) -> bool:
        """Whether records may be sent to a partition now; if not, mark it as one to add to the transaction."""
        if self.state is not _S.IN_TRANSACTION:
            return False
        if self.is_second_version or partition in self.added:
            return True
        self.pending[partition] = None
        return False

    def add_request(self) -> AddPartitionsToTxn | None:
        """Return the request that adds the pending partitions, or None if there are none."""
        if not self.pending or self.state is not _S.IN_TRANSACTION:
            return None
        return AddPartitionsToTxn(
            self.transactional_id, self.identity.producer_id, self.identity.epoch, tuple(self.pending)
        )

    def on_added(self, partitions: Iterable[TopicPartition]) -> None:
        """Mark partitions as added to the transaction at the coordinator."""
        for partition in partitions:
            self.pending.pop(partition, None)
            self.added[partition] = None
