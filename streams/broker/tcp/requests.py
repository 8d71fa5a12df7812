"""What is answered to a request: at once, or when the machine has the answer.

Between a ``connection``, which keeps the order, and the machine.  A request that is hot goes through ``records``,
one for which the machine has no message through ``administration``, all others through ``protocol.wire.mapping``.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from attrs import define, evolve, field

from streams.broker.fetches import WaitingFetch
from streams.broker.limits import FETCH_BYTES, REQUEST_ITEMS
from streams.broker.service import Broker
from streams.broker.tcp import administration, operations, records
from streams.broker.tcp.authentication import AUTHENTICATE, HANDSHAKE
from streams.protocol.messages import (
    ErrorCode,
    JoinGroup,
    OffsetCommit,
    OffsetCommitResponse,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from streams.protocol.wire import (
    API_VERSIONS,
    APIS,
    Fields,
    RequestHeader,
    UnsupportedVersionError,
    api_ranges,
    classic_versions,
    encode_response,
    request_coder,
)
from streams.protocol.wire.mapping import Serving, answered, asked, described_cluster

PRODUCE: Final = 0
FETCH: Final = 1
DESCRIBE_CLUSTER: Final = 60

#: Flexible versions that say what the classic ones cannot.
_BEYOND_CLASSIC: Final[Mapping[int, tuple[int, int]]] = {
    # The offset of the highest timestamp (KIP-734), and what there is of tiers (KIP-405, KIP-1005).
    2: (1, 9),
    # Topics by their ids, and what a topic is that was just made (KIP-516, KIP-525).
    3: (0, 12),
    19: (2, 7),
    20: (1, 6),
    # A note too long for the classic string is answered, where clients would not get it onto the wire.
    8: (2, 8),
    # What applications need for exactly-once (KIP-447): offsets that are stable, and commits in a transaction that
    # say of which generation of the group they are.
    9: (1, 8),
    28: (0, 3),
    # Groups by state and type (KIP-518, KIP-848).
    16: (0, 5),
    # A transactional producer goes on in its next epoch after an error (KIP-360).
    22: (0, 4),
    # Metadata of version 11 has no place for what may be done to the cluster (KIP-700).
    60: (0, 0),
}
#: Lowest and highest version by API key of what is served.
VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    **classic_versions(),
    **_BEYOND_CLASSIC,
    **{key: APIS[key].versions for key in operations.ACTIONS},
}
#: What a client may ask for before it has proved who it is.
OPEN_TO_ALL: Final = frozenset({API_VERSIONS, HANDSHAKE, AUTHENTICATE})

_ACTIONS: Final[Mapping[int, administration.Action]] = {
    23: administration.offsets_for_leader_epochs,
    32: administration.describe_configs,
    33: administration.alter_configs,
    44: administration.incremental_alter_configs,
    47: administration.delete_offsets,
    **operations.ACTIONS,
}

#: Returns the answer's message once all responses are there.
Finish = Callable[[Sequence[Any]], Fields]


@define(eq=False)
class Exchange:
    """One request and its answer, which may come later and from any thread, under the broker's lock.

    ``on_done`` is called if it was not there when ``ask`` returned.
    """

    header: RequestHeader
    message: Fields
    on_done: Callable[["Exchange"], None]
    is_answered: bool = True
    #: The answer in Kafka's words; None while it is not there.
    answer: Fields | None = field(default=None, init=False)
    #: What the machine has of a fetch that waits.
    waiting: WaitingFetch | None = field(default=None, init=False)
    _responses: list[Any] = field(factory=list, init=False)
    _missing: int = field(default=0, init=False)
    _finish: Finish | None = field(default=None, init=False)
    _is_asking: bool = field(default=True, init=False)

    def expect(self, count: int, finish: Finish) -> None:
        """Say how many responses make the answer, and how."""
        self._responses, self._missing, self._finish = [None] * count, count, finish

    def take(self, index: int, response: Any) -> None:
        """Take one response."""
        self._responses[index] = response
        self._missing -= 1
        if not self._missing and not self._is_asking:
            self.on_done(self)

    def end_asking(self) -> bool:
        """Note that ``ask`` returns, still under the lock; whether all responses are there."""
        self._is_asking = False
        return not self._missing

    def complete(self) -> None:
        """Make the answer of the responses."""
        assert self._finish is not None
        self.answer = self._finish(self._responses)

    def encoded(self) -> list[bytes]:
        """Return the answer's bytes.

        Raises:
            EncodingError: the answer has no place in this version.
        """
        assert self.answer is not None
        header = self.header
        return encode_response(header.api_key, header.api_version, header.correlation_id, self.answer)


def read_message(header: RequestHeader, frame: bytes, position: int) -> Fields:
    """Return what a request asks for.

    Bytes behind it are passed over, as Kafka does: librdkafka's Metadata for all topics has three of them from
    version 9 on.

    Raises:
        MalformedError: the bytes are damaged, or ask for more at once than is taken.
        UnsupportedVersionError: it is not served.
    """
    low, high = VERSIONS.get(header.api_key, (0, -1))
    if not low <= header.api_version <= high:
        raise UnsupportedVersionError(
            f"{header.api} version {header.api_version} is not served",
            api_key=header.api_key,
            version=header.api_version,
        )
    message, _ = request_coder(header.api_key, header.api_version).decode(frame, position, REQUEST_ITEMS)
    return message


def versions_answer() -> Fields:
    """Return what is served (ApiVersions)."""
    return {"error_code": 0, "api_keys": api_ranges(VERSIONS)}


def asking(
    exchange: Exchange, serving: Serving, host: str = "", fetch_bytes: int = FETCH_BYTES
) -> Callable[[Broker, int], None]:
    """Return what asks the machine; when it returns, the exchange has its answer or knows what it waits for.

    ``host`` is where the client is, in Kafka's form: "/127.0.0.1"; ``fetch_bytes`` bounds the answer to a fetch.

    Raises:
        UnsupportedVersionError: the API has no message of ours in this version.
    """
    header, message = exchange.header, exchange.message
    key, version = header.api_key, header.api_version
    if key == PRODUCE:
        exchange.is_answered = message["acks"] != 0
        return partial(_ask_produce, exchange)
    if key == DESCRIBE_CLUSTER:
        exchange.answer = described_cluster(message, serving)
        return _ask_nothing
    if key == FETCH:
        return partial(_ask_fetch, exchange, fetch_bytes)
    action = _ACTIONS.get(key)
    if action is not None:
        return partial(_act, exchange, action)
    incoming = asked(key, version, message, header.client_id)
    exchange.is_answered = incoming.is_answered
    exchange.expect(len(incoming.requests), lambda responses: answered(incoming, responses, serving))
    requests = [
        evolve(asked, client_host=host) if isinstance(asked, JoinGroup) else asked for asked in incoming.requests
    ]
    return partial(_ask_each, exchange, requests)


def _ask_nothing(machine: Broker, now_ms: int) -> None:
    """The answer is there already."""


def _ask_produce(exchange: Exchange, machine: Broker, now_ms: int) -> None:
    exchange.answer = records.produce(machine, now_ms, exchange.message, exchange.header.api_version)


def _act(exchange: Exchange, action: administration.Action, machine: Broker, now_ms: int) -> None:
    exchange.answer = action(machine, now_ms, exchange.message)


def _ask_fetch(exchange: Exchange, most_bytes: int, machine: Broker, now_ms: int) -> None:
    message, version = exchange.message, exchange.header.api_version
    if records.names_session(message):
        exchange.answer = records.no_session()
        return
    isolation_level = message["isolation_level"]
    exchange.expect(1, lambda responses: records.fetch_answer(responses[0], isolation_level, version))
    fetch = records.fetch_of(message, most_bytes)
    # It may wait for long: what it asks for is kept once.
    exchange.message = {}
    exchange.waiting = machine.fetch_encoded(fetch, now_ms, partial(exchange.take, 0))


def _ask_each(exchange: Exchange, requests: Sequence[Any], machine: Broker, now_ms: int) -> None:
    for index, request in enumerate(requests):
        take = partial(exchange.take, index)
        if isinstance(request, OffsetCommit | TxnOffsetCommit):
            _ask_commit(request, machine, now_ms, take)
        else:
            machine.handle(request, now_ms, take)


def _ask_commit(
    request: OffsetCommit | TxnOffsetCommit, machine: Broker, now_ms: int, take: Callable[[Any], None]
) -> None:
    """Commit for partitions that there are: groups, which keep the offsets, know no topics."""
    unknown = [partition for partition in request.offsets if partition not in machine.topics.logs]
    if not unknown:
        machine.handle(request, now_ms, take)
        return
    errors = dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    known = {partition: offset for partition, offset in request.offsets.items() if partition not in errors}

    def take_all(response: Any) -> None:
        take(evolve(response, errors={**response.errors, **errors}))

    if known:
        machine.handle(evolve(request, offsets=known), now_ms, take_all)
    else:
        take_all(OffsetCommitResponse({}) if isinstance(request, OffsetCommit) else TxnOffsetCommitResponse({}))
