"""What operators' tools ask of a cluster, answered by one that has a single node.

Each is a function of the machine, the time and what was asked, as in ``administration``, beside which this stands
under ``requests``.  What there is not (replicas elsewhere, access control, quotas) is told as Kafka tells it of a
cluster without: tools then say so, instead of that the broker is too old for them.
"""

from collections.abc import Callable, Iterable
from typing import Final

from streams.broker.service import Broker
from streams.broker.tcp.administration import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, Action
from streams.broker.transactions import TransactionMetadata, TransactionState
from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import ListGroups, ListGroupsResponse, Response
from streams.protocol.wire import Fields

#: What stands for the folder where there is none.
_IN_MEMORY: Final = "memory"
#: The epoch of the coordinator, which never moves here.
_COORDINATOR_EPOCH: Final = 0
_NO_ACCESS_CONTROL: Final = "this broker has no access control: who may come in may do everything"
_STATES: Final = frozenset(state.value for state in TransactionState)


def _row(error: ErrorCode, message: str | None = None) -> Fields:
    return {"error_code": error, "error_message": message}


# --- partitions ---------------------------------------------------------------------------


def describe_log_dirs(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Return how large each partition is (DescribeLogDirs, KIP-113); in memory: its keys, values and headers."""
    asked: Iterable[TopicPartition] = machine.topics.logs
    if message["topics"] is not None:
        named = (TopicPartition(row["topic"], number) for row in message["topics"] for number in row["partitions"])
        asked = dict.fromkeys(named)
    topics: dict[str, list[Fields]] = {}
    for partition in asked:
        log = machine.topics.logs.get(partition)
        if log is not None:
            size = sum(extent.size_bytes for extent in log.storage.extents())
            row = {"partition_size": size, "offset_lag": 0, "is_future_key": False}
            topics.setdefault(partition.topic, []).append({"partition_index": partition.partition} | row)
    folder = machine.topics.storages.data_dir
    rows = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    log_dir = _IN_MEMORY if folder is None else str(folder.absolute())
    return {"results": [{"error_code": ErrorCode.NONE, "log_dir": log_dir, "topics": rows}]}


def elect_leaders(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Say of each partition that its leader is the right one (ElectLeaders, KIP-460); of all, nothing."""

    def result(partition: TopicPartition) -> Fields:
        is_there = partition in machine.topics.logs
        error = ErrorCode.ELECTION_NOT_NEEDED if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {"partition_id": partition.partition} | _row(error)

    rows = [
        {
            "topic": row["topic"],
            "partition_result": [result(TopicPartition(row["topic"], number)) for number in row["partitions"]],
        }
        for row in message["topic_partitions"] or ()
    ]
    return {"replica_election_results": rows}


def alter_partition_reassignments(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Let partitions stay on the only node, and nowhere else (AlterPartitionReassignments, KIP-455)."""
    node_id = machine.config.node_id

    def result(partition: TopicPartition, replicas: list[int] | None) -> Fields:
        error = _row(ErrorCode.NONE)
        if partition not in machine.topics.logs:
            error = _row(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif replicas is None:
            error = _row(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        elif list(replicas) != [node_id]:
            error = _row(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{partition} can have the replicas [{node_id}] only, not {list(replicas)}: there is one node",
            )
        return {"partition_index": partition.partition} | error

    rows = [
        {
            "name": topic["name"],
            "partitions": [
                result(TopicPartition(topic["name"], row["partition_index"]), row["replicas"])
                for row in topic["partitions"]
            ],
        }
        for topic in message["topics"]
    ]
    return _row(ErrorCode.NONE) | {"responses": rows}


def list_partition_reassignments(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Say that no partition is moving (ListPartitionReassignments, KIP-455)."""
    return _row(ErrorCode.NONE) | {"topics": []}


# --- producers and transactions -----------------------------------------------------------


def write_markers(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """End transactions that their coordinator has forgotten (WriteTxnMarkers, as KIP-664 uses it)."""
    rows = []
    for marker in message["markers"]:
        topics = []
        for topic in marker["topics"]:
            partitions = []
            for number in topic["partition_indexes"]:
                partition = TopicPartition(topic["name"], number)
                is_commit = marker["transaction_result"]
                error = machine.write_marker(
                    partition, marker["producer_id"], marker["producer_epoch"], now_ms, is_commit=is_commit
                )
                partitions.append({"partition_index": number, "error_code": error})
            topics.append({"name": topic["name"], "partitions": partitions})
        rows.append({"producer_id": marker["producer_id"], "topics": topics})
    return {"markers": rows}


def describe_producers(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Return who writes to partitions with sequences (DescribeProducers, KIP-664)."""

    def described(partition: TopicPartition) -> Fields:
        log = machine.topics.logs.get(partition)
        row: Fields = {"partition_index": partition.partition, "active_producers": []}
        if log is None:
            return row | _row(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        row["active_producers"] = [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_ms,
                "coordinator_epoch": _COORDINATOR_EPOCH,
                "current_txn_start_offset": producer.open_offset,
            }
            for producer in log.active_producers()
        ]
        return row | _row(ErrorCode.NONE)

    rows = []
    for name, topic in {row["name"]: row for row in message["topics"]}.items():
        rows.append(
            {
                "name": name,
                "partitions": [described(TopicPartition(name, n)) for n in dict.fromkeys(topic["partition_indexes"])],
            }
        )
    return {"topics": rows}


def describe_transactions(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Return what became of transactional ids (DescribeTransactions, KIP-664)."""
    return {
        "transaction_states": [
            _transaction(transactional_id, machine.transactions.known(transactional_id))
            for transactional_id in dict.fromkeys(message["transactional_ids"])
        ]
    }


def _transaction(transactional_id: str, known: TransactionMetadata | None) -> Fields:
    if known is None:
        return {
            "error_code": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            "transactional_id": transactional_id,
            "transaction_state": "",
            "transaction_timeout_ms": 0,
            "transaction_start_time_ms": -1,
            "producer_id": -1,
            "producer_epoch": -1,
            "topics": [],
        }
    topics: dict[str, list[int]] = {}
    for partition in sorted(known.partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        "transaction_state": known.state.value,
        "transaction_timeout_ms": known.timeout_ms,
        "transaction_start_time_ms": known.started_ms,
        "producer_id": known.producer_id,
        "producer_epoch": known.epoch,
        "topics": [{"topic": name, "partitions": numbers} for name, numbers in topics.items()],
    }


def list_transactions(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Return transactional ids, by state, producer and how long they are open (ListTransactions, KIP-664, KIP-994)."""
    states, producers = set(message["state_filters"]), set(message["producer_id_filters"])
    unknown = states - _STATES
    duration_ms = message["duration_filter"]

    def is_asked_for(known: TransactionMetadata) -> bool:
        is_long = duration_ms < 0 or (known.started_ms >= 0 and now_ms - known.started_ms > duration_ms)
        return (
            is_long
            and (not states or known.state.value in states)
            and (not producers or known.producer_id in producers)
        )

    rows = [
        {
            "transactional_id": known.transactional_id,
            "producer_id": known.producer_id,
            "transaction_state": known.state.value,
        }
        for known in machine.transactions.all_known()
        if is_asked_for(known)
    ]
    return {
        "error_code": ErrorCode.NONE,
        "unknown_state_filters": sorted(unknown),
        "transaction_states": rows,
    }


# --- who may do what, and how much of it --------------------------------------------------


def describe_acls(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Say that there is no access control (DescribeAcls)."""
    return _row(ErrorCode.SECURITY_DISABLED, _NO_ACCESS_CONTROL) | {"resources": []}


def create_acls(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Say that there is no access control (CreateAcls)."""
    return {"results": [_row(ErrorCode.SECURITY_DISABLED, _NO_ACCESS_CONTROL) for _ in message["creations"]]}


def delete_acls(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Say that there is no access control (DeleteAcls)."""
    nothing = _row(ErrorCode.SECURITY_DISABLED, _NO_ACCESS_CONTROL) | {"matching_acls": []}
    return {"filter_results": [nothing for _ in message["filters"]]}


def describe_client_quotas(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Say that nobody has a quota (DescribeClientQuotas, KIP-546)."""
    return _row(ErrorCode.NONE) | {"entries": []}


def list_config_resources(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Return what can be asked for its settings, by kind (ListConfigResources, KIP-1142).

    Version 0, in which no kind is said, asks for the subscriptions to clients' metrics: there are none.
    """
    node = (str(machine.config.node_id),)
    found: dict[int, Callable[[], Iterable[str]]] = {
        TOPIC: lambda: machine.topics.by_name,
        BROKER: lambda: node,
        BROKER_LOGGER: lambda: node,
        CLIENT_METRICS: tuple,
        GROUP: lambda: _groups(machine, now_ms),
    }
    kinds = dict.fromkeys(message["resource_types"])
    if any(kind not in found for kind in kinds):
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": []}
    rows = [{"resource_name": name, "resource_type": kind} for kind in kinds for name in found[kind]()]
    return {"error_code": ErrorCode.NONE, "config_resources": rows}


def _groups(machine: Broker, now_ms: int) -> list[str]:
    responses: list[Response] = []
    machine.handle(ListGroups(), now_ms, responses.append)
    (response,) = responses
    assert isinstance(response, ListGroupsResponse)
    return [group_id for group_id, _, _ in response.groups]


#: By API key.
ACTIONS: Final[dict[int, Action]] = {
    27: write_markers,
    29: describe_acls,
    30: create_acls,
    31: delete_acls,
    35: describe_log_dirs,
    43: elect_leaders,
    45: alter_partition_reassignments,
    46: list_partition_reassignments,
    48: describe_client_quotas,
    61: describe_producers,
    65: describe_transactions,
    66: list_transactions,
    74: list_config_resources,
}
