"""The client for requests to other instances: httpx over persistent connections.

Of its own package, this module imports no other module.
"""

import asyncio

import httpx
from attrs import define, field

from streams.core.errors import ConfigError, StreamsError
from streams.core.http.address import parse_address

#: Timeout of a connection to another instance, in seconds.
CONNECT_S = 2.0
#: Timeout of a request to another instance, in seconds.
ANSWER_S = 10.0
#: Largest body of a response in bytes.
MAX_ANSWER_BYTES = 256 << 20
#: The name that httpx gives the event of a new connection.
_CONNECTED = "connection.connect_tcp.complete"
#: Errors of a connection that the other side has closed.
_CLOSED = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


class PeerError(StreamsError):
    """Another instance cannot be reached, does not respond in time, or sends an invalid response."""


def _client() -> httpx.AsyncClient:
    # Instances speak plain HTTP: no certificates are loaded.  Proxies of the environment are for other hosts.
    return httpx.AsyncClient(trust_env=False, verify=False, limits=httpx.Limits(max_connections=None))


@define(eq=False)
class Peers:
    """Connections to other instances by ``host:port``; all calls must come from one event loop."""

    #: The token that each request sends, if the instances need one.
    token: str | None = None
    _client: httpx.AsyncClient = field(init=False, factory=_client)

    async def send(
        self, method: str, endpoint: str, path: str, body: bytes = b"", timeout_s: float | None = None
    ) -> tuple[int, bytes]:
        """Send a request, and return the status and body of the response; ``timeout_s`` is ``ANSWER_S`` by default.

        If a connection of an earlier request is closed before the response, the request is repeated once, as the other
        side may have closed it while it was idle; since it may also have read the request, this has to be idempotent.

        Raises:
            PeerError: the instance cannot be reached, does not respond in time, or sends an invalid response; or the
                connections are closed.
        """
        events: set[str] = set()
        try:
            async with asyncio.timeout(ANSWER_S if timeout_s is None else timeout_s):
                try:
                    return await self._exchange(method, endpoint, path, body, events)
                except _CLOSED:
                    if _CONNECTED in events:
                        raise
                    return await self._exchange(method, endpoint, path, body, events)
        except (TimeoutError, httpx.TimeoutException):
            raise PeerError(f"the instance at {endpoint} has not answered in time") from None
        except (httpx.HTTPError, httpx.InvalidURL, ConfigError, ValueError) as error:
            raise PeerError(f"the instance at {endpoint} cannot be asked: {error or type(error).__name__}") from None

    async def _exchange(
        self, method: str, endpoint: str, path: str, body: bytes, events: set[str]
    ) -> tuple[int, bytes]:
        """Exchange a request for its response, and add to ``events`` those of the connection, by httpx's names."""

        async def trace(event: str, _details: object) -> None:
            events.add(event)

        if self._client.is_closed:
            raise PeerError(f"the instance at {endpoint} cannot be asked: the client is closed")
        headers = {} if self.token is None else {"authorization": f"Bearer {self.token}"}
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        url = f"http://{parse_address(endpoint)}{path}"
        async with self._client.stream(
            method, url, content=body, headers=headers, timeout=timeout, extensions={"trace": trace}
        ) as response:
            content = bytearray()
            async for part in response.aiter_bytes():
                content += part
                if len(content) > MAX_ANSWER_BYTES:
                    raise ValueError(f"its answer has more than {MAX_ANSWER_BYTES} bytes")
            return response.status_code, bytes(content)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()
