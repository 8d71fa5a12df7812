"""Queries of the kinds that ksqlDB records, with cases of our own: topologies, inputs, and outputs by hand.

They need nothing from outside.  A case is small enough to be worked out on paper; the comments say how.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from attrs import frozen

from streams import (
    EmitStrategy,
    JoinWindows,
    KStream,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    session_windowed,
    time_windowed,
)

#: Numbers, texts and rows by key; where a query reads two of a kind, ``MORE`` is the second.
NUMBERS = Topic("numbers", key=str, value=int)
MORE = Topic("more", key=str, value=int)
WORDS = Topic("words", key=str, value=str)
ORDERS = Topic("orders", key=str, value=dict[str, str])
STAMPED = Topic("stamped", key=str, value=int, timestamp=lambda value: value)
#: Outputs by their type.
INTS = Topic("ints", key=str, value=int)
TEXTS = Topic("texts", key=str, value=str)
LISTS = Topic("lists", key=str, value=list[int])
TEN = timedelta(milliseconds=10)
FIVE = timedelta(milliseconds=5)
TUMBLING = Topic("tumbling", key=time_windowed(str, TEN), value=int)
SESSIONS = Topic("sessions", key=session_windowed(str), value=int)

Input = tuple[Topic[Any, Any], str | None, Any, int]


@frozen
class Case:
    """A query with one output: (key, value, time) of each record; windowed keys as (key, start, end)."""

    build: Callable[[StreamsBuilder], None]
    sink: Topic[Any, Any]
    sources: Sequence[Topic[Any, Any]]
    records: Sequence[Input]
    outputs: Sequence[tuple[Any, Any, int]]


CASES: dict[str, Case] = {}


def case(
    sink: Topic[Any, Any], records: Sequence[Input], outputs: Sequence[tuple[Any, Any, int]], *sources: Topic[Any, Any]
) -> Callable[[Callable[[StreamsBuilder], None]], Callable[[StreamsBuilder], None]]:
    """Make a case of a topology function; sources are the topics of its records, unless more are named."""

    def added(build: Callable[[StreamsBuilder], None]) -> Callable[[StreamsBuilder], None]:
        topics = list(dict.fromkeys([*(record[0] for record in records), *sources]))
        CASES[build.__name__] = Case(build, sink, topics, records, outputs)
        return build

    return added


def of(topic: Topic[Any, Any], *records: tuple[str | None, Any, int]) -> list[Input]:
    """Return records of one topic."""
    return [(topic, *record) for record in records]


# --- rows and keys --------------------------------------------------------------------------


@case(INTS, of(NUMBERS, ("a", 1, 0), ("a", -1, 1), ("b", None, 2), ("b", 3, 3)), [("a", 10, 0), ("b", 30, 3)])
def project_filter(builder: StreamsBuilder) -> None:
    builder.stream(NUMBERS).filter(lambda _, n: n is not None and n > 0).map_values(lambda n: n * 10).to(INTS)


@case(TEXTS, of(WORDS, ("a", "x y", 5), ("b", "", 6), ("c", "z", 7)), [("a", "x", 5), ("a", "y", 5), ("c", "z", 7)])
def explode(builder: StreamsBuilder) -> None:
    builder.stream(WORDS).flat_map_values(lambda text: text.split()).to(TEXTS)


# The key is the text; the counts are those of the new keys, in one task.
@case(INTS, of(WORDS, ("a", "x", 0), ("b", "y", 1), ("c", "x", 2)), [("x", 1, 0), ("y", 1, 1), ("x", 2, 2)])
def partition_by(builder: StreamsBuilder) -> None:
    builder.stream(WORDS).select_key(lambda _, text: text).group_by_key().count().to_stream().to(INTS)


@case(INTS, [(NUMBERS, "a", 1, 0), (MORE, "a", 2, 1), (NUMBERS, "a", 3, 2)], [("a", 1, 0), ("a", 2, 1), ("a", 3, 2)])
def insert_into(builder: StreamsBuilder) -> None:
    builder.stream(NUMBERS).merge(builder.stream(MORE)).to(INTS)


# The second record is earlier than the first by its value, and keeps its place.
@case(INTS, of(STAMPED, ("a", 70, 1), ("a", 50, 2)), [("a", 70, 70), ("a", 50, 50)])
def timestamp_column(builder: StreamsBuilder) -> None:
    builder.stream(STAMPED).to(INTS)


# --- aggregates -----------------------------------------------------------------------------


# A record without a key is in no group.
@case(INTS, of(NUMBERS, ("a", 5, 9), (None, 7, 3), ("a", 2, 4)), [("a", 5, 9), ("a", 7, 9)])
def sum_by_key(builder: StreamsBuilder) -> None:
    builder.stream(NUMBERS).group_by_key().reduce(lambda one, two: one + two).to_stream().to(INTS)


@case(
    LISTS,
    of(NUMBERS, ("a", 5, 0), ("a", 2, 1), ("a", 9, 2)),
    [("a", [5, 5], 0), ("a", [2, 5], 1), ("a", [2, 9], 2)],
)
def min_and_max(builder: StreamsBuilder) -> None:
    bounds = (
        builder.stream(NUMBERS)
        .group_by_key()
        .aggregate(list, lambda _, n, seen: [min([n, *seen]), max([n, *seen])], value=list[int])
    )
    bounds.to_stream().to(LISTS)


@case(
    LISTS,
    of(NUMBERS, ("a", 1, 0), ("a", 1, 1), ("a", 3, 2)),
    [("a", [1], 0), ("a", [1, 1], 1), ("a", [1, 1, 3], 2)],
)
def collect_list(builder: StreamsBuilder) -> None:
    items = builder.stream(NUMBERS).group_by_key().aggregate(list, lambda _, n, seen: [*seen, n], value=list[int])
    items.to_stream().to(LISTS)


@case(
    LISTS,
    of(NUMBERS, ("a", 1, 0), ("a", 1, 1), ("a", 3, 2)),
    [("a", [1], 0), ("a", [1], 1), ("a", [1, 3], 2)],
)
def collect_set(builder: StreamsBuilder) -> None:
    items = (
        builder.stream(NUMBERS)
        .group_by_key()
        .aggregate(list, lambda _, n, seen: seen if n in seen else [*seen, n], value=list[int])
    )
    items.to_stream().to(LISTS)


@case(
    LISTS,
    of(NUMBERS, ("a", 5, 0), ("a", 9, 1), ("a", 7, 2), ("a", 7, 3)),
    [("a", [5], 0), ("a", [9, 5], 1), ("a", [9, 7], 2), ("a", [9, 7], 3)],
)
def top_k(builder: StreamsBuilder) -> None:
    best = (
        builder.stream(NUMBERS)
        .group_by_key()
        .aggregate(list, lambda _, n, seen: sorted([*seen, n], reverse=True)[:2], value=list[int])
    )
    best.to_stream().to(LISTS)


# By offset, not by time: the record of time 0 is the last.
@case(
    LISTS,
    of(NUMBERS, ("a", 5, 7), ("a", 6, 8), ("a", 4, 0)),
    [("a", [5, 5], 7), ("a", [5, 6], 8), ("a", [5, 4], 8)],
)
def earliest_and_latest_by_offset(builder: StreamsBuilder) -> None:
    ends = (
        builder.stream(NUMBERS)
        .group_by_key()
        .aggregate(list, lambda _, n, seen: [*seen[:1], n] if seen else [n, n], value=list[int])
    )
    ends.to_stream().to(LISTS)


# What does not reach 2 is a tombstone only where there was a row.
@case(INTS, of(WORDS, ("a", "x", 0), ("a", "y", 1), ("b", "z", 2)), [("a", None, 0), ("a", 2, 1), ("b", None, 2)])
def having(builder: StreamsBuilder) -> None:
    counts = builder.stream(WORDS).group_by_key().count()
    counts.to_stream().map_values(lambda n: n if n is not None and n > 1 else None).to(INTS)


# "b" moves from group x to group y: x loses its 2 before y gets it.
@case(
    INTS,
    of(ORDERS, ("a", {"by": "x", "n": "1"}, 0), ("b", {"by": "x", "n": "2"}, 1), ("b", {"by": "y", "n": "5"}, 2)),
    [("x", 1, 0), ("x", 3, 1), ("x", 1, 2), ("y", 5, 2)],
)
def group_by_of_a_table(builder: StreamsBuilder) -> None:
    rows = builder.table(ORDERS).group_by(lambda _, row: (row["by"], int(row["n"])), key=str, value=int)
    sums = rows.aggregate(lambda: 0, lambda _, n, total: total + n, lambda _, n, total: total - n, value=int)
    sums.to_stream().to(INTS)


# --- windows --------------------------------------------------------------------------------


# 12 is in [10, 20); 9 comes late and within the grace, 8 when [0, 10) has closed (stream time 20, grace 5).
@case(
    TUMBLING,
    of(NUMBERS, ("a", 1, 3), ("a", 1, 12), ("a", 1, 9), ("a", 1, 20), ("a", 1, 8)),
    [(("a", 0, 10), 1, 3), (("a", 10, 20), 1, 12), (("a", 0, 10), 2, 9), (("a", 20, 30), 1, 20)],
)
def tumbling_windows(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(TEN, grace=FIVE)
    builder.stream(NUMBERS).group_by_key().windowed_by(windows).count().to_stream().to(TUMBLING)


# 7 is in [0, 10) and [5, 15).
@case(
    TUMBLING,
    of(NUMBERS, ("a", 1, 2), ("a", 1, 7), ("a", 1, 11)),
    [(("a", 0, 10), 1, 2), (("a", 0, 10), 2, 7), (("a", 5, 15), 1, 7), (("a", 5, 15), 2, 11), (("a", 10, 20), 1, 11)],
)
def hopping_windows(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(TEN, advance=FIVE, grace=TEN)
    builder.stream(NUMBERS).group_by_key().windowed_by(windows).count().to_stream().to(TUMBLING)


# 8 is within 10 of both sessions, [0, 0] and [15, 15], and joins them: both are gone.
@case(
    SESSIONS,
    of(NUMBERS, ("a", 1, 0), ("a", 1, 15), ("a", 1, 8)),
    [
        (("a", 0, 0), 1, 0),
        (("a", 15, 15), 1, 15),
        (("a", 0, 0), None, 0),
        (("a", 15, 15), None, 15),
        (("a", 0, 15), 3, 15),
    ],
)
def session_windows(builder: StreamsBuilder) -> None:
    windows = SessionWindows.of(TEN, grace=timedelta(seconds=1))
    builder.stream(NUMBERS).group_by_key().windowed_by(windows).count().to_stream().to(SESSIONS)


# [0, 10) closes when stream time is 15, by the record of another key.
@case(
    TUMBLING,
    of(NUMBERS, ("a", 1, 1), ("a", 1, 9), ("b", 1, 14), ("b", 1, 15)),
    [(("a", 0, 10), 2, 9)],
)
def suppress(builder: StreamsBuilder) -> None:
    counts = builder.stream(NUMBERS).group_by_key().windowed_by(TimeWindows.of(TEN, grace=FIVE)).count()
    counts.suppress(Suppressed.until_window_closes()).to_stream().to(TUMBLING)


@case(
    TUMBLING,
    of(NUMBERS, ("a", 1, 1), ("a", 1, 9), ("b", 1, 14), ("b", 1, 15)),
    [(("a", 0, 10), 2, 9)],
)
def emit_final(builder: StreamsBuilder) -> None:
    windowed = builder.stream(NUMBERS).group_by_key().windowed_by(TimeWindows.of(TEN, grace=FIVE))
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to_stream().to(TUMBLING)


# --- joins ----------------------------------------------------------------------------------


def _sides(builder: StreamsBuilder) -> tuple[KStream[str, int], KStream[str, int], JoinWindows]:
    return builder.stream(NUMBERS), builder.stream(MORE), JoinWindows.of(TEN, grace=FIVE)


def _pair(one: int | None, two: int | None) -> list[int]:
    return [0 if one is None else one, 0 if two is None else two]


JOINED: list[Input] = [
    (NUMBERS, "a", 1, 0),
    (MORE, "a", 2, 10),
    (MORE, "a", 3, 11),
    (NUMBERS, "a", 4, 40),
    (NUMBERS, "a", 5, 80),
]


# 1 meets 2 at a distance of 10, and not 3.
@case(LISTS, JOINED, [("a", [1, 2], 10)])
def inner_join_of_streams(builder: StreamsBuilder) -> None:
    numbers, more, windows = _sides(builder)
    numbers.join(more, _pair, windows).to(LISTS)


# 4 is alone, and known to be so at 55, when its window and the grace have passed: by the record of 80.
@case(LISTS, JOINED, [("a", [1, 2], 10), ("a", [4, 0], 40)])
def left_join_of_streams(builder: StreamsBuilder) -> None:
    numbers, more, windows = _sides(builder)
    numbers.left_join(more, _pair, windows).to(LISTS)


# 3 is alone too; the record of 40 says so.
@case(LISTS, JOINED, [("a", [1, 2], 10), ("a", [0, 3], 11), ("a", [4, 0], 40)])
def outer_join_of_streams(builder: StreamsBuilder) -> None:
    numbers, more, windows = _sides(builder)
    numbers.outer_join(more, _pair, windows).to(LISTS)


TABLES: list[Input] = [
    (NUMBERS, "a", 1, 0),
    (MORE, "a", 2, 1),
    (NUMBERS, "a", 3, 2),
    (MORE, "a", None, 3),
    (MORE, "b", 9, 4),
]


@case(LISTS, TABLES, [("a", [3, 2], 2)])
def stream_table_join(builder: StreamsBuilder) -> None:
    builder.stream(NUMBERS).join(builder.table(MORE), _pair).to(LISTS)


@case(LISTS, TABLES, [("a", [1, 0], 0), ("a", [3, 2], 2)])
def left_join_with_a_table(builder: StreamsBuilder) -> None:
    builder.stream(NUMBERS).left_join(builder.table(MORE), _pair).to(LISTS)


# The right row goes: the result goes.
@case(LISTS, TABLES, [("a", [1, 2], 1), ("a", [3, 2], 2), ("a", None, 3)])
def inner_join_of_tables(builder: StreamsBuilder) -> None:
    builder.table(NUMBERS).join(builder.table(MORE), _pair, value=list[int]).to_stream().to(LISTS)


@case(
    LISTS,
    TABLES,
    [("a", [1, 0], 0), ("a", [1, 2], 1), ("a", [3, 2], 2), ("a", [3, 0], 3), ("b", [0, 9], 4)],
)
def outer_join_of_tables(builder: StreamsBuilder) -> None:
    builder.table(NUMBERS).outer_join(builder.table(MORE), _pair, value=list[int]).to_stream().to(LISTS)


SHOPS: list[Input] = [
    (ORDERS, "o1", {"shop": "s"}, 0),
    (WORDS, "s", "Sun", 1),
    (ORDERS, "o2", {"shop": "s"}, 2),
    (WORDS, "s", None, 3),
    (ORDERS, "o1", None, 4),
]


def _shop_of(order: dict[str, str], shop: str | None) -> str:
    return f"{order['shop']}:{shop}"


# A change of the shop changes the orders that name it; an order that goes is said to be gone, as in
# Kafka Streams, though it had no result any more.
@case(TEXTS, SHOPS, [("o1", "s:Sun", 1), ("o2", "s:Sun", 2), ("o1", None, 3), ("o2", None, 3), ("o1", None, 4)])
def foreign_key_join(builder: StreamsBuilder) -> None:
    orders, shops = builder.table(ORDERS), builder.table(WORDS)
    orders.join(shops, _shop_of, foreign_key=lambda _, order: order["shop"], value=str).to_stream().to(TEXTS)


@case(
    TEXTS,
    SHOPS,
    [
        ("o1", "s:None", 0),
        ("o1", "s:Sun", 1),
        ("o2", "s:Sun", 2),
        ("o1", "s:None", 3),
        ("o2", "s:None", 3),
        ("o1", None, 4),
    ],
)
def foreign_key_left_join(builder: StreamsBuilder) -> None:
    orders, shops = builder.table(ORDERS), builder.table(WORDS)
    orders.left_join(shops, _shop_of, foreign_key=lambda _, order: order["shop"], value=str).to_stream().to(TEXTS)


# Three sides: 1 and 2 meet, and the word of "a" is there; those of "b" meet, and have no word.
@case(
    TEXTS,
    [(WORDS, "a", "x", 0), (NUMBERS, "a", 1, 1), (MORE, "a", 2, 2), (NUMBERS, "b", 3, 3), (MORE, "b", 4, 4)],
    [("a", "[1, 2] x", 2)],
)
def join_of_three(builder: StreamsBuilder) -> None:
    numbers, more, windows = _sides(builder)
    numbers.join(more, _pair, windows).join(builder.table(WORDS), lambda pair, text: f"{pair} {text}").to(TEXTS)


# Orders by their shop: the key is the field, and the shop's name is found by it.
@case(
    TEXTS,
    [(WORDS, "s", "Sun", 0), (ORDERS, "o1", {"shop": "s"}, 1), (ORDERS, "o2", {"shop": "t"}, 2)],
    [("s", "s:Sun", 1)],
)
def join_by_another_key(builder: StreamsBuilder) -> None:
    orders = builder.stream(ORDERS).select_key(lambda _, order: order["shop"])
    orders.join(builder.table(WORDS), _shop_of).to(TEXTS)
