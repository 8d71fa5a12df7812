"""What a translation between our messages and Kafka's is, and the helpers that all of them share.

Ours (``protocol.messages``) is what clients, the group core and the broker speak in process; Kafka's are
dicts as the tables describe them.  Imports core, messages and the codec's vocabulary.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Generic, TypeAlias, TypeVar

from attrs import field, frozen

from streams.core.errors import BrokerError
from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode, error_code
from streams.protocol.messages import Request, Response
from streams.protocol.wire.fields import Fields

Q = TypeVar("Q")
R = TypeVar("R")
V = TypeVar("V")

#: Why a part of a request was refused before the broker saw it.
Refusal: TypeAlias = tuple[ErrorCode, str]

#: Time within which a broker is to answer what takes time, where our message says none; Kafka's default.
REQUEST_TIMEOUT_MS = 30_000
#: Authorized operations that were not asked for.
NO_OPERATIONS = -(2**31)


class Operation(IntEnum):
    """What can be done to a resource (Kafka's ``AclOperation``)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def operations_bits(*operations: Operation) -> int:
    """Return a set of operations as messages have it: a bit for each (KIP-430)."""
    return sum(1 << operation for operation in operations)


@frozen
class Serving:
    """What a broker says of itself; ``addresses`` are (host, port) by node id, as clients reach them."""

    cluster_id: str
    addresses: Mapping[int, tuple[str, int]]
    controller_id: int = 0


@frozen
class Incoming(Generic[Q]):
    """A request that has come: what was asked, in Kafka's words and in ours.

    One of Kafka's may be several of ours, which are answered one by one, or none where all of it is
    refused already; ``refused`` says why by topic partition or name.
    """

    api_key: int
    version: int
    message: Fields
    requests: Sequence[Q]
    refused: Mapping[Any, Refusal] = field(factory=dict)

    @property
    def is_answered(self) -> bool:
        """Whether the client waits for a response: not for a produce request with acks 0."""
        return not (self.api_key == 0 and self.message["acks"] == 0)


#: What our request is read as: requests, and what of it was refused.
Asked: TypeAlias = tuple[Sequence[Q], Mapping[Any, Refusal]]


@frozen
class Translation(Generic[Q, R]):
    """The two messages of one API, both ways.

    - ``versions``: those in which all that our messages need has a place or a way around.
    - ``ask``, ``answer``: the client's side; ``answer`` gets the request that was sent.
    - ``asked``, ``answered``: the broker's side; ``asked`` gets the client id, ``answered`` one response for
      each of the requests.
    """

    api_key: int
    request: type[Q]
    response: type[R]
    versions: tuple[int, int]
    ask: Callable[[Q, int], Fields]
    answer: Callable[[Fields, int, Q], R]
    asked: Callable[[Fields, int, str], Asked[Q]]
    answered: Callable[[Incoming[Q], Sequence[R], Serving], Fields]


#: A translation of any of our messages.
AnyTranslation: TypeAlias = Translation[Any, Any]
AnyIncoming: TypeAlias = Incoming[Request]
AnyResponses: TypeAlias = Sequence[Response]


def one(request: Q) -> Asked[Q]:
    """Return what is one request, and nothing of it refused."""
    return (request,), {}


def by_topic(values: Mapping[TopicPartition, V]) -> dict[str, list[tuple[int, V]]]:
    """Return (partition, value) by topic, in order of first appearance."""
    topics: dict[str, list[tuple[int, V]]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, []).append((partition, value))
    return topics


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition numbers by topic, in order of first appearance."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def each_partition(
    topics: Iterable[Fields], name: str, partitions: str, index: str
) -> Iterable[tuple[TopicPartition, Fields]]:
    """Yield every partition of a list of topics; the words are the names of the fields."""
    for topic in topics:
        for partition in topic[partitions]:
            yield TopicPartition(topic[name], partition[index]), partition


def code(fields: Fields, name: str = "error_code") -> ErrorCode:
    """Return the error code of a message."""
    return error_code(fields[name])


def fail_on(fields: Fields, what: str) -> None:
    """Raise what stands for the error of a whole response, which our message has no place for.

    Raises:
        BrokerError: there is an error.
    """
    found = code(fields)
    if found is not ErrorCode.NONE:
        raise BrokerError(f"{what}: {found.name} ({fields['error_code']})", code=found)


def text(message: str | None) -> str:
    """Return an error's message; none is empty."""
    return message or ""
