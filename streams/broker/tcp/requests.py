"""The exchange of one request and its response between a client and the broker.

A request is decoded, passed to the broker as messages, and answered with the encoded responses.  ``connection`` keeps
the responses in order.  ``protocol.wire.mapping`` translates requests and responses in the same way for all APIs,
except the session APIs, which the connection handles itself.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import define, evolve, field

from streams.broker.features import VERSIONS
from streams.broker.fetches import WaitingFetch
from streams.broker.logs.limits import FETCH_MIN_BYTES, REQUEST_ITEMS
from streams.broker.service import Broker
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import Fetch, ProduceResponse
from streams.protocol.request import ClientInformation, Request, Response
from streams.protocol.wire import (
    RequestHeader,
    UnsupportedVersionError,
    encode_response,
    request_coder,
)
from streams.protocol.wire.mapping import AnyIncoming, Serving, build_response, parse_request


@define(eq=False)
class Exchange:
    """One client request and its response.

    The broker may complete the response later and from any thread, under the broker lock.  ``on_done`` is called only
    if the response is completed after ``submit`` has returned.
    """

    header: RequestHeader
    incoming: AnyIncoming
    on_done: Callable[["Exchange"], None]
    #: The waiting fetch in the broker that belongs to this request.
    waiting: WaitingFetch | None = field(default=None, init=False)
    _responses: list[Any] = field(init=False)
    _missing: int = field(init=False)
    _is_submitting: bool = field(default=True, init=False)

    def __attrs_post_init__(self) -> None:
        self._missing = len(self.incoming.requests)
        self._responses = [None] * self._missing

    @property
    def requests(self) -> Sequence[Request]:
        """The message objects of the request."""
        return self.incoming.requests

    def submit(self, fetch_bytes: int, machine: Broker, now_ms: int) -> bool:
        """Pass the request to the broker, under the broker lock; return whether all responses are complete.

        ``fetch_bytes`` limits the size of a fetch response in bytes.
        """
        for index, request in enumerate(self.requests):
            respond = partial(self.take, index)
            if isinstance(request, Fetch):
                self.waiting = machine.fetch(_bounded(request, fetch_bytes), now_ms, respond)
            else:
                machine.handle_remote(request, now_ms, respond)
        self._is_submitting = False
        return not self._missing

    def take(self, index: int, response: Response) -> None:
        """Store the response to the message at ``index``; after the last one, the exchange is complete."""
        self._responses[index] = response
        self._missing -= 1
        if not self._missing and not self._is_submitting:
            self.on_done(self)

    @property
    def has_failed(self) -> bool:
        """Whether a produce request was rejected for any partition."""
        return bool(self.incoming.refused) or any(
            row.error is not ErrorCode.NONE
            for response in self._responses
            if isinstance(response, ProduceResponse)
            for row in response.partitions.values()
        )

    def encoded(self, serving: Serving) -> list[bytes]:
        """Return the encoded response as chunks of bytes.

        Raises:
            EncodingError: the response cannot be represented in this API version.
        """
        header = self.header
        message = build_response(self.incoming, self._responses, serving)
        return encode_response(header.api_key, header.api_version, header.correlation_id, message)


def _bounded(request: Fetch, most_bytes: int) -> Fetch:
    if request.max_bytes <= most_bytes and request.min_bytes <= min(FETCH_MIN_BYTES, most_bytes):
        return request
    return evolve(
        request,
        min_bytes=min(request.min_bytes, FETCH_MIN_BYTES, most_bytes),
        max_bytes=min(request.max_bytes, most_bytes),
    )


def read_request(header: RequestHeader, frame: bytes, position: int, client: ClientInformation) -> AnyIncoming:
    """Decode the body of a request of a client.

    Bytes after the request are ignored, as in Kafka: from version 9 on, librdkafka sends three extra bytes with a
    Metadata request for all topics.

    Raises:
        MalformedError: the bytes are damaged, or exceed the limits of one request.
        UnsupportedVersionError: the API or version is not served.
    """
    low, high = VERSIONS.get(header.api_key, (0, -1))
    if not low <= header.api_version <= high:
        raise UnsupportedVersionError(
            f"{header.api} version {header.api_version} is not served",
            api_key=header.api_key,
            version=header.api_version,
        )
    message, _ = request_coder(header.api_key, header.api_version).decode(frame, position, REQUEST_ITEMS)
    return parse_request(header.api_key, header.api_version, message, client)
