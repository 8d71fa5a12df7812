"""The requests of a webhook: who may send, and how a request becomes records.

Pure: bytes and headers in, a ``Post`` or a ``RequestRefusal`` out.  Of the other packages, this module imports only
``core``.
"""

import hmac
from collections.abc import Mapping

from attrs import define, frozen

from streams.connect.http.json_records import DocumentError, JsonRecords, items_at
from streams.connect.http.recent_ids import digest
from streams.core.blocks.records import Headers
from streams.core.clock import Clock

#: The value of ``items`` for a body that is a list.
_WHOLE = "."


class RequestRefusal(Exception):
    """A request that is refused, with the status and the reason of the answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@define(eq=False)
class Post:
    """A request that is to become records: their columns, and its id if it is to be remembered."""

    keys: list[bytes | None]
    values: list[bytes]
    timestamps_ms: list[int]
    headers: Headers
    size: int
    id: str | None = None


@frozen
class WebhookLimits:
    """How many requests and bytes may wait, and for how many milliseconds."""

    max_bytes: int
    max_waiting: int
    max_waiting_bytes: int
    answer_ms: int


@frozen
class Checks:
    """Who may send: the token, and the secret of signatures; empty = not checked."""

    token: str
    secret: str
    signature_header: str

    def check_headers(self, headers: Mapping[str, str]) -> None:
        """Check the headers of a request, before its body is read.

        Raises:
            RequestRefusal: the sender may not send.
        """
        kind, _, token = headers.get("authorization", "").partition(" ")
        if self.token and not (kind.lower() == "bearer" and _are_equal(token.strip(), self.token)):
            raise RequestRefusal(401, "give the token of this source: Authorization: Bearer TOKEN")
        if not self.token and not self.secret and "origin" in headers:
            # Any page in a browser on this machine can send requests to a loopback address.
            raise RequestRefusal(403, "requests of web pages need a token; give this source one with token=")
        if (encoding := headers.get("content-encoding", "identity")).lower() != "identity":
            raise RequestRefusal(
                415, f"send this body without Content-Encoding {encoding}: bodies are taken as they are"
            )
        if self.secret and self.signature_header.lower() not in headers:
            raise RequestRefusal(401, f"the header {self.signature_header} is missing")

    def check_signature(self, headers: Mapping[str, str], body: bytes) -> None:
        """Check the signature of a body: ``sha256=`` and the HMAC in hexadecimal.

        Raises:
            RequestRefusal: it is not that of the secret.
        """
        if not self.secret:
            return
        expected = "sha256=" + hmac.digest(self.secret.encode(), body, "sha256").hex()
        if not _are_equal(headers.get(self.signature_header.lower(), ""), expected):
            raise RequestRefusal(
                401, f"the signature in {self.signature_header} is not that of this body and the secret"
            )


def _are_equal(actual: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(actual.encode("utf-8", "surrogateescape"), expected.encode())


@frozen(eq=False)
class RequestReader:
    """Makes the records of a request: their keys, values, times and headers."""

    records: JsonRecords
    checks: Checks
    items: str
    key_header: str
    id_header: str
    headers: tuple[str, ...]
    clock: Clock

    def id_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the id of a request in a short form; None if it has none."""
        request_id = headers.get(self.id_header.lower(), "")
        return digest(request_id) if request_id else None

    def post(self, headers: Mapping[str, str], body: bytes, request_id: str | None) -> Post:
        """Return the records of a request.

        Raises:
            RequestRefusal: the signature is wrong, or the body does not fit the topic.
        """
        self.checks.check_signature(headers, body)
        # The framework decodes the octets of a header as Latin-1, and repeats the name of a doubled one.
        named = {name.lower(): name for name in self.headers}
        key = headers.get(self.key_header.lower()) if self.key_header else None
        if self.key_header and key is None:
            raise RequestRefusal(422, f"the header {self.key_header}, which has the key, is missing")
        try:
            key = None if key is None else key.encode("latin-1").decode()
        except UnicodeDecodeError as error:
            raise RequestRefusal(422, f"the header {self.key_header}, which has the key: {error}") from None
        try:
            items = items_at(body, "" if self.items == _WHOLE else self.items) if self.items else [body]
        except DocumentError as error:
            raise RequestRefusal(422, f"the body: {error}") from None
        records = [self._record(number, item, key) for number, item in enumerate(items)]
        now_ms = self.clock.now_ms()
        return Post(
            [key for key, _, _ in records],
            [value for _, value, _ in records],
            [now_ms if time_ms is None else time_ms for _, _, time_ms in records],
            tuple((named[name], text.encode("latin-1")) for name, text in headers.items() if name in named),
            len(body),
            request_id,
        )

    def _record(self, number: int, item: bytes, key: str | None) -> tuple[bytes | None, bytes, int | None]:
        try:
            return self.records.record(item, key)
        except DocumentError as error:
            raise RequestRefusal(422, f"{f'item {number}' if self.items else 'the body'}: {error}") from None
