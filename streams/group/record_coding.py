"""The coding of a record of a consumer or streams group in the ``__consumer_offsets`` log, in Kafka's format.

A key has the number of its kind of record as its version; a value has a version of its own, which is 0.
"""

from collections.abc import Iterable, Set
from functools import cache
from itertools import groupby

from streams.group.wire import Reader, Writer
from streams.protocol.wire import Coder, Fields, Message, coder

_VALUE_VERSION = b"\x00\x00"


@cache
def _coder(message: Message) -> Coder:
    return coder(message, 0)


def key_of(version: int, group_id: str, member_id: str | None = None) -> bytes:
    """Return the key of a record of a group, or of a member."""
    writer = Writer().int16(version).string(group_id)
    return (writer if member_id is None else writer.string(member_id)).finish()


def key_parts(data: bytes, versions: Set[int], of_members: Set[int]) -> tuple[int, str, str] | None:
    """Decode a key: its version, group ID, and member ID or ""; None if its version is not one of ``versions``."""
    reader = Reader(data)
    version = reader.int16()
    if version not in versions:
        return None
    return version, reader.string(), reader.string() if version in of_members else ""


def encoded(value: Message, fields: Fields) -> bytes:
    """Return a value as bytes."""
    return _VALUE_VERSION + _coder(value).to_bytes(fields)


def decoded(value: Message, data: bytes) -> Fields:
    """Return the fields of a value.

    Raises:
        ValueError: the value has a version that is unknown here.
    """
    version = Reader(data).int16()
    if version:
        raise ValueError(f"{value.name}: version {version} is unknown, written by a later version")
    return _coder(value).whole(data, len(_VALUE_VERSION))


def rows_of(places: Iterable[tuple[bytes, int]]) -> list[Fields]:
    """Return partitions, given by topic ID and number, as the rows of a record: one for each topic."""
    return [
        {"topic_id": topic_id, "partitions": [number for _, number in found]}
        for topic_id, found in groupby(sorted(places), key=lambda place: place[0])
    ]


def places_of(rows: Iterable[Fields]) -> frozenset[tuple[bytes, int]]:
    """Return the partitions in the rows of a record."""
    return frozenset((row["topic_id"], number) for row in rows for number in row["partitions"])
