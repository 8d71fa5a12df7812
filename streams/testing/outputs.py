"""Records that a test has read from a topic, with an explanation when they differ from the expected ones.

Pure: a comparison of lists.  Of the other packages, this module imports only ``core``.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeVar

import attrs

from streams.core.blocks.records import Headers, Record

T = TypeVar("T")

#: Keys that are named; further ones are counted.
_KEYS: Final = 5
_NONE: Final = object()
#: Where classes of msgspec, of pydantic, and named tuples have the names of their fields.
_NAMES: Final = ("__struct_fields__", "model_fields", "_fields")


class ReadRecords(list[T]):
    """A list of the records of a topic; ``why`` returns an explanation why a key has no record, or None.

    >>> ReadRecords("totals", [("ann", 1)], lambda key: None)
    [('ann', 1)]
    """

    __slots__ = ("topic", "why")

    def __init__(self, topic: str, records: Iterable[T], why: Callable[[Any], str | None]) -> None:
        super().__init__(records)
        self.topic = topic
        self.why = why

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


class _Row(NamedTuple):
    """A record to compare; one given as a (key, value) pair has no timestamp or headers."""

    key: Any
    value: Any
    timestamp_ms: int | None
    headers: Headers

    def __str__(self) -> str:
        time = "" if self.timestamp_ms is None else f" at {self.timestamp_ms} ms"
        headers = f" with headers {self.headers!r}" if self.headers else ""
        return f"{self.value!r}{time}{headers}"


def explained(read: ReadRecords[Any], expected: Sequence[Any]) -> list[str] | None:
    r"""Return lines that describe how the records of each key differ; None if ``expected`` has items of other types.

    >>> read = ReadRecords("totals", [("ann", 1), ("ann", 3)], lambda key: f"{key} has no order")
    >>> print("\n".join(explained(read, [("ann", 1), ("ann", 2), ("bob", 5)])))
    topic 'totals': 2 records read, 3 expected
      'bob': no record, expected 5
        bob has no order
      'ann', record 2: read 3, expected 2
    """
    rows = _rows(read)
    expected_rows = _rows(expected)
    if rows is None or expected_rows is None:
        return None
    lines = [f"topic {read.topic!r}: {len(rows)} records read, {len(expected_rows)} expected"]
    ours = _by_key(rows)
    theirs = _by_key(expected_rows)
    tokens = [token for token in {**theirs, **ours} if ours.get(token) != theirs.get(token)]
    if not tokens:
        return [*lines, *_order_lines(rows, expected_rows)]
    # pytest cuts what is long: first the keys without a record, with the reason of one of them.
    tokens.sort(key=lambda token: token in ours)
    for number, token in enumerate(tokens[:_KEYS]):
        lines += _key_lines(ours.get(token, ()), theirs.get(token, ()))
        if number == 0 and token not in ours:
            lines += [f"    {line}" for line in (read.why(theirs[token][0].key) or "").splitlines()]
    if len(tokens) > _KEYS:
        lines.append(f"  and {len(tokens) - _KEYS} other keys")
    return lines


def _rows(items: Sequence[Any]) -> list[_Row] | None:
    """Return the items as rows; None if any item is neither a (key, value) pair nor a ``Record``."""
    rows = []
    for item in items:
        if isinstance(item, Record):
            rows.append(_Row(item.key, item.value, item.timestamp_ms, item.headers))
        elif isinstance(item, tuple) and len(item) == 2:
            rows.append(_Row(item[0], item[1], None, ()))
        else:
            return None
    return rows


def _by_key(rows: Iterable[_Row]) -> dict[Any, list[_Row]]:
    rows_by_key: dict[Any, list[_Row]] = {}
    for row in rows:
        try:
            rows_by_key.setdefault(row.key, []).append(row)
        except TypeError:  # A key that cannot be hashed.
            rows_by_key.setdefault(repr(row.key), []).append(row)
    return rows_by_key


def _key_lines(read: Sequence[_Row], expected: Sequence[_Row]) -> Iterator[str]:
    key = repr((*read, *expected)[0].key)
    if not read:
        yield f"  {key}: no record, expected {', '.join(map(str, expected))}"
        return
    if not expected:
        yield f"  {key}: not expected, read {', '.join(map(str, read))}"
        return
    pairs: Iterable[tuple[_Row | None, _Row | None]] = zip_longest(read, expected)
    number, (one, other) = next((number, pair) for number, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    said_read = "read no more" if one is None else f"read {one}"
    said_expected = "expected no more" if other is None else f"expected {other}"
    yield f"  {key}, record {number}: {said_read}, {said_expected}"
    if one is not None and other is not None:
        yield from _field_lines(one.value, other.value)


def _field_lines(read: Any, expected: Any) -> Iterator[str]:
    ours = _fields(read)
    theirs = _fields(expected)
    if ours is None or theirs is None or type(read) is not type(expected):
        return
    for name in {**theirs, **ours}:
        one = ours.get(name, _NONE)
        other = theirs.get(name, _NONE)
        if one != other:
            yield f"    {name}: read {_text(one)}, expected {_text(other)}"


def _text(value: Any) -> str:
    return "nothing" if value is _NONE else repr(value)


def _fields(value: Any) -> Mapping[Any, Any] | None:
    """Return the fields of a value by name; None if the value has no fields."""
    kind = type(value)
    if isinstance(value, Mapping):
        return value
    if attrs.has(kind):
        names = [part.name for part in attrs.fields(kind)]
    elif dataclasses.is_dataclass(value):
        names = [part.name for part in dataclasses.fields(value)]
    else:
        names = next((list(getattr(kind, it)) for it in _NAMES if hasattr(kind, it)), [])
    return {name: getattr(value, name) for name in names} or None


def _order_lines(read: Sequence[_Row], expected: Sequence[_Row]) -> Iterator[str]:
    number, (one, other) = next(it for it in enumerate(zip(read, expected, strict=True), 1) if it[1][0] != it[1][1])
    yield "  each key has the expected records; only the order across keys differs"
    yield f"  record {number}: read {one.key!r}: {one}, expected {other.key!r}: {other}"
