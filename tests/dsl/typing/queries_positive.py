"""Queries of stores as users write them, and the types that the checkers must infer.

Not run: mypy --strict and pyright check this file, see test_typing.
"""

from typing import assert_type

from streams import (
    CountQuery,
    KeyQuery,
    MultiVersionedKeyQuery,
    Position,
    PrefixQuery,
    RangeQuery,
    SessionKeyQuery,
    SessionRangeQuery,
    Streams,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    ValueAndTimestamp,
    VersionedKeyQuery,
    VersionedRecord,
    Windowed,
    WindowKeyQuery,
    WindowRangeQuery,
)


def asked(streams: Streams) -> None:
    found = streams.query("counts", KeyQuery[str, int]("ann"))
    assert_type(found.value, int | None)
    assert_type(found.only.value, int | None)
    assert_type(found.position, Position)
    assert_type(streams.query("counts", TimestampedKeyQuery[str, int]("ann")).value, ValueAndTimestamp[int] | None)
    assert_type(streams.query("counts", RangeQuery[str, int]("a", "m")).value, list[tuple[str, int]])
    timed = streams.query("counts", TimestampedRangeQuery[str, int]()).value
    assert_type(timed, list[tuple[str, ValueAndTimestamp[int]]])
    print([row.value + row.timestamp_ms for _, row in timed])
    assert_type(streams.query("counts", PrefixQuery[str, int](b"a")).value, list[tuple[str, int]])
    assert_type(streams.query("counts", CountQuery()).value, int)
    # Windows of the DSL keep timestamps, sessions do not.
    windows = streams.query("windows", WindowKeyQuery[str, ValueAndTimestamp[int]]("ann", 0, 9))
    assert_type(windows.value, list[tuple[int, ValueAndTimestamp[int]]])
    rows = streams.query("windows", WindowRangeQuery[str, ValueAndTimestamp[int]](0, 9))
    assert_type(rows.value, list[tuple[Windowed[str], ValueAndTimestamp[int]]])
    assert_type(streams.query("sessions", SessionKeyQuery[str, int]("ann")).value, list[tuple[Windowed[str], int]])
    assert_type(streams.query("sessions", SessionRangeQuery[str, int]()).value, list[tuple[Windowed[str], int]])
    assert_type(streams.query("prices", VersionedKeyQuery[str, int]("tea")).value, VersionedRecord[int] | None)
    assert_type(streams.query("prices", MultiVersionedKeyQuery[str, int]("tea")).value, list[VersionedRecord[int]])
    # Without types, values are Any.
    untyped = streams.query("counts", RangeQuery("a", "m"), position=found.position, stale_ms=5_000)
    print([key.upper() for key, count in untyped.value if count > 1])
