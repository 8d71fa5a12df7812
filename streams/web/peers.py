"""The client for requests to other instances: HTTP/1.1 over persistent connections.

It only supports the server of this package, whose responses have a Content-Length.  It is smaller and several
times faster than a general HTTP client.  Of its own package, this module imports only ``front``.
"""

import asyncio
import socket

from attrs import define, field

from streams.core.errors import StreamsError
from streams.core.http.address import parse_address
from streams.web.front import Place

#: Timeout of a connection to another instance, in seconds.
CONNECT_S = 2.0
#: Timeout of a request to another instance, in seconds.
ANSWER_S = 10.0
#: Maximum number of idle connections to one instance.
_KEPT = 8
_MAX_ANSWER_BYTES = 256 << 20

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PeerError(StreamsError):
    """Another instance cannot be reached, does not respond in time, or sends an invalid response."""


@define(eq=False)
class Peers:
    """Connections to other instances by ``host:port``; all calls must come from one event loop."""

    #: The token that each request sends, if the instances need one.
    token: str | None = None
    _idle: dict[str, list[_Connection]] = field(factory=dict)
    #: Socket addresses by endpoint.
    _places: dict[str, Place] = field(factory=dict)

    async def place_of(self, endpoint: str) -> Place | None:
        """Return the socket address of an instance, or None if its host name cannot be resolved.

        The address is cached until ``forget`` is called.
        """
        place = self._places.get(endpoint)
        if place is None:
            host, port = parse_address(endpoint)
            try:
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError:
                return None
            place = self._places[endpoint] = int(found[0][0]), found[0][4]
        return place

    def forget(self, endpoint: str) -> None:
        """Remove the cached socket address of an instance that did not respond."""
        self._places.pop(endpoint, None)

    async def send(
        self, method: str, endpoint: str, path: str, body: bytes = b"", timeout_s: float | None = None
    ) -> tuple[int, bytes]:
        """Send a request, and return the status and body of the response; ``timeout_s`` is ``ANSWER_S`` by default.

        If an idle connection fails, the request is repeated on another one, so it has to be idempotent.

        Raises:
            PeerError: the instance cannot be reached, does not respond in time, or sends an invalid response.
        """
        head = f"{method} {path} HTTP/1.1\r\nhost: {endpoint}\r\ncontent-length: {len(body)}\r\n"
        if self.token is not None:
            head += f"authorization: Bearer {self.token}\r\n"
        message = head.encode() + b"\r\n" + body
        try:
            async with asyncio.timeout(ANSWER_S if timeout_s is None else timeout_s):
                while kept := self._idle.get(endpoint):
                    try:
                        return await self._exchange(endpoint, kept.pop(), message)
                    except (OSError, EOFError):
                        # The other side may have closed an idle connection.
                        continue
                async with asyncio.timeout(CONNECT_S):
                    connection = await asyncio.open_connection(*parse_address(endpoint))
                return await self._exchange(endpoint, connection, message)
        except TimeoutError:
            raise PeerError(f"the instance at {endpoint} has not answered in time") from None
        except (OSError, EOFError, ValueError) as error:
            raise PeerError(f"the instance at {endpoint} cannot be asked: {error or type(error).__name__}") from None

    async def _exchange(self, endpoint: str, connection: _Connection, message: bytes) -> tuple[int, bytes]:
        reader, writer = connection
        is_kept = False
        try:
            writer.write(message)
            head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            status = int(head[0].split()[1])
            headers = dict(line.lower().split(b": ", 1) for line in head[1:] if b": " in line)
            length = int(headers[b"content-length"])
            if length > _MAX_ANSWER_BYTES:
                raise ValueError(f"its answer has {length} bytes")
            body = await reader.readexactly(length)
            idle = self._idle.setdefault(endpoint, [])
            is_kept = headers.get(b"connection") != b"close" and len(idle) < _KEPT
            if is_kept:
                idle.append(connection)
            return status, body
        except KeyError as error:
            raise ValueError(f"its answer has no {error}") from None
        finally:
            if not is_kept:
                writer.close()

    def close(self) -> None:
        """Close all connections."""
        for connections in self._idle.values():
            for _, writer in connections:
                writer.close()
        self._idle.clear()
