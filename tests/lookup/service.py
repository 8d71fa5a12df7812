"""A local HTTP service, which answers GET requests with their key; it can be late, fail and restart."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.ports import free_ports
from tests.waiting import until

#: Returns status and delay in seconds for a key and the number of its request; None: no answer, or never.
Behaviour = Callable[[str, int], tuple[int | None, float | None]]


class Service:
    """Runs in a thread of its own; ``asked`` has the number of requests by key.

    It starts anew, and breaks all connections, after ``life`` responses.
    """

    def __init__(self, behaviour: Behaviour = lambda key, number: (200, 0), *, life: int | None = None) -> None:
        self.asked = Counter[str]()
        self.starts = 0
        self._behaviour, self._life = behaviour, life
        self._responses = 0
        # Of those that the system gives to no client: it starts again at the same one.
        (self._chosen,) = free_ports(1)
        self._port = 0
        self._is_over = asyncio.Event()
        self._stop: Callable[[], object] = bool
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        until(lambda: self._port > 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._thread.join()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        is_stopping = False

        def stop() -> None:
            nonlocal is_stopping
            is_stopping = True
            self._is_over.set()

        self._stop = lambda: loop.call_soon_threadsafe(stop)
        while not is_stopping:
            connections: set[asyncio.Task[None]] = set()
            self._responses, self._is_over = 0, asyncio.Event()

            async def connected(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                connections: set[asyncio.Task[None]] = connections,
            ) -> None:
                task = asyncio.create_task(self._serve(reader, writer))
                connections.add(task)

            server = await asyncio.start_server(connected, "127.0.0.1", self._chosen)
            self.starts += 1
            self._port = self._chosen
            await self._is_over.wait()
            server.close()
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                while (await reader.readline()).strip():
                    pass
                target = urlsplit(line.split()[1].decode())
                key = parse_qs(target.query, keep_blank_values=True).get("id") or [unquote(target.path.split("/")[2])]
                self.asked[key[0]] += 1
                status, delay_s = self._behaviour(key[0], self.asked[key[0]])
                await asyncio.sleep(3600 if delay_s is None else delay_s)
                if status is None:
                    return
                body = json.dumps({"asked": key[0]}).encode()
                writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
                await writer.drain()
                self._responses += 1
                if self._responses == self._life:
                    self._is_over.set()
        except ConnectionError:
            pass
        finally:
            writer.close()
