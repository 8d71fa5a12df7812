"""A sink that posts the records of a topic to an HTTP server, at least once (extra ``http``).

Of the other packages, this module imports only ``core`` and ``values``; httpx is imported on use.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from attrs import evolve

from streams.connect.buffered_sink import BufferedSink
from streams.connect.errors import ConnectError
from streams.connect.http.http_client import PASSING, QUOTED, HttpUnavailableError, httpx_for, url_of
from streams.connect.protocol import Guarantee, SinkBlock
from streams.core.errors import ConfigError
from streams.core.serdes.serdes import Serde
from streams.core.topic import Topic
from streams.values import form_of

if TYPE_CHECKING:
    from httpx import Client


class HttpSink(BufferedSink):
    """Posts the records of a topic to an HTTP server, at least once.

    A request has records of one partition, in ascending order of offset, and the header ``Idempotency-Key`` with
    connector, topic, partition, first and last offset.  A request of ``batch_records`` records is the same whenever it
    is sent again, by whatever worker; a smaller one at the end of a partition may come again within a larger one.  So a
    server that stores these keys can still receive a record twice: partition and offset identify a record.

    The body is JSON: ``{"topic": ..., "partition": ..., "records": [{"offset": ..., "timestamp": ..., "key": ...,
    "value": ...}]}``, with keys and values as in files, epoch milliseconds, and ``headers`` if a record has any.

    The statuses 408, 409, 425, 429, 500, 502, 503 and 504, and connection errors, are retried by the worker with
    backoff; any other status than 2xx ends the worker.

    Args:
        url: where to send the requests.
        method: "POST" or "PUT".
        headers: further headers, such as ``Authorization``.
        batch_records: the maximum number of records of a request.
        timeout_ms: how long connecting, sending and each wait for data of the answer may take, in milliseconds.
        encode: a function that makes the body from a block; by default the JSON above.
        content_type: the type of the body.

    Raises:
        ConfigError: httpx is not installed, or an argument is invalid.
    """

    guarantee = Guarantee.AT_LEAST_ONCE

    def __init__(
        self,
        url: str,
        *,
        method: Literal["POST", "PUT"] = "POST",
        headers: dict[str, str] | None = None,
        batch_records: int = 500,
        timeout_ms: int = 30_000,
        encode: Callable[[SinkBlock[Any, Any]], bytes] | None = None,
        content_type: str = "application/json",
    ) -> None:
        super().__init__()
        self._httpx = httpx_for("HttpSink")
        self._url = url_of(self._httpx, url, "HttpSink")
        if method not in ("POST", "PUT"):
            raise ConfigError(f"{self!r}: method is 'POST' or 'PUT', not {method!r}")
        if batch_records < 1 or timeout_ms < 1:
            raise ConfigError(f"{self!r}: batch_records and timeout_ms are at least 1")
        self._method = method
        self._headers = {**(headers or {}), "Content-Type": content_type}
        self._batch_records = batch_records
        self._timeout_ms = timeout_ms
        self._encode = encode or json_body
        self._client: Client | None = None

    def __repr__(self) -> str:
        # A query can have a token.
        return f"HttpSink(url='{self._url.scheme}://{self._url.netloc.decode()}{self._url.path}')"

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error is a connection error, or a response after which the same request may succeed."""
        return isinstance(error, HttpUnavailableError | self._httpx.TransportError)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- inside -----------------------------------------------------------------------

    def _opened(self, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        """Return no positions, so the worker starts at the committed offsets of its group."""
        if self._client is None:
            self._client = self._httpx.Client(timeout=self._timeout_ms / 1_000, headers=self._headers)
        return {}

    def _commit(self, blocks: Sequence[SinkBlock[Any, Any]], moves: Mapping[int, int]) -> None:
        """Send the blocks, one request after the other.

        Raises:
            ConnectError: the server rejects a request.
        """
        for block in blocks:
            for part in _parts(block, self._batch_records):
                self._send(part)

    def _send(self, block: SinkBlock[Any, Any]) -> None:
        assert self._client is not None, "open comes first"
        place = f"{block.topic.name}/{block.partition}/{block.offsets[0]}-{block.offsets[-1]}"
        answer = self._client.request(
            self._method,
            self._url,
            content=self._encode(block),
            headers={"Idempotency-Key": f"{self._connector}/{place}"},
        )
        if answer.is_success:
            return
        said = f"{self!r}: the server answers {answer.status_code} to {place}: {answer.text[:QUOTED].strip()}"
        raise HttpUnavailableError(said) if answer.status_code in PASSING else ConnectError(said)


def _parts(block: SinkBlock[Any, Any], size: int) -> Iterator[SinkBlock[Any, Any]]:
    """Yield a block in parts whose offsets begin at multiples of ``size``, so that a retry makes the same parts."""
    at = 0
    for _, offsets in groupby(block.offsets, lambda offset: offset // size):
        part = slice(at, at + len(list(offsets)))
        yield evolve(
            block,
            offsets=block.offsets[part],
            keys=block.keys[part],
            values=block.values[part],
            timestamps_ms=block.timestamps_ms[part],
            headers=None if block.headers is None else block.headers[part],
            next_offset=block.offsets[part.stop - 1] + 1,
        )
        at = part.stop


def json_body(block: SinkBlock[Any, Any]) -> bytes:
    """Return the records of a block as the JSON that ``HttpSink`` sends."""
    topic = block.topic
    plain = form_of(None).to_json
    keys = _texts(topic.key_serde, block.keys)
    values = _texts(topic.value_serde, block.values)
    headers = [()] * len(block) if block.headers is None else block.headers
    records = [
        b'{"offset":%d,"timestamp":%d,"key":%b,"value":%b%b}'
        % (
            offset,
            at,
            key,
            value,
            b',"headers":[%b]' % b",".join(b"[%b,%b]" % (plain(name.encode()), plain(data)) for name, data in pairs)
            if pairs
            else b"",
        )
        for offset, at, key, value, pairs in zip(block.offsets, block.timestamps_ms, keys, values, headers, strict=True)
    ]
    # The names of topics have no characters that JSON escapes.
    start = f'{{"topic":"{topic.name}","partition":{block.partition},"records":['.encode()
    return start + b",".join(records) + b"]}"


def _texts(serde: Serde[Any], column: Sequence[Any]) -> list[bytes]:
    to_json = form_of(serde).to_json
    return [b"null" if data is None else to_json(data) for data in serde.serialize_all(column)]
