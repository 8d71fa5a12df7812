"""A source that asks an HTTP server again and again for JSON, exactly once by the position (extra ``http``).

The position is what the next request needs: the version of the document, the cursor of the next page, or the last
value of a field.  It is written with the records of the answer, so that an answer is in the topic once, or not at all.
Of the other packages, this module imports only ``core`` and ``files``; httpx is imported on use.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from streams.connect.errors import ConnectError
from streams.connect.http.http_client import PASSING, QUOTED, HttpUnavailableError, httpx_for, url_of
from streams.connect.http.json_records import DocumentError, JsonRecords, items_at, part_at, value_at
from streams.connect.protocol import Position, SourceBlock
from streams.core.clock import Clock, SystemClock
from streams.core.concurrency.threads import Signal, SystemThreads
from streams.core.errors import ConfigError
from streams.core.event_time.timestamps import to_milliseconds
from streams.core.topic import Topic

if TYPE_CHECKING:
    from httpx import Client, Response

log = logging.getLogger(__name__)

#: The partition of the source; there is one.
_PARTITION: Final = "http"
#: The longest pause that a server may ask for with Retry-After, in milliseconds.
_MAX_PAUSE_MS = 3_600_000
#: The value of ``items`` for a document that is one item.
_WHOLE = "."


@define(eq=False, repr=False)
class HttpSource:
    """Asks an HTTP server again and again for JSON; each item of an answer is a record.

    What an answer brings is written once:

    - by default, a document is written whenever it has changed.  ``ETag`` and ``Last-Modified`` of the last answer are
      sent as ``If-None-Match`` and ``If-Modified-Since``; without an ``ETag``, the bytes are compared too.
    - with ``last``, the server is asked for items after the last one: its field ``last`` goes into the parameter
      ``last_param`` of the next request, which follows at once until there are no items.
    - with ``next``, the document has the cursor of the next page: a URL, or the value of the parameter ``next_param``.
      The last page is read again after ``interval_ms``; of a page that grows, only new items are written.

    The statuses 408, 409, 425, 429, 500, 502, 503 and 504, and connection errors, are retried by the worker with
    backoff, after the pause that ``Retry-After`` asks for, up to an hour; any other status than 2xx and 304 ends it.

    Args:
        url: what to ask for.
        interval_ms: the pause after an answer that has nothing more, in milliseconds.
        items: the field with the list of items, such as ``data.orders``; "" if the document is a list, "." if the
            document is one item.
        key: the field of an item that has the key of its record, by default that of ``Topic(key_from=...)``.
        last: the field of an item that has its place in the order of the server, such as ``id``.
        last_param: the parameter of the URL for it, such as ``after``.
        next: the field of the document that has the cursor of the next page, such as ``paging.next``.
        next_param: the parameter of the URL for it; by default the cursor is a URL.
        headers: headers of requests, such as ``Authorization``.
        timeout_ms: how long connecting and each wait for data may take, in milliseconds.
        max_bytes: the largest answer in bytes.

    Raises:
        ConfigError: httpx is not installed, or an argument is invalid.
    """

    url: str
    interval_ms: int = 60_000
    items: str = ""
    key: str = ""
    last: str = ""
    last_param: str = ""
    next: str = ""
    next_param: str = ""
    headers: dict[str, str] = field(factory=dict)
    timeout_ms: int = 30_000
    max_bytes: int = 64 << 20
    _clock: Clock = field(factory=SystemClock, init=False)
    _httpx: Any = field(init=False)
    _client: "Client | None" = field(default=None, init=False)
    _records: JsonRecords = field(init=False)
    _position: dict[str, Any] = field(factory=dict, init=False)
    #: Monotonic time before which nothing is asked; it stays if the source is opened again.
    _due_ms: int = field(default=0, init=False)
    _stop: Signal = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._httpx = httpx_for("HttpSource")
        self._stop = SystemThreads().signal()
        url_of(self._httpx, self.url, "HttpSource")
        if bool(self.last) != bool(self.last_param):
            raise ConfigError(
                f"{self!r}: last= names the field of an item, last_param= the parameter for it: give both"
            )
        if self.next_param and not self.next:
            raise ConfigError(f"{self!r}: next_param= needs next=, the field of the document that has the cursor")
        if self.last and self.next:
            raise ConfigError(f"{self!r}: the next request follows from last= or from next=: give one of them")
        for name in ("interval_ms", "timeout_ms", "max_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{self!r}: {name} is at least 1, not {getattr(self, name)}")

    def __repr__(self) -> str:
        # A query can have a token.
        return f"HttpSource(url={self.url.partition('?')[0]!r})"

    # --- protocol ---------------------------------------------------------------------

    def open(self, connector: str, topic: Topic[Any, Any], positions: Mapping[str, Position]) -> None:
        """Open the HTTP client.

        Raises:
            ConfigError: ``key`` is given and not declared, or the other way round; or the position is that of a source
                with other arguments.
        """
        self._records = JsonRecords(repr(self), topic, self.key)
        position = dict(positions.get(_PARTITION, {}))
        if position and position.get("by") != self._kind:
            raise ConfigError(
                f"{self!r}: the position of {connector!r} is that of a source by {position.get('by')}, this is one by "
                f"{self._kind}: give the arguments of before, or the connector another name, with which it begins anew"
            )
        self._position = position
        self._client = self._httpx.Client(timeout=self.timeout_ms / 1_000, headers=self.headers)

    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[Any, Any]]:
        """Ask the server if it is time, and return the items of its answer.

        Raises:
            ConnectError: the server refuses the request, or its answer is not what the arguments say.
        """
        wait_ms = self._due_ms - self._clock.monotonic_ms()
        if wait_ms > 0:
            self._stop.wait(min(wait_ms, timeout_ms))
            return []
        answer, body = self._ask()
        if answer.status_code == 304:
            self._rest()
            return []
        try:
            return self._taken(answer, body)
        except DocumentError as error:
            raise ConnectError(f"{self!r}: the answer {error}") from error

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Do nothing: the position is all that is needed."""

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error is a connection error, or an answer after which the same request may succeed."""
        return isinstance(error, HttpUnavailableError | self._httpx.TransportError)

    def wakeup(self) -> None:
        """End the wait for the next request."""
        self._stop.set()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- inside -----------------------------------------------------------------------

    @property
    def _kind(self) -> str:
        return f"last={self.last}" if self.last else f"next={self.next}" if self.next else "version"

    def _rest(self) -> None:
        """Ask again after the interval."""
        self._due_ms = self._clock.monotonic_ms() + self.interval_ms

    def _ask(self) -> "tuple[Response, bytes]":
        """Send the next request, and read the answer.

        Raises:
            ConnectError: the answer is not one of success, or is too large.
        """
        assert self._client is not None, "open comes first"
        url = self._httpx.URL(self.url)
        headers = {}
        position = self._position
        if self.last and "last" in position:
            url = url.copy_set_param(self.last_param, position["last"])
        elif self.next and position.get("next") is not None:
            url = (
                url.copy_set_param(self.next_param, position["next"])
                if self.next_param
                else self._page(position["next"])
            )
        if "etag" in position:
            headers["If-None-Match"] = position["etag"]
        if "modified" in position:
            headers["If-Modified-Since"] = position["modified"]
        body = bytearray()
        try:
            with self._client.stream("GET", url, headers=headers) as answer:
                for chunk in answer.iter_bytes():
                    body += chunk
                    if len(body) > self.max_bytes:
                        raise ConnectError(f"{self!r}: the answer is larger than max_bytes={self.max_bytes}")
        except self._httpx.DecodingError as error:
            raise ConnectError(
                f"{self!r}: the answer is not compressed as its Content-Encoding says: {error}"
            ) from error
        if answer.status_code != 304 and not answer.is_success:
            self._fail(answer, bytes(body))
        return answer, bytes(body)

    def _page(self, cursor: Any) -> Any:
        """Return the URL of a page; the headers, which may have secrets, go to no other server than that of ``url``.

        Raises:
            ConnectError: the page is on another server.
        """
        first = self._httpx.URL(self.url)
        try:
            url = first.join(cursor)
        except (TypeError, self._httpx.InvalidURL):
            raise ConnectError(
                f"{self!r}: field {self.next!r} has no URL, but {cursor!r:.100}: give next_param="
            ) from None
        if (url.scheme, url.netloc) != (first.scheme, first.netloc):
            raise ConnectError(f"{self!r}: field {self.next!r} has the URL of another server: {str(url)[:100]}")
        return url

    def _fail(self, answer: "Response", body: bytes) -> None:
        said = f"{self!r}: the server answers {answer.status_code}: {body[:QUOTED].decode(errors='replace').strip()}"
        if answer.status_code not in PASSING:
            if answer.is_redirect:
                said += f" (it redirects to {answer.headers.get('location', '')[:100]}: give this url=)"
            raise ConnectError(said)
        pause_ms = pause_ms_of(answer.headers.get("retry-after", ""), self._clock.now_ms())
        if pause_ms:
            log.warning("%r: the server asks for a pause of %d ms", self, pause_ms)
            self._due_ms = self._clock.monotonic_ms() + pause_ms
        raise HttpUnavailableError(said)

    def _taken(self, answer: "Response", body: bytes) -> Sequence[SourceBlock[Any, Any]]:
        """Return the new items of an answer, and decide when to ask again."""
        items = [part_at(body, "") or b""] if self.items == _WHOLE else items_at(body, self.items)
        position: dict[str, Any] = {"by": self._kind}
        skipped = 0
        is_over = True
        if self.last:
            if not items:
                self._rest()
                return []
            position["last"] = self._last_of(items)
            is_over = False
        elif self.next:
            skipped, is_over = self._page_position(body, len(items), position)
        else:
            position |= _version(answer, body)
        if is_over:
            self._rest()
        if position == self._position:
            return []
        keys, values, times_ms = self._records.columns(items[skipped:], skipped)
        self._position = position
        return [SourceBlock(_PARTITION, position, keys, values, times_ms, is_serialized=True)]

    def _last_of(self, items: Sequence[bytes]) -> Any:
        first = value_at(items[0], self.last)
        last = value_at(items[-1], self.last)
        before = self._position.get("last")
        if not isinstance(last, str | int):
            raise DocumentError(f"item {len(items) - 1}: field {self.last!r} is {last!r:.50}, not a text or a number")
        if last == before:
            raise DocumentError(
                f"ends with {self.last}={last!r} again: the server does not heed the parameter {self.last_param!r}"
            )
        if first == before or _is_back(before, first, last):
            raise DocumentError(
                f"has items from {self.last}={first!r} to {last!r} after {self.last_param}={before!r}: they would be "
                "written twice; let the server send only items after the last one, in its order"
            )
        return last

    def _page_position(self, body: bytes, count: int, position: dict[str, Any]) -> tuple[int, bool]:
        """Note the next page, or how much of this one is written; return how much was, and whether it is the last."""
        here = self._position.get("next")
        following = value_at(body, self.next)
        done = self._position.get("done", 0)
        if done > count:
            raise DocumentError(f"has {count} items; before, the same page had {done}, and pages only grow")
        if following is None or following == "" or following == here:
            position |= {"next": here, "done": count}
            return done, True
        position |= {"next": following, "done": 0}
        return done, False


def _is_back(before: Any, first: Any, last: Any) -> bool:
    """Whether the numbers of a page begin on the wrong side of the last one before it.

    >>> _is_back(5, 6, 8), _is_back(5, 4, 8), _is_back(1, 5, 2), _is_back(5, 4, 2), _is_back("b", "a", "c")
    (False, True, True, False, False)
    """
    if not (isinstance(before, int) and isinstance(first, int) and isinstance(last, int)):
        return False  # Texts have the order of the server.
    return (first < last and first < before) or (first > last and first > before)


def _version(answer: "Response", body: bytes) -> dict[str, str]:
    """Return what tells this version of a document from the next one."""
    version = {
        name: answer.headers[header]
        for name, header in (("etag", "etag"), ("modified", "last-modified"))
        if header in answer.headers
    }
    # Last-Modified has seconds only, and not every server heeds If-Modified-Since.
    return version if "etag" in version else {**version, "digest": hashlib.sha256(body).hexdigest()}


def pause_ms_of(text: str, now_ms: int) -> int:
    """Return the pause of a header Retry-After, which is in seconds or a date, in milliseconds; 0 if there is none.

    >>> pause_ms_of("5", 0), pause_ms_of("Thu, 01 Jan 1970 00:00:07 GMT", 1_000), pause_ms_of("soon", 0)
    (5000, 6000, 0)
    """
    if text.isascii() and text.isdigit():
        return min(int(text[:9]) * 1_000, _MAX_PAUSE_MS)
    try:
        at_ms = to_milliseconds(parsedate_to_datetime(text))
    except ValueError:
        return 0
    return max(0, min(at_ms - now_ms, _MAX_PAUSE_MS))
