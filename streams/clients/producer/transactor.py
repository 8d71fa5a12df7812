"""Transaction operations, each of which retries a coordinator request until a final response or ``max_block_ms``.

Every request can be repeated safely, since its response may be lost or the coordinator may have moved.
Waiting for a response drives the producer.  Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from attrs import define, field

from streams.clients.errors import RequestTimeoutError, as_error, error_for, first_error, is_final
from streams.clients.offsets import with_metadata
from streams.clients.producer.sender import Sender
from streams.clients.producer.transaction import FENCED, Transaction, TransactionPhase
from streams.clients.records import GroupMetadata
from streams.core.blocks.records import TopicPartition
from streams.core.clock import Clock, Deadline
from streams.core.errors import TransactionError
from streams.protocol.admin_messages import SOFTWARE, SOFTWARE_VERSION, TRANSACTION_VERSION, ApiVersions
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.messages import (
    COORDINATOR_GROUP,
    COORDINATOR_TRANSACTION,
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    EndTxn,
    FindCoordinator,
    FindCoordinatorResponse,
    InitProducerId,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from streams.protocol.request import R, Request, RequestFor, Response, checked
from streams.protocol.transport import ANY_NODE

#: Offsets to commit; an int is an offset without metadata.
Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]

_BUSY: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT})
_SECOND_VERSION: Final = 2
# Longest wait of one iteration, in milliseconds.
_POLL_MS: Final = 50


@define(eq=False)
class Transactor:
    """The coordinator requests of a producer; ``run_once`` drives the producer for up to the given milliseconds."""

    transaction: Transaction
    sender: Sender
    run_once: Callable[[int], bool]
    clock: Clock = field(init=False)
    _group_coordinators: dict[str, int] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.clock = self.sender.clock

    def initialize(self) -> None:
        """Request a producer id and epoch, fencing the previous owner of the transactional id."""
        transaction = self.transaction
        if transaction.state is TransactionPhase.READY:
            return
        transaction.require("init_transactions", TransactionPhase.UNINITIALIZED)
        self._renew(-1, -1)
        versions = self._call(None, ApiVersions(SOFTWARE, SOFTWARE_VERSION), "features of the cluster")
        if versions.error is not ErrorCode.NONE:
            raise error_for(versions.error, "features of the cluster")
        level = versions.finalized_features.get(TRANSACTION_VERSION)
        transaction.is_second_version = level is not None and level.max_version_level >= _SECOND_VERSION
        transaction.move(TransactionPhase.READY)

    def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Add a consumer group's offsets to the transaction."""
        transaction = self.transaction
        transaction.require("send_offsets_to_transaction", TransactionPhase.IN_TRANSACTION)
        if not offsets:
            return
        what = f"offsets of group {group.group_id!r}"
        producer_id, epoch = transaction.identity.pair
        transaction.is_started = True
        if group.group_id not in transaction.groups and not transaction.is_second_version:
            add = AddOffsetsToTxn(transaction.transactional_id, producer_id, epoch, group.group_id)
            self._check(self._call(None, add, what), what)
            transaction.groups[group.group_id] = None
        commit = TxnOffsetCommit(
            transaction.transactional_id,
            group.group_id,
            producer_id,
            epoch,
            with_metadata(offsets),
            group.generation_id,
            group.member_id,
            group.group_instance_id,
            transaction.is_second_version,
        )
        self._check(self._call(group.group_id, commit, what), what)

    def commit(self, flush: Callable[[], None]) -> None:
        """Flush all records, then commit the transaction."""
        transaction = self.transaction
        transaction.require("commit_transaction", TransactionPhase.IN_TRANSACTION, TransactionPhase.COMMITTING)
        if transaction.state is TransactionPhase.IN_TRANSACTION:
            flush()
            transaction.require("commit_transaction", TransactionPhase.IN_TRANSACTION)
            if not transaction.is_started:
                transaction.finish()
                return
            transaction.move(TransactionPhase.COMMITTING)
        self._end(is_commit=True)

    def abort(self) -> None:
        """Abort the transaction."""
        transaction = self.transaction
        states = TransactionPhase
        transaction.require("abort_transaction", states.IN_TRANSACTION, states.ABORTABLE, states.ABORTING)
        if transaction.state is not states.ABORTING:
            # Requests may be in flight; only a new epoch keeps them out of the next transaction.
            transaction.needs_new_epoch |= self.sender.is_adding
            reason = transaction.error or TransactionError(
                f"producer {transaction.transactional_id!r}: the transaction is aborted",
                transactional_id=transaction.transactional_id,
            )
            transaction.move(states.ABORTING)
            self.sender.drop_waiting(reason)
        deadline = self._deadline()
        has_progress = True
        while not self.sender.accumulator.is_empty:
            remaining_ms = deadline.remaining_ms(has_progress=has_progress)
            if not remaining_ms and not has_progress:
                # The response is not awaited, because a new epoch fences the request.
                self.sender.abandon()
                break
            has_progress = self.run_once(min(remaining_ms, _POLL_MS))
        if transaction.is_started:
            self._end(is_commit=False)
        else:
            transaction.finish()

    # --- inside -----------------------------------------------------------------------

    def _renew(self, producer_id: int, epoch: int) -> None:
        """Request the next epoch of the producer, which ends the open transaction."""
        transaction = self.transaction
        request = InitProducerId(
            transaction.transactional_id, self.sender.settings.transaction_timeout_ms, producer_id, epoch
        )
        what = f"identity of producer {transaction.transactional_id!r}"
        response = self._call(None, request, what)
        if response.error is not ErrorCode.NONE:
            error = error_for(response.error, what)
            if response.error in FENCED:
                raise transaction.fence(error, what)
            transaction.die(error)
            raise error
        transaction.identity.set(response.producer_id, response.producer_epoch)

    def _end(self, *, is_commit: bool) -> None:
        transaction = self.transaction
        what = f"{'commit' if is_commit else 'abort'} of the transaction of producer {transaction.transactional_id!r}"
        bumps_epoch = transaction.is_second_version
        request = EndTxn(transaction.transactional_id, *transaction.identity.pair, is_commit, bumps_epoch)
        response = self._call(None, request, what)
        if response.error is ErrorCode.INVALID_TXN_STATE and not is_commit:
            # The transaction is not open at the coordinator; a request that opens it may be in flight: fence it.
            transaction.needs_new_epoch = True
        elif response.error is not ErrorCode.NONE:
            error = error_for(response.error, what)
            if response.error in FENCED:
                raise transaction.fence(error, what)
            if response.error is ErrorCode.TRANSACTION_ABORTABLE and is_commit:
                raise transaction.again(transaction.fail(error, what))
            transaction.die(error)
            raise error
        if bumps_epoch and response.producer_epoch >= 0:
            transaction.identity.set(response.producer_id, response.producer_epoch)
        elif transaction.needs_new_epoch:
            self._renew(*transaction.identity.pair)
        transaction.finish()

    def _check(self, response: AddOffsetsToTxnResponse | TxnOffsetCommitResponse, what: str) -> None:
        code = first_error(response)
        if code is not ErrorCode.NONE:
            error = self.sender.fail_transaction(error_for(code, what), f"{what} could not be taken in")
            raise self.transaction.again(error)

    def _call(self, group_id: str | None, request: RequestFor[R], what: str) -> R:
        """Send a request to the coordinator of a group, or by default of the transaction; retry until a final response.

        Raises:
            RequestTimeoutError: no final response came within ``max_block_ms``.
            BrokerError: the request cannot be retried.
        """
        deadline = self._deadline()
        retriable = self.sender.network.traits.retriable
        failures = 0
        while True:
            response = self._attempt(group_id, request, deadline, what)
            code = ErrorCode.NETWORK_EXCEPTION
            if not isinstance(response, Exception):
                response = checked(request, response)
                code = first_error(response)
                if code not in retriable and code not in _BUSY:
                    return response
            elif is_final(response):
                raise as_error(response, what)
            if isinstance(response, Exception) or code in retriable:
                self._forget_coordinator(group_id)
            failures += 1
            if not deadline.remaining_ms(has_progress=False):
                self.transaction.needs_new_epoch = True
                cause = response if isinstance(response, Exception) else error_for(code, what)
                raise RequestTimeoutError(f"{what}: not done in time; try again") from cause
            self._pause(self.sender.pause_ms(code, failures), deadline)

    def _attempt(self, group_id: str | None, request: Request, deadline: Deadline, what: str) -> Response | Exception:
        node = self.sender.coordinator if group_id is None else self._group_coordinators.get(group_id)
        if node is None:
            key = self.transaction.transactional_id if group_id is None else group_id
            kind = COORDINATOR_TRANSACTION if group_id is None else COORDINATOR_GROUP
            coordinator = self._ask(ANY_NODE, FindCoordinator(key, kind), deadline, what)
            if not isinstance(coordinator, FindCoordinatorResponse):
                return coordinator
            if coordinator.error is not ErrorCode.NONE:
                return error_for(coordinator.error, what)
            node = coordinator.node_id
            if group_id is None:
                self.sender.coordinator = node
            else:
                self._group_coordinators[group_id] = node
        return self._ask(node, request, deadline, what)

    def _ask(self, node: int, request: Request, deadline: Deadline, what: str) -> Response | Exception:
        answers: list[Response | Exception] = []
        # Use a separate deadline: if the clock stands still, responses to one request are not progress for the others.
        deadline = Deadline(self.clock, deadline.deadline_ms)
        self.sender.post(node, request, answers.append)
        has_progress = True
        while not answers:
            remaining_ms = deadline.remaining_ms(has_progress=has_progress)
            if not remaining_ms and not has_progress:
                return RequestTimeoutError(f"{what}: no answer in time; is the broker running?")
            has_progress = self.run_once(min(remaining_ms, _POLL_MS))
        answer = answers[0]
        return as_error(answer, what) if isinstance(answer, Exception) else answer

    def _pause(self, for_ms: int, deadline: Deadline) -> None:
        until = Deadline(self.clock, min(deadline.deadline_ms, self.clock.monotonic_ms() + for_ms))
        while remaining_ms := until.remaining_ms(has_progress=False):
            self.run_once(min(remaining_ms, _POLL_MS))

    def _forget_coordinator(self, group_id: str | None) -> None:
        if group_id is None:
            self.sender.coordinator = None
        else:
            self._group_coordinators.pop(group_id, None)

    def _deadline(self) -> Deadline:
        return Deadline(self.clock, self.clock.monotonic_ms() + self.sender.settings.max_block_ms)
