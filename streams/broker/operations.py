"""Handlers for operations requests: log directories, reassignments, transactions and ACLs.

Requests for features that this broker lacks (replicas, access control, quotas) get the responses of a Kafka cluster
without these features, so that tools report their absence.  Each handler receives the broker, the request and the
monotonic time in milliseconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from streams.broker.service import Broker, Handler
from streams.broker.transaction_log import TransactionMetadata, TransactionState
from streams.core.blocks.records import TopicPartition
from streams.protocol.admin_messages import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    CreateAcls,
    CreateAclsResponse,
    DeleteAcls,
    DeleteAclsResponse,
    DeletedAcls,
    DescribeAcls,
    DescribeAclsResponse,
    DescribeClientQuotas,
    DescribeClientQuotasResponse,
    DescribedProducer,
    DescribedTransaction,
    DescribeLogDirs,
    DescribeLogDirsResponse,
    DescribeProducers,
    DescribeProducersResponse,
    DescribeTransactions,
    DescribeTransactionsResponse,
    ElectLeaders,
    ElectLeadersResponse,
    ErrorWithMessage,
    ListedTransaction,
    ListPartitionReassignments,
    ListPartitionReassignmentsResponse,
    ListTransactions,
    ListTransactionsResponse,
    LogDir,
    LogSize,
    PartitionProducers,
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
    WrittenMarker,
)
from streams.protocol.error_codes import ErrorCode

#: The log directory name that an in-memory broker reports.
_IN_MEMORY: Final = "memory"
#: The epoch of the only coordinator.
_COORDINATOR_EPOCH: Final = 0
_NO_ACCESS_CONTROL: Final = "this broker has no access control: an authenticated client may do everything"
_STATES: Final = frozenset(state.value for state in TransactionState)


# --- partitions ---------------------------------------------------------------------------


def _describe_log_dirs(machine: Broker, request: DescribeLogDirs, now_ms: int) -> DescribeLogDirsResponse:
    """Return the sizes of partitions in bytes; sizes of in-memory blocks that are not encoded are estimates."""
    logs = machine.topics.logs
    asked: Iterable[TopicPartition] = logs if request.partitions is None else request.partitions
    sizes = {
        partition: LogSize(sum(extent.size_bytes for extent in logs[partition].storage.extents()))
        for partition in asked
        if partition in logs
    }
    folder = machine.topics.storages.data_dir
    log_dir = _IN_MEMORY if folder is None else str(folder.absolute())
    return DescribeLogDirsResponse((LogDir(ErrorCode.NONE, log_dir, sizes),))


def _elect_leaders(machine: Broker, request: ElectLeaders, now_ms: int) -> ElectLeadersResponse:
    def result(partition: TopicPartition) -> ErrorWithMessage:
        is_there = partition in machine.topics.logs
        return ErrorWithMessage(ErrorCode.ELECTION_NOT_NEEDED if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return ElectLeadersResponse({partition: result(partition) for partition in request.partitions or ()})


def _alter_reassignments(
    machine: Broker, request: AlterPartitionReassignments, now_ms: int
) -> AlterPartitionReassignmentsResponse:
    node_id = machine.config.node_id

    def result(partition: TopicPartition, replicas: Sequence[int] | None) -> ErrorWithMessage:
        if partition not in machine.topics.logs:
            return ErrorWithMessage(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if replicas is None:
            return ErrorWithMessage(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        if list(replicas) == [node_id]:
            return ErrorWithMessage(ErrorCode.NONE)
        return ErrorWithMessage(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{partition} can have the replicas [{node_id}] only, not {list(replicas)}: there is one node",
        )

    results = {partition: result(partition, replicas) for partition, replicas in request.replicas.items()}
    return AlterPartitionReassignmentsResponse(results)


def _list_reassignments(
    machine: Broker, request: ListPartitionReassignments, now_ms: int
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse()


# --- producers and transactions -----------------------------------------------------------


def _write_markers(machine: Broker, request: WriteTxnMarkers, now_ms: int) -> WriteTxnMarkersResponse:
    written = []
    for marker in request.markers:
        producer_id = marker.producer_id
        epoch = marker.producer_epoch
        is_commit = marker.is_commit
        errors = {
            partition: machine.write_marker(partition, producer_id, epoch, now_ms, is_commit=is_commit)
            for partition in marker.partitions
        }
        written.append(WrittenMarker(producer_id, errors))
    return WriteTxnMarkersResponse(tuple(written))


def _describe_producers(machine: Broker, request: DescribeProducers, now_ms: int) -> DescribeProducersResponse:
    def described(partition: TopicPartition) -> PartitionProducers:
        log = machine.topics.logs.get(partition)
        if log is None:
            return PartitionProducers(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        active = tuple(
            DescribedProducer(
                producer.producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_ms,
                _COORDINATOR_EPOCH,
                producer.open_offset,
            )
            for producer in log.producers.active()
        )
        return PartitionProducers(ErrorCode.NONE, active)

    return DescribeProducersResponse({partition: described(partition) for partition in request.partitions})


def _describe_transactions(machine: Broker, request: DescribeTransactions, now_ms: int) -> DescribeTransactionsResponse:
    distinct = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(tuple(_transaction(one, machine.transactions.get(one)) for one in distinct))


def _transaction(transactional_id: str, transaction: TransactionMetadata | None) -> DescribedTransaction:
    if transaction is None:
        return DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    return DescribedTransaction(
        ErrorCode.NONE,
        transactional_id,
        transaction.state.value,
        transaction.timeout_ms,
        transaction.started_ms,
        transaction.producer_id,
        transaction.epoch,
        sorted(transaction.partitions),
    )


def _list_transactions(machine: Broker, request: ListTransactions, now_ms: int) -> ListTransactionsResponse:
    states = set(request.state_filters)
    producers = set(request.producer_id_filters)
    duration_ms = request.duration_filter

    def is_asked_for(transaction: TransactionMetadata) -> bool:
        is_long = duration_ms < 0 or (transaction.started_ms >= 0 and now_ms - transaction.started_ms > duration_ms)
        return (
            is_long
            and (not states or transaction.state.value in states)
            and (not producers or transaction.producer_id in producers)
        )

    listed = tuple(
        ListedTransaction(transaction.transactional_id, transaction.producer_id, transaction.state.value)
        for transaction in machine.transactions.all()
        if is_asked_for(transaction)
    )
    return ListTransactionsResponse(ErrorCode.NONE, sorted(states - _STATES), listed)


# --- access control and quotas ------------------------------------------------------------


def _describe_acls(machine: Broker, request: DescribeAcls, now_ms: int) -> DescribeAclsResponse:
    return DescribeAclsResponse(ErrorCode.SECURITY_DISABLED, _NO_ACCESS_CONTROL)


def _create_acls(machine: Broker, request: CreateAcls, now_ms: int) -> CreateAclsResponse:
    refused = ErrorWithMessage(ErrorCode.SECURITY_DISABLED, _NO_ACCESS_CONTROL)
    return CreateAclsResponse([refused] * len(request.creations))


def _delete_acls(machine: Broker, request: DeleteAcls, now_ms: int) -> DeleteAclsResponse:
    refused = DeletedAcls(ErrorCode.SECURITY_DISABLED, _NO_ACCESS_CONTROL)
    return DeleteAclsResponse([refused] * len(request.filters))


def _describe_quotas(machine: Broker, request: DescribeClientQuotas, now_ms: int) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(ErrorCode.NONE)


HANDLERS: Final[Mapping[type, Handler]] = {
    AlterPartitionReassignments: _alter_reassignments,
    CreateAcls: _create_acls,
    DeleteAcls: _delete_acls,
    DescribeAcls: _describe_acls,
    DescribeClientQuotas: _describe_quotas,
    DescribeLogDirs: _describe_log_dirs,
    DescribeProducers: _describe_producers,
    DescribeTransactions: _describe_transactions,
    ElectLeaders: _elect_leaders,
    ListPartitionReassignments: _list_reassignments,
    ListTransactions: _list_transactions,
    WriteTxnMarkers: _write_markers,
}
