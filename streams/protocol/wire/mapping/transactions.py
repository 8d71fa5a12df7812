"""Transactions in Kafka's words (KIP-98, KIP-447)."""

from collections.abc import Sequence

from streams.core.records import TopicPartition
from streams.protocol.messages import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
    OffsetAndMetadata,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from streams.protocol.wire.fields import Fields
from streams.protocol.wire.mapping.base import (
    Asked,
    Incoming,
    Serving,
    Translation,
    by_topic,
    code,
    each_partition,
    one,
    partitions_by_topic,
    text,
)
from streams.protocol.wire.tables import transactions as tables

# --- InitProducerId -----------------------------------------------------------------------


def _init_producer_id(request: InitProducerId, version: int) -> Fields:
    return {
        "transactional_id": request.transactional_id,
        "transaction_timeout_ms": request.transaction_timeout_ms,
        "producer_id": request.producer_id,
        "producer_epoch": request.producer_epoch,
    }


def _init_producer_id_answer(message: Fields, version: int, request: InitProducerId) -> InitProducerIdResponse:
    return InitProducerIdResponse(code(message), message["producer_id"], message["producer_epoch"])


def _init_producer_id_asked(message: Fields, version: int, client_id: str) -> Asked[InitProducerId]:
    return one(
        InitProducerId(
            message["transactional_id"],
            message["transaction_timeout_ms"],
            message["producer_id"],
            message["producer_epoch"],
        )
    )


def _init_producer_id_answered(
    incoming: Incoming[InitProducerId], responses: Sequence[InitProducerIdResponse], serving: Serving
) -> Fields:
    (response,) = responses
    return {
        "error_code": response.error,
        "producer_id": response.producer_id,
        "producer_epoch": response.producer_epoch,
    }


INIT_PRODUCER_ID = Translation(
    tables.INIT_PRODUCER_ID.key,
    InitProducerId,
    InitProducerIdResponse,
    tables.INIT_PRODUCER_ID.versions,
    _init_producer_id,
    _init_producer_id_answer,
    _init_producer_id_asked,
    _init_producer_id_answered,
)


# --- AddPartitionsToTxn -------------------------------------------------------------------


def _add_partitions(request: AddPartitionsToTxn, version: int) -> Fields:
    return {
        "transactional_id": request.transactional_id,
        "producer_id": request.producer_id,
        "producer_epoch": request.producer_epoch,
        "topics": [
            {"name": topic, "partitions": numbers} for topic, numbers in partitions_by_topic(request.partitions).items()
        ],
    }


def _add_partitions_answer(message: Fields, version: int, request: AddPartitionsToTxn) -> AddPartitionsToTxnResponse:
    rows = each_partition(message["results"], "name", "results_by_partition", "partition_index")
    return AddPartitionsToTxnResponse({partition: code(row, "partition_error_code") for partition, row in rows})


def _add_partitions_asked(message: Fields, version: int, client_id: str) -> Asked[AddPartitionsToTxn]:
    named = (TopicPartition(topic["name"], number) for topic in message["topics"] for number in topic["partitions"])
    partitions = tuple(dict.fromkeys(named))
    return one(
        AddPartitionsToTxn(message["transactional_id"], message["producer_id"], message["producer_epoch"], partitions)
    )


def _add_partitions_answered(
    incoming: Incoming[AddPartitionsToTxn], responses: Sequence[AddPartitionsToTxnResponse], serving: Serving
) -> Fields:
    (response,) = responses
    return {
        "results": [
            {
                "name": topic,
                "results_by_partition": [
                    {"partition_index": number, "partition_error_code": error} for number, error in partitions
                ],
            }
            for topic, partitions in by_topic(response.errors).items()
        ]
    }


ADD_PARTITIONS_TO_TXN = Translation(
    tables.ADD_PARTITIONS_TO_TXN.key,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    tables.ADD_PARTITIONS_TO_TXN.versions,
    _add_partitions,
    _add_partitions_answer,
    _add_partitions_asked,
    _add_partitions_answered,
)


# --- AddOffsetsToTxn ----------------------------------------------------------------------


def _add_offsets(request: AddOffsetsToTxn, version: int) -> Fields:
    return {
        "transactional_id": request.transactional_id,
        "producer_id": request.producer_id,
        "producer_epoch": request.producer_epoch,
        "group_id": request.group_id,
    }


def _add_offsets_answer(message: Fields, version: int, request: AddOffsetsToTxn) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(code(message))


def _add_offsets_asked(message: Fields, version: int, client_id: str) -> Asked[AddOffsetsToTxn]:
    return one(
        AddOffsetsToTxn(
            message["transactional_id"], message["producer_id"], message["producer_epoch"], message["group_id"]
        )
    )


def _add_offsets_answered(
    incoming: Incoming[AddOffsetsToTxn], responses: Sequence[AddOffsetsToTxnResponse], serving: Serving
) -> Fields:
    return {"error_code": responses[0].error}


ADD_OFFSETS_TO_TXN = Translation(
    tables.ADD_OFFSETS_TO_TXN.key,
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    tables.ADD_OFFSETS_TO_TXN.versions,
    _add_offsets,
    _add_offsets_answer,
    _add_offsets_asked,
    _add_offsets_answered,
)


# --- TxnOffsetCommit ----------------------------------------------------------------------


def _commit(request: TxnOffsetCommit, version: int) -> Fields:
    return {
        "transactional_id": request.transactional_id,
        "group_id": request.group_id,
        "producer_id": request.producer_id,
        "producer_epoch": request.producer_epoch,
        "generation_id": request.generation_id,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": committed.offset,
                        "committed_metadata": committed.metadata,
                        "committed_leader_epoch": committed.leader_epoch,
                    }
                    for number, committed in partitions
                ],
            }
            for topic, partitions in by_topic(request.offsets).items()
        ],
    }


def _commit_answer(message: Fields, version: int, request: TxnOffsetCommit) -> TxnOffsetCommitResponse:
    rows = each_partition(message["topics"], "name", "partitions", "partition_index")
    return TxnOffsetCommitResponse({partition: code(row) for partition, row in rows})


def _commit_asked(message: Fields, version: int, client_id: str) -> Asked[TxnOffsetCommit]:
    rows = each_partition(message["topics"], "name", "partitions", "partition_index")
    return one(
        TxnOffsetCommit(
            message["transactional_id"],
            message["group_id"],
            message["producer_id"],
            message["producer_epoch"],
            {
                partition: OffsetAndMetadata(
                    row["committed_offset"], text(row["committed_metadata"]), row["committed_leader_epoch"]
                )
                for partition, row in rows
            },
            message["generation_id"],
            message["member_id"],
            message["group_instance_id"],
        )
    )


def _commit_answered(
    incoming: Incoming[TxnOffsetCommit], responses: Sequence[TxnOffsetCommitResponse], serving: Serving
) -> Fields:
    (response,) = responses
    return {
        "topics": [
            {
                "name": topic,
                "partitions": [{"partition_index": number, "error_code": error} for number, error in partitions],
            }
            for topic, partitions in by_topic(response.errors).items()
        ]
    }


TXN_OFFSET_COMMIT = Translation(
    tables.TXN_OFFSET_COMMIT.key,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
    tables.TXN_OFFSET_COMMIT.versions,
    _commit,
    _commit_answer,
    _commit_asked,
    _commit_answered,
)


# --- EndTxn -------------------------------------------------------------------------------


def _end(request: EndTxn, version: int) -> Fields:
    return {
        "transactional_id": request.transactional_id,
        "producer_id": request.producer_id,
        "producer_epoch": request.producer_epoch,
        "committed": request.is_commit,
    }


def _end_answer(message: Fields, version: int, request: EndTxn) -> EndTxnResponse:
    return EndTxnResponse(code(message))


def _end_asked(message: Fields, version: int, client_id: str) -> Asked[EndTxn]:
    # The epoch is raised from version 5 on only (KIP-890): these clients would not hear of it.
    return one(
        EndTxn(
            message["transactional_id"],
            message["producer_id"],
            message["producer_epoch"],
            message["committed"],
            bumps_epoch=False,
        )
    )


def _end_answered(incoming: Incoming[EndTxn], responses: Sequence[EndTxnResponse], serving: Serving) -> Fields:
    return {"error_code": responses[0].error}


END_TXN = Translation(
    tables.END_TXN.key, EndTxn, EndTxnResponse, tables.END_TXN.versions, _end, _end_answer, _end_asked, _end_answered
)

TRANSLATIONS = (INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, END_TXN)
