"""A client that is cut off while it is written to: nothing is written to it any more, and nothing floods the log."""

import logging
import socket
import struct
import threading
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from streams.core.http.address import Address
from streams.core.http.http_server import HttpServer

RESET = struct.pack("ii", 1, 0)


def test_a_stream_ends_with_its_client(caplog: pytest.LogCaptureFixture) -> None:
    """All its parts are at hand: without a pause, the loop would not hear of the end of the connection."""
    caplog.set_level(logging.WARNING, "asyncio")
    is_reading, is_gone = threading.Event(), threading.Event()
    written = 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal written
        yield b"first"
        is_reading.set()
        # The loop hears of the reset only after this: it blocks meanwhile.
        is_gone.wait()
        for _ in range(1_000):
            yield b"x" * 100
            written += 1

    async def answer(request: object) -> StreamingResponse:
        return StreamingResponse(parts())

    server = HttpServer(Starlette(routes=[Route("/", answer)]), Address("127.0.0.1", 0), "http")
    client = socket.create_connection((server.address.host, server.address.port))
    client.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    is_reading.wait()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()
    is_gone.set()
    server.close()

    assert written < 1_000
    assert not [record for record in caplog.records if "socket.send() raised" in record.getMessage()]
