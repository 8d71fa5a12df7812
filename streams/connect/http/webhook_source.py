"""A source that receives requests over HTTP: each POST is a record, and is answered when it is in the topic.

Exactly once for a sender that repeats a request with the same id in a header, while the id is remembered: the ids are
among the positions, which are written with the records.  At least once for all others (extra ``web``).
Of the other packages, this module imports only ``core`` and ``files``; starlette and uvicorn are imported on use.
"""

import logging
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from attrs import define, field

from streams.connect.http.json_records import JsonRecords
from streams.connect.http.recent_ids import RecentIds
from streams.connect.http.webhook_requests import Checks, Post, RequestReader, WebhookLimits
from streams.connect.protocol import Position, SourceBlock
from streams.core.clock import Clock, SystemClock
from streams.core.errors import ConfigError
from streams.core.http.address import Address, is_loopback, parse_address
from streams.core.installation import pip_install
from streams.core.topic import Topic

if TYPE_CHECKING:
    from streams.connect.http.webhook_server import WebhookServer

log = logging.getLogger(__name__)

#: Partition of the records of requests without an id, which have no position.
_PLAIN = "requests"


@define(eq=False, repr=False)
class WebhookSource:
    """Receives requests over HTTP: each POST is one record, or several with ``items``, as JSON.

    A request is answered with status 200 when its records are in the topic.  If the worker stops or has to begin
    again, it is answered with 503, and the sender repeats it.  A request with an id in the header ``id_header`` is
    then written once: the id is remembered with its records, and a repeated request gets status 200.  Without an id
    its records may be in the topic twice.

    Status 413 is for a body above ``max_bytes``, 422 for one that does not fit the types of the topic, 401 for a wrong
    token or signature, and 503 with ``Retry-After`` if too many requests wait.

    Args:
        listen: the address, as ``host:port``; port 0 selects a free one.  On an address that is not loopback, a
            ``token`` or a ``secret`` is needed.
        path: the path of the requests.
        key: the field of an item that has the key of its record, such as ``order.id``; by default the key is that of
            ``Topic(key_from=...)``.
        key_header: the header of a request that has the key, instead of ``key``.
        items: the field of the body that has the list of items, or "." for a body that is a list; by default the
            body is one item.
        headers: the headers of a request that become headers of its records, such as ``X-GitHub-Event``.
        token: the token that requests have as ``Authorization: Bearer TOKEN``.
        secret: the secret with which senders sign the body, as GitHub does: ``sha256=`` and HMAC-SHA256.
        signature_header: the header with the signature.
        id_header: the header with the id of a request, such as ``X-GitHub-Delivery``.
        remember_ms: how long ids are remembered, in milliseconds; by default 24 hours.
        remember_ids: how many ids are remembered at most; the oldest are forgotten first.
        max_bytes: the largest body in bytes; a record must also fit into the topic.
        max_waiting: the number of requests that may wait to be written.
        max_waiting_bytes: the size of their bodies in bytes.
        answer_timeout_ms: how long a request waits to be written before it is answered with 503, in milliseconds; it
            may be written later.  Also how long its body may take to arrive.
        batch_records: after how many records a transaction takes no further requests.

    Raises:
        ConfigError: starlette and uvicorn are not installed, or an argument is invalid.
    """

    listen: str = "127.0.0.1:8080"
    path: str = "/"
    key: str = ""
    key_header: str = ""
    items: str = ""
    headers: list[str] = field(factory=list)
    token: str = ""
    secret: str = ""
    signature_header: str = "X-Hub-Signature-256"
    id_header: str = "Idempotency-Key"
    remember_ms: int = 24 * 3_600_000
    remember_ids: int = 100_000
    max_bytes: int = 512 << 10
    max_waiting: int = 1_000
    max_waiting_bytes: int = 64 << 20
    answer_timeout_ms: int = 30_000
    batch_records: int = 1_000
    _clock: Clock = field(factory=SystemClock, init=False)
    _address: Address = field(init=False)
    _ids: RecentIds = field(init=False)
    #: Requests that were checked, in the order of their arrival; None wakes the worker.
    _posts: "SimpleQueue[Post | None]" = field(factory=SimpleQueue, init=False)
    #: Those of the transaction that is being written.
    _taken: list[Post] = field(factory=list, init=False)
    _server: "WebhookServer | None" = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        _check_libraries()
        self._address = parse_address(self.listen, "listen: ")
        if not is_loopback(self._address.host) and not self.token and not self.secret:
            raise ConfigError(
                f"{self!r}: can be reached from other machines: give token= or secret=, or listen on 127.0.0.1"
            )
        if not self.path.startswith("/") or "{" in self.path:
            raise ConfigError(f"{self!r}: path begins with '/' and has no braces, unlike {self.path!r}")
        if self.key and self.key_header:
            raise ConfigError(f"{self!r}: the key is in a field or in a header: give key= or key_header=")
        for name in ("remember_ms", "remember_ids", "max_bytes", "max_waiting", "max_waiting_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{self!r}: {name} is at least 1, not {getattr(self, name)}")
        if self.answer_timeout_ms < 1 or self.batch_records < 1:
            raise ConfigError(f"{self!r}: answer_timeout_ms and batch_records are at least 1")
        self._ids = RecentIds(self.remember_ms, self.remember_ids)

    def __repr__(self) -> str:
        return f"WebhookSource(listen={self.listen!r}, path={self.path!r})"

    @property
    def url(self) -> str:
        """The address for requests while the source is open."""
        return f"http://{self._address}{self.path}"

    # --- protocol ---------------------------------------------------------------------

    def open(self, connector: str, topic: Topic[Any, Any], positions: Mapping[str, Position]) -> None:
        """Read the remembered ids, and listen.

        Raises:
            ConfigError: the address is taken, or keys are given and not declared, or the other way round.
        """
        from streams.connect.http.webhook_server import WebhookServer

        try:
            ids = self._ids.load(positions)
        except (KeyError, TypeError):
            raise ConfigError(
                f"{self!r}: the positions of {connector!r} are those of another kind of source: give the connector "
                "another name"
            ) from None
        reader = RequestReader(
            JsonRecords(repr(self), topic, self.key, has_keys=bool(self.key_header)),
            Checks(self.token, self.secret, self.signature_header),
            self.items,
            self.key_header,
            self.id_header,
            tuple(self.headers),
            self._clock,
        )
        limits = WebhookLimits(self.max_bytes, self.max_waiting, self.max_waiting_bytes, self.answer_timeout_ms)
        self._posts = SimpleQueue()
        self._taken = []
        self._server = WebhookServer(self._address, self.path, reader, limits, self._posts.put, ids)
        # A free port stays the same if the source is opened again.
        self._address = self._server.address
        log.info("%r: receives requests at %s", self, self.url)

    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[Any, Any]]:
        """Take the requests that wait; each of them is written as a whole."""
        posts = self._taken
        count = 0
        try:
            post = self._posts.get(timeout=timeout_ms / 1_000)
            while True:
                if post is not None:
                    posts.append(post)
                    count += len(post.values)
                if count >= self.batch_records:
                    break
                post = self._posts.get_nowait()
        except Empty:
            pass
        now_ms = self._clock.now_ms()
        ids = [post.id for post in posts if post.id is not None]
        blocks = [SourceBlock[Any, Any](name, None, [], []) for name in self._ids.outdated(now_ms, len(ids))]
        if posts:
            name, position = self._ids.entry(ids, now_ms) if ids else (_PLAIN, None)
            blocks.append(_block(name, position, posts))
        return blocks

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Answer the requests with 200."""
        assert self._server is not None, "open comes first"
        posts = self._taken
        self._taken = []
        self._server.written(posts, self._ids.committed(positions))

    def is_retriable(self, error: Exception) -> bool:
        """No error of this source passes."""
        return False

    def wakeup(self) -> None:
        self._posts.put(None)

    def close(self) -> None:
        """Answer all requests that wait with 503, and stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None


def _block(name: str, position: Position, posts: Sequence[Post]) -> SourceBlock[Any, Any]:
    headers = [post.headers for post in posts for _ in post.values]
    return SourceBlock(
        name,
        position,
        [key for post in posts for key in post.keys],
        [value for post in posts for value in post.values],
        [time_ms for post in posts for time_ms in post.timestamps_ms],
        headers if any(headers) else None,
        is_serialized=True,
    )


def _check_libraries() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"WebhookSource needs starlette and uvicorn ({error}): {pip_install('web')}") from None
