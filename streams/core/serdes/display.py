"""Keys, values and windows as text for people; only this module decodes bytes for display."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from attrs import asdict, define, field, has

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.records import Window, Windowed
from streams.core.errors import StreamsError
from streams.core.event_time.time_texts import time_text
from streams.core.serdes.serdes import NULL, PinnedSerde, Serde

#: Maximum number of characters shown of a value.
_WIDTH = 120
#: Maximum width of a column, in characters.
_COLUMN = 60


def plain(value: Any) -> Any:
    """Convert a key or value to JSON-compatible values; a windowed key becomes text."""
    if isinstance(value, Windowed):
        return key_text(value)
    if isinstance(value, bytes):
        return {"$hex": value.hex()}
    if has(type(value)):
        # Of classes with slots, msgspec has the fields in alphabetical order.
        value = asdict(value)
    try:
        return msgspec.to_builtins(value, enc_hook=repr, str_keys=True)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def key_text(key: Any, serde: Serde[Any] | None = None) -> str:
    """Return a key as text: a windowed key as ``key@[start, end)``, a session key as ``key@[start, end]``.

    The bounds of count windows are numbers of records: ``key@records[start, end)``.  The key serde distinguishes count
    windows and sessions from other windows.
    """
    if not isinstance(key, Windowed):
        return key if isinstance(key, str) else value_text(key)
    return f"{key_text(key.key)}@{window_text(key.window, serde)}"


def window_text(window: Window, serde: Serde[Any] | None = None) -> str:
    """Return a window as text: ``[start, end)``, or ``[start, end]`` for a session; an end without limit is left out.

    The bounds of count windows are numbers of records: ``records[start, end)``.  The key serde distinguishes count
    windows and sessions from other windows.
    """
    start, end = window
    if serde is not None and serde.name.startswith("count_windowed:"):
        return f"records[{start}, {end})"
    until = "" if end >= MAX_TIME_MS else time_text(end)
    closing = "]" if serde is not None and "session_windowed" in serde.name else ")"
    return f"[{time_text(start)}, {until}{closing}"


def value_text(value: Any, width: int | None = _WIDTH) -> str:
    """Return a value as one line of JSON, which is cut after ``width`` characters (None: it is not)."""
    text = json.dumps(plain(value), ensure_ascii=False, separators=(", ", ": "))
    if not text.isprintable():
        # JSON leaves characters as they are that a terminal obeys, such as U+009B.
        text = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"


def plain_text(value: Any) -> str:
    """Return a key or value as one line: text as it is, other values as JSON."""
    return value if isinstance(value, str) and value.isprintable() else value_text(value, None)


@define(eq=False)
class RecordTable:
    """Lines with the key, window and value of records in columns, which are as wide as what they had so far.

    ``key_serde`` is None if the type of the keys is not declared.  ``title`` is a text in front of each line, such as
    the name of the topic.
    """

    key_serde: Serde[Any] | None
    title: str = ""
    _widths: list[int] = field(init=False, factory=lambda: [0, 0])

    def lines(self, records: Iterable[tuple[Any, Any]]) -> list[str]:
        """Return the lines of records, given by their keys and values."""
        rows = [(*self._key_cells(key), plain_text(value)) for key, value in records]
        for column in (0, 1):
            # A long text does not move the column of all others away.
            lengths = [length for row in rows if (length := len(row[column])) <= _COLUMN]
            self._widths[column] = max([self._widths[column], *lengths])
        head = f"{self.title}  " if self.title else ""
        return [head + "".join(self._padded(cells)) + value for *cells, value in rows]

    def _key_cells(self, key: Any) -> tuple[str, str]:
        if key is None and self.key_serde in (None, NULL):
            return "", ""
        if isinstance(key, Windowed):
            return plain_text(key.key), window_text(key.window, self.key_serde)
        return plain_text(key), ""

    def _padded(self, cells: Iterable[str]) -> Iterator[str]:
        # A topic without keys has no column for them.
        return (f"{cell:{width}}  " for cell, width in zip(cells, self._widths, strict=True) if width)


def reader(serde: Serde[Any] | None) -> Callable[[bytes | None], Any]:
    """Return a function that decodes bytes for display; it returns bytes that it cannot decode unchanged."""
    is_known = serde is not None and not (isinstance(serde, PinnedSerde) and not serde.is_pinned)

    def read(data: bytes | None) -> Any:
        if data is None:
            return None
        if serde is not None and is_known:
            try:
                return serde.deserialize(data)
            except StreamsError:
                return data
        return _guessed(data)

    return read


def _guessed(data: bytes) -> Any:
    """Decode bytes of an unknown type as JSON or text; otherwise return them unchanged."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    if not text.isprintable():
        return data
    try:
        return json.loads(text)
    except ValueError:
        return text
