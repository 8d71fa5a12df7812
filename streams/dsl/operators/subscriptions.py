"""Messages of foreign-key joins: subscriptions and responses, their formats and partitions.

The formats are private to internal topics and the subscription store.  Subscription: mark (3), instruction (1),
partition (4), flag and hash of the left value, bytes of the left key.  Response: mark (3), partition (4),
flag and hash, bytes of the right value.  A store key is the length of the foreign key's
bytes (4), these bytes, and the left key's bytes, as in Kafka Streams.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from streams.core.errors import SerializationError
from streams.core.marks import Format, marked
from streams.core.serdes import BYTES, Serde
from streams.dsl.operators.portable import portable
from streams.state import TIMESTAMPED_KEY_VALUE, StoreSpec

HASH_BYTES = 16

_NO_HASH = b"\x00" * (HASH_BYTES + 1)
_HASH = b"\x01"
_SUBSCRIPTION = Struct(">bi")
_RESPONSE = Struct(">i")
_LENGTH = Struct(">i")

#: In Kafka Streams both begin with a version byte, 0 or 1, and a hash flag (SubscriptionWrapperSerde).
_REFERENCE_VERSIONS = (0x00, 0x01, 0x80, 0x81)


def _is_versioned(data: bytes) -> bool:
    return len(data) > 0 and data[0] in _REFERENCE_VERSIONS


SUBSCRIPTION = Format("subscription of a foreign-key join", "F", 1, "SubscriptionWrapper", _is_versioned)
RESPONSE = Format("response of a foreign-key join", "R", 1, "SubscriptionResponseWrapper", _is_versioned)


class Instruction(IntEnum):
    """The instruction of a subscription (Kafka Streams' ``SubscriptionWrapper.Instruction``)."""

    #: Delete the subscription, send no response.
    DELETE = 0
    #: Delete it and respond with None.
    DELETE_AND_PROPAGATE = 1
    #: Store it and respond with the right row or None.
    PROPAGATE_NULL_IF_NONE = 2
    #: Store it and respond only if there is a right row.
    PROPAGATE_IF_ANY = 3


class ForeignKeySubscription(NamedTuple):
    """A left row's subscription to a right row."""

    value_hash: bytes | None
    instruction: Instruction
    key: Any
    #: Partition of the left table, to which the response goes.
    partition: int


class Response(NamedTuple):
    """A right row's value, for one left row."""

    value_hash: bytes | None
    value: Any
    partition: int


def subscription_serde(key_serde: Serde[Any]) -> Serde[Any]:
    """Return the serde of subscriptions, given the serde of the left table's keys."""
    write_key, read_key = portable(key_serde)

    def write(value: ForeignKeySubscription) -> bytes:
        key = write_key(value.key)
        if key is None:
            raise SerializationError("the left table of a foreign-key join has a row without key")
        return _SUBSCRIPTION.pack(value.instruction, value.partition) + _hash_bytes(value.value_hash) + key

    def read(data: bytes, start: int) -> ForeignKeySubscription:
        instruction, partition = _SUBSCRIPTION.unpack_from(data, start)
        start += _SUBSCRIPTION.size
        key = read_key(data[start + HASH_BYTES + 1 :])
        return ForeignKeySubscription(_read_hash(data, start), Instruction(instruction), key, partition)

    return marked(SUBSCRIPTION, key_serde.name, write, read, is_immutable=key_serde.is_immutable)


def response_serde(value_serde: Serde[Any]) -> Serde[Any]:
    """Return the serde of responses, given the serde of the right table's values."""
    write_value, read_value = portable(value_serde)

    def write(response: Response) -> bytes:
        # Zero bytes mean no value: as in Kafka Streams, an empty string is read back as None.
        value = write_value(response.value) or b""
        return _RESPONSE.pack(response.partition) + _hash_bytes(response.value_hash) + value

    def read(data: bytes, start: int) -> Response:
        (partition,) = _RESPONSE.unpack_from(data, start)
        start += _RESPONSE.size
        value = read_value(data[start + HASH_BYTES + 1 :] or None)
        return Response(_read_hash(data, start), value, partition)

    return marked(RESPONSE, value_serde.name, write, read, is_immutable=value_serde.is_immutable)


def _hash_bytes(value_hash: bytes | None) -> bytes:
    return _NO_HASH if value_hash is None else _HASH + value_hash


def _read_hash(data: bytes, start: int) -> bytes | None:
    return data[start + 1 : start + 1 + HASH_BYTES] if data[start : start + 1] == _HASH else None


def subscriber_prefix(foreign_key_serde: Serde[Any]) -> Callable[[Any], bytes]:
    """Return the function from a foreign key to the prefix of its subscribers' store keys."""
    serialize = foreign_key_serde.serialize

    def prefix(foreign_key: Any) -> bytes:
        data = serialize(foreign_key)
        assert data is not None
        return _LENGTH.pack(len(data)) + data

    return prefix


def subscriber_key(foreign_key_serde: Serde[Any], key_serde: Serde[Any]) -> Callable[[Any, Any], bytes]:
    """Return the function from foreign key and left key to the store key."""
    prefix, serialize = subscriber_prefix(foreign_key_serde), key_serde.serialize

    def place(foreign_key: Any, key: Any) -> bytes:
        data = serialize(key)
        assert data is not None
        return prefix(foreign_key) + data

    return place


def subscription_store(
    name: str, key_serde: Serde[Any], *, has_changelog: bool = True, is_persistent: bool | None = None
) -> StoreSpec:
    """Return the store builder for subscriptions; ``key_serde`` is the serde of the left table's keys."""
    return StoreSpec(
        name,
        TIMESTAMPED_KEY_VALUE,
        BYTES,
        subscription_serde(key_serde),
        is_persistent=is_persistent,
        has_caching=False,
        has_changelog=has_changelog,
    )


def subscription_partition(topic: str, key: Any, value: Any, partitions: int) -> int | None:
    """Return the partition of a subscription: by its foreign key; without one, the left row's partition."""
    return value.partition % partitions if key is None and value is not None else None


def response_partition(topic: str, key: Any, value: Any, partitions: int) -> int | None:
    """Return the partition of a response: the left row's partition."""
    return None if value is None else value.partition % partitions
