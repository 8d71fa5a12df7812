"""The interface for conversions between message classes and Kafka's requests and responses, with common helpers.

Clients, the group core and the broker use the message classes (``protocol.messages``). Kafka's requests and responses
are dicts with the fields of each API and version.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from attrs import field, frozen

from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode, error_code
from streams.protocol.request import ClientInformation, Request
from streams.protocol.schema import Api, Fields
from streams.protocol.wire.errors import UnsupportedVersionError

Q = TypeVar("Q")
R = TypeVar("R")
V = TypeVar("V")

#: The error for a part of a request that was rejected before it reached the broker.
Refusal: TypeAlias = tuple[ErrorCode, str]


@frozen
class Serving:
    """The cluster that a broker presents to clients; ``addresses`` has the advertised (host, port) by broker ID."""

    cluster_id: str
    addresses: Mapping[int, tuple[str, int]]
    controller_id: int = 0


class RequestParts(NamedTuple, Generic[Q]):
    """A decoded request as message objects: one, several, or none if all parts are rejected.

    ``refused`` has the errors of rejected parts by topic partition or name; if parts may be rejected, ``order`` has all
    parts in the order of the request.  ``is_answered`` is False for a produce request with acks=0.
    """

    requests: Sequence[Q]
    refused: Mapping[Any, Refusal] = MappingProxyType({})
    order: Sequence[Any] = ()
    is_answered: bool = True


class Incoming(NamedTuple, Generic[Q]):
    """A client request received by a broker; each of ``requests`` needs a response.  See ``RequestParts``."""

    api_key: int
    version: int
    requests: Sequence[Q]
    refused: Mapping[Any, Refusal]
    order: Sequence[Any]
    is_answered: bool


@frozen
class Translation(Generic[Q, R]):
    """The translation of the request and the response of one API, in both directions.

    - ``build_request``, ``parse_response``: the client side; the latter is passed the request that was sent.
    - ``parse_request``, ``build_response``: the broker side; the latter is passed one response for each request.
    - ``limit``: the version in which a request is sent, given the highest that both sides support.
    """

    api: Api
    build_request: Callable[[Q, int], Fields]
    parse_response: Callable[[Fields, int, Q], R]
    parse_request: Callable[[Fields, int, ClientInformation], RequestParts[Q]]
    build_response: Callable[[Incoming[Q], Sequence[R], Serving], Fields]
    limit: Callable[[Q, int], int] = field(default=lambda request, version: version)


def limited(first: int, is_second: Callable[[Any], bool]) -> Callable[[Any, int], int]:
    """Return the ``limit`` of an API that from version ``first`` on means transaction version 2 (KIP-890)."""

    def limit(request: Any, version: int) -> int:
        if not is_second(request):
            return min(version, first - 1)
        if version < first:
            raise UnsupportedVersionError(
                f"{type(request).__name__}: the cluster has finalized transaction.version 2, which needs version "
                f"{first}, but the broker supports {version} at most; upgrade it, or lower the feature",
                api_key=-1,
                version=version,
            )
        return version

    return limit


#: A translation of any message class.
AnyTranslation: TypeAlias = Translation[Any, Any]
AnyIncoming: TypeAlias = Incoming[Request]


def values_by_topic(values: Mapping[TopicPartition, V]) -> dict[str, list[tuple[int, V]]]:
    """Group values by topic or topic ID, as (partition, value) pairs; topics are in order of first appearance."""
    topics: dict[Any, list[tuple[int, V]]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, []).append((partition, value))
    return topics


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partition numbers by topic or topic ID; topics are in order of first appearance."""
    topics: dict[Any, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def each_partition(
    topics: Iterable[Fields], name: str, partitions: str, index: str
) -> Iterable[tuple[TopicPartition, Fields]]:
    """Yield each partition in an array of topics, with its fields.

    ``name``, ``partitions`` and ``index`` are the names of the fields with the topic name, the partitions of a topic,
    and the partition number.
    """
    for topic in topics:
        for partition in topic[partitions]:
            yield TopicPartition(topic[name], partition[index]), partition


def code(fields: Fields, name: str = "error_code") -> ErrorCode:
    """Return the error code in the field ``name`` of a message."""
    return error_code(fields[name])
