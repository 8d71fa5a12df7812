"""Translations of the APIs of share groups that are not derived: records stay encoded, groups are asked one by one."""

import logging
from collections.abc import Sequence

from streams.protocol.batch import CorruptBatchError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import ClientInformation
from streams.protocol.share_group_messages import (
    AcquiredRecords,
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResponse,
    SharedPartition,
    ShareFetch,
    ShareFetchResponse,
    ShareGroupDescribe,
    ShareGroupDescribeResponse,
    TopicIdPartition,
)
from streams.protocol.wire.encoded import encoded, fetched
from streams.protocol.wire.fields import Fields
from streams.protocol.wire.mapping.base import Incoming, RequestParts, Serving, Translation, code, text
from streams.protocol.wire.mapping.derived import reader, writer
from streams.protocol.wire.mapping.groups import description, heartbeat
from streams.protocol.wire.tables import share_groups as tables

_LOGGER = logging.getLogger(__name__)

SHARE_GROUP_HEARTBEAT = heartbeat(tables.SHARE_GROUP_HEARTBEAT)

SHARE_GROUP_DESCRIBE = description(
    tables.SHARE_GROUP_DESCRIBE,
    "group_ids",
    ShareGroupDescribe,
    ShareGroupDescribeResponse,
    tables.DESCRIBED_SHARE_GROUP,
)

# --- ShareFetch ---------------------------------------------------------------------------

_write_fetch = writer(ShareFetch, tables.SHARE_FETCH.request_fields)
_read_fetch = reader(ShareFetch, tables.SHARE_FETCH.request_fields)


def _fetch_response(message: Fields, version: int, request: ShareFetch) -> ShareFetchResponse:
    partitions = {
        TopicIdPartition(topic["topic_id"], row["partition_index"]): _shared(topic["topic_id"], row)
        for topic in message["responses"]
        for row in topic["partitions"]
    }
    return ShareFetchResponse(
        code(message), text(message["error_message"]), message["acquisition_lock_timeout_ms"], partitions
    )


def _shared(topic_id: bytes, row: Fields) -> SharedPartition:
    try:
        blocks, error = fetched(row["records"] or b""), code(row)
    except CorruptBatchError as damage:
        # Report the damage as an error of this partition, so that the others can be read.
        _LOGGER.warning("fetch of partition %s of topic %s: %s", row["partition_index"], topic_id.hex(), damage)
        blocks, error = [], ErrorCode.CORRUPT_MESSAGE
    return SharedPartition(
        error,
        text(row["error_message"]),
        code(row, "acknowledge_error_code"),
        text(row["acknowledge_error_message"]),
        tuple(blocks),
        tuple(
            AcquiredRecords(acquired["first_offset"], acquired["last_offset"], acquired["delivery_count"])
            for acquired in row["acquired_records"]
        ),
        row["current_leader"]["leader_id"],
        row["current_leader"]["leader_epoch"],
    )


def _fetch_reply(incoming: Incoming[ShareFetch], responses: Sequence[ShareFetchResponse], serving: Serving) -> Fields:
    (response,) = responses
    topics: dict[bytes, list[Fields]] = {}
    for (topic_id, number), found in response.partitions.items():
        row = {
            "partition_index": number,
            "error_code": found.error,
            "error_message": found.message or None,
            "acknowledge_error_code": found.acknowledge_error,
            "acknowledge_error_message": found.acknowledge_message or None,
            "current_leader": {"leader_id": found.leader_id, "leader_epoch": found.leader_epoch},
            "records": [encoded(block) for block in found.blocks],
            "acquired_records": [one._asdict() for one in found.acquired],
        }
        topics.setdefault(topic_id, []).append(row)
    return {
        "error_code": response.error,
        "error_message": response.message or None,
        "acquisition_lock_timeout_ms": response.lock_timeout_ms,
        "responses": [{"topic_id": topic_id, "partitions": rows} for topic_id, rows in topics.items()],
    }


SHARE_FETCH = Translation(
    tables.SHARE_FETCH,
    lambda request, version: _write_fetch(request),
    _fetch_response,
    lambda message, version, client: RequestParts((_read_fetch(message),)),
    _fetch_reply,
)

# --- DescribeShareGroupOffsets: one message object for each group -------------------------

_write_asked = writer(DescribeShareGroupOffsets, tables.ASKED_OFFSETS)
_read_asked = reader(DescribeShareGroupOffsets, tables.ASKED_OFFSETS)
_OF_GROUP = tuple(item for item in tables.DESCRIBED_OFFSETS if item.name != "group_id")
_write_offsets = writer(DescribeShareGroupOffsetsResponse, _OF_GROUP)
_read_offsets = reader(DescribeShareGroupOffsetsResponse, _OF_GROUP)


def _offsets_response(
    message: Fields, version: int, request: DescribeShareGroupOffsets
) -> DescribeShareGroupOffsetsResponse:
    (group,) = message["groups"]
    response: DescribeShareGroupOffsetsResponse = _read_offsets(group)
    return response


def _offsets_request(
    message: Fields, version: int, client: ClientInformation
) -> RequestParts[DescribeShareGroupOffsets]:
    return RequestParts(tuple(_read_asked(group) for group in message["groups"]))


def _offsets_reply(
    incoming: Incoming[DescribeShareGroupOffsets],
    responses: Sequence[DescribeShareGroupOffsetsResponse],
    serving: Serving,
) -> Fields:
    pairs = zip(incoming.requests, responses, strict=True)
    return {"groups": [_write_offsets(found) | {"group_id": request.group_id} for request, found in pairs]}


DESCRIBE_SHARE_GROUP_OFFSETS = Translation(
    tables.DESCRIBE_SHARE_GROUP_OFFSETS,
    lambda request, version: {"groups": [_write_asked(request)]},
    _offsets_response,
    _offsets_request,
    _offsets_reply,
)

TRANSLATIONS = (SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE, SHARE_FETCH, DESCRIBE_SHARE_GROUP_OFFSETS)
