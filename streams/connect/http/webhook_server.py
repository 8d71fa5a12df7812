"""The HTTP server of a webhook: a thread with an event loop, which answers requests when they are written.

What the requests share is only touched on the event loop.  Of the other packages, this module imports only ``core``.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from streams.connect.http.webhook_requests import Post, RequestReader, RequestRefusal, WebhookLimits
from streams.core.http.address import Address
from streams.core.http.http_server import HttpServer

#: After how many seconds a sender may try again.
_RETRY_S = 1


class WebhookServer:
    """Receives requests, and passes them to ``accepted``; ``ids`` are those of requests that were written before.

    Raises:
        ConfigError: the address is taken.
    """

    def __init__(
        self,
        address: Address,
        path: str,
        reader: RequestReader,
        limits: WebhookLimits,
        accepted: Callable[[Post], None],
        ids: Iterable[str],
    ) -> None:
        self._waiting = _Waiting(reader, limits, accepted, set(ids))
        application = Starlette(routes=[Route(path, self._waiting.answer, methods=["POST"])])
        self._server = HttpServer(application, address, "streams-webhook", waiting_connections=limits.max_waiting)
        self.address = self._server.address

    def written(self, posts: Sequence[Post], forgotten: Iterable[str]) -> None:
        """Answer requests that are in the topic, and forget ids."""
        self._later(lambda: self._waiting.written(posts, forgotten))

    def close(self) -> None:
        """Answer all requests that wait with 503, and stop listening."""
        self._later(self._waiting.close)
        self._server.close()

    def _later(self, work: Callable[[], None]) -> None:
        self._server.loop.call_soon_threadsafe(work)


class _Waiting:
    """The requests that wait to be written, and the ids of those that are."""

    def __init__(
        self, reader: RequestReader, limits: WebhookLimits, accepted: Callable[[Post], None], ids: set[str]
    ) -> None:
        self._reader = reader
        self._limits = limits
        self._accepted = accepted
        self._ids = ids
        #: Requests that wait, each with the future of its end: whether it was written.
        self._posts: dict[Post, asyncio.Future[bool]] = {}
        self._by_id: dict[str, Post] = {}
        #: Requests whose bodies are being read, and the bytes of these and of those that wait.
        self._reading = self._bytes = 0
        self._is_closed = False

    # --- on the event loop ----------------------------------------------------------------

    async def answer(self, request: Request) -> Response:
        """Take a request, and answer it when it is written."""
        try:
            self._reader.checks.check_headers(request.headers)
            is_new = await self._settled(request)
        except RequestRefusal as refusal:
            later = {"Retry-After": str(_RETRY_S)} if refusal.status == 503 else None
            return JSONResponse({"error": refusal.reason}, refusal.status, later)
        except ClientDisconnect:
            return Response(status_code=400)
        return JSONResponse({"status": "written" if is_new else "repeated"})

    def written(self, posts: Sequence[Post], forgotten: Iterable[str]) -> None:
        """Note requests as written, and answer them."""
        self._ids.difference_update(forgotten)
        for post in posts:
            if post.id is not None:
                self._ids.add(post.id)
            self._end(post, is_written=True)

    def close(self) -> None:
        """Answer all requests with 503 from now on."""
        self._is_closed = True
        for post in list(self._posts):
            self._end(post, is_written=False)

    async def _settled(self, request: Request) -> bool:
        """Wait until the records of a request are written; return False if they were written by an earlier request.

        Raises:
            RequestRefusal: it is not written.
        """
        # The body of a repeated request is read too: otherwise the server closes the connection.
        body = await self._body(request)
        request_id = self._reader.id_of(request.headers)
        if request_id in self._ids:
            return False
        post = self._by_id.get(request_id) if request_id is not None else None
        if post is None:
            post = self._reader.post(request.headers, body, request_id)
            self._begin(post)
        future = self._posts[post]
        await asyncio.wait([future], timeout=self._limits.answer_ms / 1_000)
        if not future.done():
            raise RequestRefusal(503, "the request was not written within answer_timeout_ms; it may be written later")
        if not future.result():
            raise RequestRefusal(503, "this source stops, or begins again; send the request again")
        return True

    async def _body(self, request: Request) -> bytes:
        """Read the body, as long as there is room for it.

        Raises:
            RequestRefusal: it is too large, too slow, or there is no room.
        """
        limits = self._limits
        body = bytearray()
        if int(request.headers.get("content-length", "0")) > limits.max_bytes:
            raise RequestRefusal(413, f"the body is larger than {limits.max_bytes} bytes")
        self._check_room(0)
        self._reading += 1
        try:
            async with asyncio.timeout(limits.answer_ms / 1_000):
                async for chunk in request.stream():
                    self._check_room(len(chunk))
                    self._bytes += len(chunk)
                    body += chunk
                    if len(body) > limits.max_bytes:
                        raise RequestRefusal(413, f"the body is larger than {limits.max_bytes} bytes")
        except TimeoutError:
            raise RequestRefusal(408, "the body did not arrive in time") from None
        finally:
            self._reading -= 1
            self._bytes -= len(body)
        return bytes(body)

    def _check_room(self, more: int) -> None:
        limits = self._limits
        if self._is_closed:
            raise RequestRefusal(503, "this source stops, or begins again; send the request again")
        if self._reading + len(self._posts) > limits.max_waiting or self._bytes + more > limits.max_waiting_bytes:
            raise RequestRefusal(503, "too many requests wait to be written; send the request again later")

    def _begin(self, post: Post) -> None:
        self._check_room(post.size)
        self._posts[post] = asyncio.get_running_loop().create_future()
        self._bytes += post.size
        if post.id is not None:
            self._by_id[post.id] = post
        self._accepted(post)

    def _end(self, post: Post, *, is_written: bool) -> None:
        future = self._posts.pop(post, None)
        if future is None:
            return  # It was answered when the source was closed.
        self._bytes -= post.size
        if post.id is not None:
            del self._by_id[post.id]
        future.set_result(is_written)
