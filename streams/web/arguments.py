"""Paths and query arguments of HTTP requests."""

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from attrs import frozen
from starlette.types import Scope

from streams.core.arguments import MAX_TIME_MS
from streams.core.errors import InputError
from streams.core.event_time.time_texts import time_ms
from streams.core.serdes.serdes import Serde
from streams.runtime import Rank
from streams.web.answers import Refused
from streams.web.texts import key_of


def segments_of(scope: Scope) -> list[bytes]:
    """Return the path segments below the mount point of the application, still percent-encoded."""
    raw = scope.get("raw_path") or scope["path"].encode()
    return list(raw.partition(b"?")[0].split(b"/")[1 + scope.get("root_path", "").count("/") :])


@frozen
class Arguments:
    """The arguments of a query string, decoded as Latin-1: each character is one byte."""

    text_by_name: Mapping[str, str]

    @classmethod
    def of(cls, scope: Scope) -> "Arguments":
        """Parse the query string of a request.

        Raises:
            Refused: an argument is given twice.
        """
        # Each byte is a character, since keys may have any bytes.
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, encoding="latin-1")
        text_by_name = dict(pairs)
        if len(text_by_name) < len(pairs):
            raise Refused(400, "BAD_REQUEST", "an argument is given twice")
        return cls(text_by_name)

    def check(self, *names: str) -> None:
        """Check that the query string has no other arguments than ``names`` and those that every path accepts.

        Raises:
            Refused: an argument is unknown.
        """
        if strange := sorted(self.text_by_name.keys() - {*names, "position", "stale_ms", "key_format"}):
            raise Refused(400, "BAD_REQUEST", f"{strange[0][:40]!r} is no argument here; there are {', '.join(names)}")

    def number(self, name: str, default: int, maximum: int = MAX_TIME_MS, *, minimum: int = 0) -> int:
        """Return an argument as a whole number from ``minimum`` to ``maximum``.

        Raises:
            Refused: the argument is not a number, or the number is too small or too large.
        """
        text = self.text_by_name.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20 and minimum <= int(text) <= maximum):
            raise Refused(400, "BAD_REQUEST", f"{name}={text[:30]} is no number from {minimum} to {maximum}")
        return int(text)

    def partitions(self) -> list[int] | None:
        """Return the argument ``partition`` as a list, or None if it is not given.

        Raises:
            Refused: it is not a number.
        """
        return [self.number("partition", 0, 1 << 31)] if "partition" in self.text_by_name else None

    def time(self, name: str, default: int) -> int:
        """Return an argument as a time in epoch milliseconds.

        It is given as epoch milliseconds or ISO 8601 text, which is UTC if it has no zone.

        Raises:
            Refused: the argument is neither.
        """
        text = self.text_by_name.get(name, "")
        if not text or (text.isascii() and text.isdigit()):
            return self.number(name, default)
        try:
            return time_ms(text[:40].replace(" ", "+"), name)
        except InputError as error:
            raise Refused(400, "BAD_REQUEST", str(error)) from None

    def flag(self, name: str) -> bool:
        """Return whether a flag is set: given without a value, or as 1 or true.

        Raises:
            Refused: the value is not a boolean.
        """
        text = self.text_by_name.get(name, "false").lower()
        if text not in ("", "1", "true", "0", "false"):
            raise Refused(400, "BAD_REQUEST", f"{name}={text[:20]} is neither true nor false")
        return text in ("", "1", "true")

    def key(self, name: str, serde: Serde[Any]) -> Any:
        """Return an argument as a store key, or None if it is not given."""
        text = self.text_by_name.get(name)
        return None if text is None else key_of(serde, text.encode("latin-1"), self.text_by_name.get("key_format"))


def cursor_of(rank: Rank) -> str:
    """Return the cursor of the next page of a scan, from the rank of the last entry."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(rank)).decode().rstrip("=")


def rank_of(cursor: str | None) -> Rank | None:
    """Decode a cursor, and return the rank of the last entry of the page before, or None if there is no cursor.

    Raises:
        Refused: the text is not a cursor.
    """
    if cursor is None:
        return None
    try:
        data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return msgspec.msgpack.decode(data, type=tuple[bytes, int, int])
    except (ValueError, msgspec.MsgspecError):
        raise Refused(400, "BAD_REQUEST", "after is not the `next` of an answer") from None
