"""Subscriptions and assignments of consumers: Kafka's ConsumerProtocol v0 to v3.

This is the embedded protocol of groups with type ``consumer``, which is opaque to the coordinator.
Of the other packages, this module imports only ``core``.
"""

import struct
from collections.abc import Sequence, Set

from attrs import field, frozen

from streams.core.blocks.records import TopicPartition
from streams.core.errors import SerializationError
from streams.group.assignment.wire import Reader, Writer

#: Protocol type of groups whose descriptions have the subscriptions and partitions of their members.
CONSUMER_PROTOCOL_TYPE = "consumer"
#: Protocol type that streams groups (KIP-1071) are listed with.
STREAMS_PROTOCOL_TYPE = "streams"

_VERSION = 3


@frozen
class Subscription:
    """The subscription of a member.

    ``owned`` are the partitions assigned in ``generation``, which is -1 if the member has no assignment; ``user_data``
    belongs to the assignor.  ``rack_id`` is the rack of the member (KIP-881), or None.
    """

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = -1
    user_data: bytes | None = None
    group_instance_id: str | None = None
    rack_id: str | None = None


@frozen
class Assignment:
    """The assignment of a member; ``user_data`` belongs to the assignor."""

    partitions: Sequence[TopicPartition] = field(default=())
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode a subscription, without the group instance id, which is a field of JoinGroup."""
    writer = Writer().int16(_VERSION).int32(len(subscription.topics))
    for topic in subscription.topics:
        writer.string(topic)
    writer.nullable_bytes(subscription.user_data).partitions(subscription.owned)
    return writer.int32(subscription.generation).nullable_string(subscription.rack_id).finish()


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """Decode a subscription of any version.

    Raises:
        SerializationError: ``data`` is not a subscription.
    """
    try:
        reader = Reader(data)
        version = reader.int16()
        topics = tuple(reader.string() for _ in range(reader.int32()))
        user_data = reader.nullable_bytes()
        owned = reader.partitions() if version >= 1 else ()
        generation = reader.int32() if version >= 2 else -1
        rack_id = reader.nullable_string() if version >= 3 else None
    except (struct.error, UnicodeDecodeError) as error:
        raise SerializationError(
            f"subscription of a group member, {len(data)} bytes: {error}; is another kind of client in this group?"
        ) from error
    return Subscription(topics, owned, generation, user_data, group_instance_id, rack_id)


def encode_assignment(assignment: Assignment) -> bytes:
    """Encode an assignment."""
    return Writer().int16(_VERSION).partitions(assignment.partitions).nullable_bytes(assignment.user_data).finish()


def decode_assignment(data: bytes) -> Assignment:
    """Decode an assignment of any version; empty ``data`` is an empty assignment.

    Raises:
        SerializationError: ``data`` is not an assignment.
    """
    if not data:
        return Assignment()
    try:
        reader = Reader(data)
        reader.int16()
        return Assignment(reader.partitions(), reader.nullable_bytes())
    except (struct.error, UnicodeDecodeError) as error:
        raise SerializationError(
            f"assignment of a group member, {len(data)} bytes: {error}; is another kind of client in this group?"
        ) from error


def encode_owned(partitions: Sequence[TopicPartition], number: int) -> bytes:
    """Encode a sticky assignor's last assignment and generation (StickyAssignorUserData v1)."""
    return Writer().partitions(partitions).int32(number).finish()


def decode_owned(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """Decode a sticky assignor's last assignment and generation; undecodable data means no assignment (-1)."""
    try:
        reader = Reader(data)
        return reader.partitions(), reader.int32()
    except (struct.error, UnicodeDecodeError):
        # The data has another version; the member loses stickiness once.
        return (), -1


def encode_round(number: int) -> bytes:
    """Encode the generation of a sticky assignment, which the leader sends to the members' assignors."""
    return Writer().int32(number).finish()


def decode_round(data: bytes | None) -> int:
    """Decode the generation of a sticky assignment, or return 0 if the leader did not send it."""
    return 0 if data is None or len(data) != 4 else Reader(data).int32()


def is_concerned(assignment: bytes, joined_with: Sequence[bytes], partitions: Set[TopicPartition]) -> bool:
    """Whether any of ``partitions`` is assigned to a consumer or one of its owned partitions; True if not decodable."""
    try:
        assigned = decode_assignment(assignment).partitions
        claimed = [decode_subscription(data).owned for data in joined_with]
    except SerializationError:
        return True
    return any(partition in partitions for owned in (assigned, *claimed) for partition in owned)


def is_to_revoke(joined_with: bytes, assignment: bytes) -> bool:
    """Whether an assignment lacks partitions that a consumer said it owns when it joined; False if not decodable."""
    try:
        return not set(decode_subscription(joined_with).owned) <= set(decode_assignment(assignment).partitions)
    except SerializationError:
        return False
