"""What users write without annotations, and what the checkers must make of it.

Not run: mypy --strict and pyright check this file, see test_typing.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from sqlite3 import connect
from typing import assert_type

from attrs import frozen

from streams import (
    CountWindows,
    DeduplicatedKStream,
    EmitStrategy,
    GlobalKTable,
    JoinedKStream,
    JoinWindows,
    KStream,
    KTable,
    LookedUpKStream,
    Processor,
    Record,
    Serde,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    Topology,
    UnlimitedWindows,
    Window,
    Windowed,
    Windower,
    agg,
    build_topology,
    count_windowed,
    key_value_store,
    time_windowed,
)
from streams.lookup import HttpLookUp, SqlLookUp
from streams.testing import TopologyTestDriver


@frozen
class Order:
    customer: str
    amount: int
    at: datetime


@frozen
class Customer:
    name: str
    city: str


lines = Topic("lines", value=str)
orders = Topic("orders", key=str, value=Order, timestamp=lambda order: order.at)
timed = Topic(
    "timed", key=str, value=Order, timestamp=lambda key, order, headers, sent: sent if order is None else order.at
)
keyless = Topic("keyless", value=Order, timestamp=lambda _, order, headers, sent: None if order is None else order.at)
more_orders = Topic("more-orders", key=str, value=Order)
customers = Topic("customers", key=str, value=Customer)
counts = Topic("counts", key=str, value=int)
ratios = Topic("ratios", key=str, value=float)
optional_counts = Topic("optional-counts", key=str, value=int | None)
texts = Topic("texts", key=str, value=str)
windowed_counts = Topic("windowed-counts", key=time_windowed(str, timedelta(seconds=1)), value=int)
SECOND = timedelta(seconds=1)


class Ends(Windower[str, Order]):
    retention = timedelta(days=1)

    def assign(self, key: str, value: Order, timestamp_ms: int, windows: Sequence[Window]) -> list[Window]:
        return [Window(timestamp_ms, timestamp_ms + value.amount)]

    def close(self, window: Window) -> int:
        return window.end_ms


class Running(Processor[str, Order, str, int]):
    """Totals per customer."""

    totals = key_value_store(str, int)

    def process(self, record: Record[str, Order]) -> None:
        total = (self.totals.get(record.key) or 0) + record.value.amount
        self.totals.put(record.key, total)
        self.context.forward(record.key, total)


class Amounts(Processor[str, Order, str, int]):
    """Amounts of orders."""

    def process(self, record: Record[str, Order]) -> None:
        self.context.forward(record.key, record.value.amount)


def as_of(builder: StreamsBuilder) -> None:
    left, right = builder.stream(orders), builder.stream(customers)
    named = left.join_latest(right, lambda order, customer: (order.amount, customer.name), tolerance=SECOND)
    assert_type(named, JoinedKStream[str, tuple[int, str], Order | Customer])
    assert_type(named.late(), KStream[str, Order | Customer])
    keyed = left.left_join_latest(
        right, lambda key, order, customer: key if customer is None else customer.city, tolerance=SECOND, grace=SECOND
    )
    assert_type(keyed, JoinedKStream[str, str, Order | Customer])
    assert_type(keyed.dropped(), KStream[str | None, Order | Customer | None])
    left.join_latest(right, lambda order, _: order, tolerance=SECOND, direction="forward", name="next", store="next")


def word_count(builder: StreamsBuilder) -> None:
    (
        builder.stream(lines)
        .flat_map_values(lambda line: line.lower().split())
        .group_by(lambda _, word: word)
        .count("word-counts")
        .to_stream()
        .to(counts)
    )


def stateless(builder: StreamsBuilder) -> None:
    stream = builder.stream(orders, more_orders)
    assert_type(stream, KStream[str, Order])
    assert_type(stream.filter(lambda customer, order: order.amount > 1 and customer), KStream[str, Order])
    assert_type(stream.filter_not(lambda _, order: order.customer == ""), KStream[str, Order])
    assert_type(stream.map(lambda customer, order: (order.amount, customer)), KStream[int, str])
    assert_type(stream.map_values(lambda order: order.amount), KStream[str, int])
    assert_type(stream.map_values(lambda customer, order: customer + order.customer), KStream[str, str])
    assert_type(stream.flat_map(lambda customer, order: [(order.amount, customer)]), KStream[int, str])
    assert_type(stream.flat_map_values(lambda order: order.customer.split()), KStream[str, str])
    assert_type(stream.flat_map_values(lambda customer, order: [order.amount, len(customer)]), KStream[str, int])
    assert_type(stream.select_key(lambda _, order: order.amount), KStream[int, Order])
    assert_type(stream.to_table("last", ttl=SECOND), KTable[str, Order])
    assert_type(stream.group_by_key().count(ttl=SECOND), KTable[str, int])
    once = stream.deduplicate(by=lambda customer, order: (customer, order.amount), within=SECOND)
    assert_type(once, DeduplicatedKStream[str, Order])
    assert_type(once.dropped(), KStream[str, Order])
    assert_type(once.filter(lambda _, order: order.amount), KStream[str, Order])
    stream.deduplicate(within=SECOND, grace=SECOND, store="seen", logging=False)
    stream.deduplicate(by=lambda _, order: order.at.isoformat(), within=SECOND, id=str, name="once")
    assert_type(stream.peek(lambda customer, order: print(customer, order.amount)), KStream[str, Order])
    stream.for_each(lambda customer, order: print(customer.upper(), order.at.year))
    assert_type(stream.process(Running), KStream[str, int])
    assert_type(stream.process_values(Amounts), KStream[str, int])
    assert_type(stream.repartition("again", partitions=4, key=str), KStream[str, Order])
    split = stream.split("size-")
    large = split.branch(lambda _, order: order.amount > 9, name="large")
    small = split.default_branch()
    assert_type(large, KStream[str, Order])
    assert_type(large.merge(small), KStream[str, Order])
    numbers = stream.map_values(lambda order: order.amount)
    numbers.to(ratios)
    numbers.to(optional_counts)
    numbers.to(counts, name="sink")
    numbers.to("by-name", key=str, value=int)
    numbers.to(lambda customer, amount: customer + str(amount), key=str)
    numbers.to(lambda customer, amount, context: context.topic + customer + str(amount))
    assert_type(numbers.merge(stream), KStream[str, int | Order])


def forms(builder: StreamsBuilder) -> None:
    assert_type(builder.stream("topic", "other", key=str, value=int), KStream[str, int])
    assert_type(builder.stream("topic", key=None, value=dict[str, int]), KStream[None, dict[str, int]])
    assert_type(builder.table("topic", key=str, value=int, store="rows", history=SECOND), KTable[str, int])
    assert_type(builder.global_table("topic", key=int, value=str), GlobalKTable[int, str])
    assert_type(builder.stream(windowed_counts), KStream[Windowed[str], int])


def tables(builder: StreamsBuilder) -> None:
    names = builder.table(customers, name="names")
    totals = builder.stream(counts).to_table("totals", caching=False)
    assert_type(names, KTable[str, Customer])
    assert_type(names.filter(lambda key, customer: customer.city == key, store="local"), KTable[str, Customer])
    assert_type(names.map_values(lambda customer: customer.name), KTable[str, str])
    assert_type(names.map_values(lambda key, customer: (key, customer.city)), KTable[str, tuple[str, str]])
    assert_type(names.to_stream(), KStream[str, Customer | None])
    assert_type(names.to_stream(name="changes", tombstones=False), KStream[str, Customer])
    assert_type(
        names.to_stream(lambda _, customer: len(customer.city) if customer else 0), KStream[int, Customer | None]
    )
    assert_type(names.to_stream(lambda _, customer: len(customer.city), tombstones=False), KStream[int, Customer])
    names.to_stream().to(customers)
    names.to_stream(tombstones=False).to(customers)
    names.to_stream().map_values(lambda customer: customer.name if customer else None).to(texts)
    assert_type(names.to_stream().filter(lambda _, customer: customer is not None), KStream[str, Customer | None])
    assert_type(names.to_stream().to_table(), KTable[str, Customer])
    names.to_stream().group_by_key().reduce(lambda old, new: old if old.city else new)
    renamed = names.to_stream().group_by(lambda key, customer: customer.name if customer else key)
    assert_type(renamed.aggregate(lambda: 0, lambda _, customer, total: total + len(customer.name)), KTable[str, int])
    rows = builder.stream("texts", key=str, value=str | None)
    assert_type(rows.group_by_key().count(), KTable[str, int])
    assert_type(names.to_stream().merge(builder.stream(customers)), KStream[str, Customer | None])
    assert_type(totals.join(names, lambda total, customer: f"{customer.name}{total + 1}"), KTable[str, str])
    assert_type(
        totals.join(names, lambda key, total, customer: (key, total, customer.name)), KTable[str, tuple[str, int, str]]
    )
    assert_type(
        totals.left_join(names, lambda total, customer: customer.name if customer else str(total)), KTable[str, str]
    )
    outer = totals.outer_join(names, lambda total, customer: (total or 0, customer.name if customer else ""))
    assert_type(outer, KTable[str, tuple[int, str]])
    foreign = totals.join(names, lambda total, customer: customer.city * total, foreign_key=lambda key, total: key)
    assert_type(foreign, KTable[str, str])
    optional = totals.left_join(
        names, lambda total, customer: total, foreign_key=lambda key, total: key if total else None
    )
    assert_type(optional, KTable[str, int])
    cities = names.group_by(lambda key, customer: (customer.city, len(customer.name)))
    assert_type(cities.count(), KTable[str, int])
    assert_type(cities.reduce(lambda total, new: total + new, lambda total, old: total - old), KTable[str, int])
    assert_type(
        cities.aggregate(lambda: 0.0, lambda _, size, total: total + size, lambda _, size, total: total - size),
        KTable[str, float],
    )
    assert_type(totals.suppress(Suppressed.until_time_limit(SECOND, max_records=9)), KTable[str, int])


def aggregates(builder: StreamsBuilder) -> None:
    grouped = builder.stream(orders).group_by_key()
    assert_type(grouped.count("orders"), KTable[str, int])
    assert_type(grouped.reduce(lambda old, new: new if new.amount > old.amount else old), KTable[str, Order])
    assert_type(grouped.aggregate(lambda: 0, lambda _, order, total: total + order.amount), KTable[str, int])
    assert_type(
        grouped.aggregate(lambda: None, lambda _, order, last: order.amount or last, value=int | None),
        KTable[str, int | None],
    )
    assert_type(
        grouped.aggregate(list, lambda _, order, seen: [*seen, order.customer], name="seen", value=list[str]),
        KTable[str, list[str]],
    )
    assert_type(
        grouped.aggregate(
            lambda: (0, 0.0), lambda _, order, sums: (sums[0] + 1, sums[1] + order.amount), value=tuple[int, float]
        ),
        KTable[str, tuple[int, float]],
    )
    hopping = grouped.windowed_by(TimeWindows.of(SECOND, advance=SECOND / 2, grace=SECOND))
    assert_type(hopping.count("windowed", retention=SECOND), KTable[Windowed[str], int])
    assert_type(hopping.reduce(lambda old, new: new), KTable[Windowed[str], Order])
    assert_type(
        hopping.aggregate(lambda: 0, lambda _, order, most: max(most, order.amount)), KTable[Windowed[str], int]
    )
    hopping.count("final").suppress(Suppressed.until_window_closes()).to_stream().to(windowed_counts)
    sliding = grouped.windowed_by(SlidingWindows.of(SECOND)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    assert_type(sliding.count(), KTable[Windowed[str], int])
    assert_type(hopping.emit(early_every=SECOND).count(), KTable[Windowed[str], int])
    assert_type(grouped.windowed_by(CountWindows.of(100, advance=10)).count(), KTable[Windowed[str], int])
    assert_type(count_windowed(str, 100), Serde[Windowed[str]])
    assert_type(grouped.windowed_by(Ends()).count(), KTable[Windowed[str], int])
    assert_type(grouped.windowed_by(SessionWindows.of(SECOND)).emit(early_every=10).count(), KTable[Windowed[str], int])
    assert_type(grouped.windowed_by(UnlimitedWindows.of()).count(), KTable[Windowed[str], int])
    sessions = grouped.windowed_by(SessionWindows.of(SECOND))
    assert_type(
        sessions.aggregate(
            lambda: 0, lambda _, order, total: total + order.amount, lambda _, left, right: left + right
        ),
        KTable[Windowed[str], int],
    )
    assert_type(
        sessions.aggregate(
            list,
            lambda _, order, seen: [*seen, order.amount],
            lambda _, left, right: left + right,
            name="session-amounts",
            value=list[int],
        ),
        KTable[Windowed[str], list[int]],
    )
    cogrouped = grouped.cogroup(lambda _, order, total: total + order.amount, value=int).cogroup(
        builder.stream(counts).group_by_key(), lambda _, count, total: total + count
    )
    assert_type(cogrouped.aggregate(lambda: 0, name="both"), KTable[str, int])
    assert_type(cogrouped.windowed_by(TimeWindows.of(SECOND)).aggregate(lambda: 0), KTable[Windowed[str], int])
    assert_type(
        cogrouped.windowed_by(SessionWindows.of(SECOND)).aggregate(lambda: 0, lambda _, left, right: left + right),
        KTable[Windowed[str], int],
    )


def joins(builder: StreamsBuilder) -> None:
    stream, other, names = builder.stream(orders), builder.stream(counts), builder.table(customers)
    windows = JoinWindows.of(SECOND, before=SECOND, grace=SECOND)
    assert_type(
        stream.join(other, lambda order, count: order.amount + count, windows), JoinedKStream[str, int, Order | int]
    )
    assert_type(
        stream.join(other, lambda key, order, count: f"{key}{order.customer}{count}", windows, name="j", store="s"),
        JoinedKStream[str, str, Order | int],
    )
    assert_type(
        stream.left_join(other, lambda order, count: (order.amount, count), windows),
        JoinedKStream[str, tuple[int, int | None], Order | int],
    )
    assert_type(
        stream.outer_join(other, lambda order, count: (order.amount if order else 0) + (count or 0), windows),
        JoinedKStream[str, int, Order | int],
    )
    assert_type(
        stream.join(names, lambda order, customer: customer.name * order.amount), JoinedKStream[str, str, Order]
    )
    assert_type(
        stream.join(names, lambda key, order, customer: key + customer.city, grace=SECOND),
        JoinedKStream[str, str, Order],
    )
    assert_type(
        stream.left_join(names, lambda order, customer: customer.name if customer else order.customer),
        JoinedKStream[str, str, Order],
    )
    places = builder.global_table("places", key=int, value=str)
    assert_type(
        stream.join(places, lambda order, place: place.upper() + order.customer, key=lambda key, order: order.amount),
        JoinedKStream[str, str, Order],
    )
    assert_type(
        stream.left_join(places, lambda key, order, place: (key, place), key=lambda key, order: len(key)),
        JoinedKStream[str, tuple[str, str | None], Order],
    )
    assert_type(
        stream.join(places, lambda key, at, order, place: (key, at, place), key=lambda key, order: order.amount),
        JoinedKStream[str, tuple[str, int, str], Order],
    )
    assert_type(
        stream.left_join(places, lambda key, at, order, place: (at, place), key=lambda key, order: order.amount),
        JoinedKStream[str, tuple[int, str | None], Order],
    )


async def owner(order: Order) -> str:
    return order.customer


async def both(key: int, order: Order) -> tuple[str, int]:
    return order.customer, key


def asynchronous(stream: KStream[int, Order]) -> None:
    assert_type(stream.map_values_async(owner, concurrency=5), KStream[int, str])
    assert_type(stream.map_values_async(lambda order: owner(order)), KStream[int, str])
    assert_type(stream.map_values_async(lambda key, order: both(key, order)), KStream[int, tuple[str, int]])
    assert_type(stream.map_async(both, order="none"), KStream[str, int])


async def found(customer: str) -> Order | None:
    return None


def counted(customer: str) -> int:
    return len(customer)


def looked_up(stream: KStream[str, Order]) -> None:
    assert_type(
        stream.map(lambda key, order: (order.amount, [order]), key=int, value=list[Order]), KStream[int, list[Order]]
    )
    assert_type(stream.map_values(lambda order: [order.amount], value=list[int]), KStream[str, list[int]])
    assert_type(stream.select_key(lambda _, order: order.amount, key=int), KStream[int, Order])
    assert_type(stream.look_up(found, ttl=timedelta(minutes=1)), LookedUpKStream[str, Order, Order])
    assert_type(stream.look_up(counted).filter(lambda _, pair: pair[1] == 2), KStream[str, tuple[Order, int | None]])
    assert_type(stream.look_up(counted).map_pairs(lambda order, count: order.amount + (count or 0)), KStream[str, int])
    by_customer = stream.look_up(found, by=lambda _, order: order.customer)
    assert_type(by_customer.map_pairs(lambda order, other: (other or order).customer), KStream[str, str])
    halves = stream.look_up(lambda amount: amount / 2, by=lambda _, order: order.amount)
    assert_type(halves, LookedUpKStream[str, Order, float])
    name_in = SqlLookUp("select name from customers where id = ?", lambda: connect("shop.db"), row=str)
    assert_type(stream.look_up(name_in), LookedUpKStream[str, Order, str])
    status_of = HttpLookUp("https://api.example.com/{key}", read=lambda response: int(response.status_code))
    assert_type(stream.look_up(status_of), LookedUpKStream[str, Order, int])
    assert_type(
        stream.look_up(SqlLookUp("select 1", lambda: connect("shop.db"), row=str)), LookedUpKStream[str, Order, str]
    )


def batched(stream: KStream[int, Order]) -> None:
    assert_type(stream.map_values_batches(lambda orders: [order.amount * 2.0 for order in orders]), KStream[int, float])
    assert_type(stream.map_values_batches(print, value=str, max_records=10), KStream[int, str])
    assert_type(
        stream.flat_map_batches(lambda records: [(order.customer, key) for key, order in records]), KStream[str, int]
    )


def summarized(stream: KStream[str, Order]) -> None:
    grouped = stream.group_by_key()
    assert_type(grouped.summarize(lambda order: agg.sum(order.amount)), KTable[str, int])
    assert_type(grouped.summarize(lambda order: agg.mean(order.amount)), KTable[str, float])
    assert_type(grouped.summarize(lambda order: agg.first(order.customer), "first"), KTable[str, str])
    late = grouped.summarize(lambda order: agg.last(order.customer, where=order.amount > 2))
    assert_type(late, KTable[str, str | None])
    orders_of = grouped.summarize(lambda order: Order(agg.last(order.customer), agg.count(), agg.max(order.at)))
    assert_type(orders_of, KTable[str, Order])
    longest = agg.Aggregate[str, int](lambda text: text, lambda one, two: max(one, two, key=len), max, result=len)
    sessions = grouped.windowed_by(SessionWindows.of(timedelta(hours=1)))
    assert_type(sessions.summarize(lambda order: longest(order.customer)), KTable[Windowed[str], int])


def tested() -> None:
    driver = TopologyTestDriver(word_count)
    driver.pipe(lines, "to be")
    at = datetime(2026, 1, 5)
    driver.pipe_all(orders, [("ann", Order("ann", 2, at), 0), (None, None), (Order("ben", 3, at),)])
    assert driver.read(counts) == [("to", 1), ("be", 1)]
    assert_type(driver.read(counts), list[tuple[str, int | None]])
    assert_type(driver.read(counts, tombstones=False), list[tuple[str, int]])
    assert_type(driver.read_records(counts), list[Record[str, int | None]])
    assert_type(driver.read_partitions(counts), dict[int, list[tuple[str, int | None]]])
    print([word * count for word, count in dict(driver.read(counts, tombstones=False)).items()])
    print([count.bit_length() for count in dict(driver.read(counts)).values() if count is not None])
    table: dict[str, int | None] = dict(driver.read(counts))
    print(table)


def helper(values: Iterable[Order]) -> Topology:
    return build_topology(word_count)
