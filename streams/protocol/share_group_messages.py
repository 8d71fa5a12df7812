"""Requests and responses of share groups, whose members acknowledge each record (KIP-932, KIP-1206, KIP-1222).

This module imports only ``core``, ``protocol.error_codes``, ``protocol.group_messages`` and ``protocol.request``.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from attrs import field, frozen

from streams.core.records import Block, TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import NamedAssignment, PartitionsById
from streams.protocol.request import RequestFor, Response

#: Modes of acquiring records: a fetch may get more than it asked for, so that batches stay whole, or may not.
BATCH_OPTIMIZED: Final = 0
RECORD_LIMIT: Final = 1


class TopicIdPartition(NamedTuple):
    """A partition of a topic, given by its topic ID."""

    topic_id: bytes
    partition: int


class AcknowledgementBatch(NamedTuple):
    """What a member says of the records between two offsets, both inclusive.

    ``types`` has one type for all records, or one for each: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
    """

    first_offset: int
    last_offset: int
    types: Sequence[int]


class AcquiredRecords(NamedTuple):
    """Records between two offsets, both inclusive, that a fetch has locked for its member."""

    first_offset: int
    last_offset: int
    delivery_count: int


# --- membership -----------------------------------------------------------------------


@frozen
class ShareGroupHeartbeat(RequestFor["ShareGroupHeartbeatResponse"]):
    """Join a share group, stay in it, report a changed subscription, or leave it.

    - ``member_epoch``: the current epoch, or ``JOIN_EPOCH`` or ``LEAVE_EPOCH``.
    - ``rack_id``, ``topics``: None if they are unchanged.
    - ``client_host``: the address of the client as seen by the broker, or "" for a client in the broker process.
    """

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topics: Sequence[str] | None = None
    client_id: str = ""
    client_host: str = ""


@frozen
class ShareGroupHeartbeatResponse(Response):
    """The epoch of the member, and its assignment by topic ID, or None if the assignment is unchanged."""

    error: ErrorCode
    message: str = ""
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: PartitionsById | None = None


@frozen
class ShareGroupDescribe(RequestFor["ShareGroupDescribeResponse"]):
    """Request the state and members of one share group."""

    group_id: str
    include_authorized_operations: bool = False


@frozen
class DescribedShareMember:
    """A member of a share group, with the partitions of which it gets records."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: Sequence[str]
    assignment: NamedAssignment


@frozen
class ShareGroupDescribeResponse(Response):
    """The description of a share group; ``state`` is Empty, Stable or Dead."""

    error: ErrorCode
    message: str = ""
    state: str = "Dead"
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: Sequence[DescribedShareMember] = ()


# --- records --------------------------------------------------------------------------


@frozen
class ShareFetch(RequestFor["ShareFetchResponse"]):
    """Acquire records of the partitions of a share session, and acknowledge others.

    - ``session_epoch``: 0 opens a session, -1 ends it, else the number of earlier requests in it.
    - ``max_records``: how many records to acquire; ``acquire_mode`` says whether batches may exceed it.
    - ``batch_size``: how many records to acquire with one lock, where the broker has a choice.
    - ``is_renewal``: whether ``partitions`` has renewals; then nothing is acquired, and all limits must be 0.
    - ``partitions``: the partitions that are new in the session or that have acknowledgements, with these.
    """

    group_id: str
    member_id: str
    session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    acquire_mode: int = BATCH_OPTIMIZED
    is_renewal: bool = False
    partitions: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]] = field(factory=dict)
    forgotten: Sequence[TopicIdPartition] = ()


@frozen
class SharedPartition:
    """What a fetch has acquired of a partition, and what has become of its acknowledgements."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    acknowledge_error: ErrorCode = ErrorCode.NONE
    acknowledge_message: str = ""
    blocks: Sequence[Block] = ()
    acquired: Sequence[AcquiredRecords] = ()
    leader_id: int = -1
    leader_epoch: int = -1


@frozen
class ShareFetchResponse(Response):
    """The acquired records; they are locked for ``lock_timeout_ms``."""

    error: ErrorCode
    message: str = ""
    lock_timeout_ms: int = 0
    partitions: Mapping[TopicIdPartition, SharedPartition] = field(factory=dict)


@frozen
class ShareAcknowledge(RequestFor["ShareAcknowledgeResponse"]):
    """Acknowledge records in a share session, or end it, which releases all that is still locked.

    ``session_epoch`` is -1 to end the session; ``is_renewal`` says whether ``partitions`` has renewals.
    """

    group_id: str
    member_id: str
    session_epoch: int
    is_renewal: bool = False
    partitions: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]] = field(factory=dict)


@frozen
class ShareAcknowledgeResponse(Response):
    """The error code and message for the acknowledgements of each partition; ``lock_timeout_ms`` as in a fetch."""

    error: ErrorCode
    message: str = ""
    lock_timeout_ms: int = 0
    errors: Mapping[TopicIdPartition, tuple[ErrorCode, str]] = field(factory=dict)


# --- offsets --------------------------------------------------------------------------


@frozen
class DescribeShareGroupOffsets(RequestFor["DescribeShareGroupOffsetsResponse"]):
    """Request the start offsets of a share group; None asks for all partitions."""

    group_id: str
    partitions: Sequence[TopicPartition] | None = None


@frozen
class SharedOffset:
    """Where a share group starts in a partition, or -1; ``lag`` is the number of records to be delivered, or -1."""

    start_offset: int
    leader_epoch: int = 0
    lag: int = -1
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@frozen
class DescribeShareGroupOffsetsResponse(Response):
    """The start offset of each partition."""

    error: ErrorCode
    message: str = ""
    offsets: Mapping[TopicPartition, SharedOffset] = field(factory=dict)


@frozen
class AlterShareGroupOffsets(RequestFor["AlterShareGroupOffsetsResponse"]):
    """Set the start offsets of a share group without members."""

    group_id: str
    offsets: Mapping[TopicPartition, int]


@frozen
class AlterShareGroupOffsetsResponse(Response):
    """The error code and message for each partition."""

    error: ErrorCode
    message: str = ""
    errors: Mapping[TopicPartition, tuple[ErrorCode, str]] = field(factory=dict)


@frozen
class DeleteShareGroupOffsets(RequestFor["DeleteShareGroupOffsetsResponse"]):
    """Delete the start offsets of topics from a share group without members."""

    group_id: str
    topics: Sequence[str]


class TopicOutcome(NamedTuple):
    """The error code and message for a part of a request."""

    error: ErrorCode
    message: str = ""


@frozen
class DeleteShareGroupOffsetsResponse(Response):
    """The error code and message for each topic."""

    error: ErrorCode
    message: str = ""
    errors: Mapping[str, TopicOutcome] = field(factory=dict)
