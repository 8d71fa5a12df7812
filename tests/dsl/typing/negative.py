"""Mistakes that the checkers must report: every line that ends in ``# wrong``, and no other.

``# wrong for mypy``: pyright widens the aggregate's type instead.

Not run: see test_typing.
"""

from collections.abc import Sequence
from datetime import timedelta

from attrs import frozen

from streams import (
    CountWindows,
    EmitStrategy,
    JoinWindows,
    KStream,
    Processor,
    Record,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topic,
    Window,
    Windower,
    agg,
)
from streams.testing import TopologyTestDriver


@frozen
class Order:
    customer: str
    amount: int


@frozen
class Customer:
    name: str


orders = Topic("orders", key=str, value=Order)
customers = Topic("customers", key=str, value=Customer)
by_number = Topic("by-number", key=int, value=Customer)
counts = Topic("counts", key=str, value=int)
texts = Topic("texts", key=str, value=str)
Topic("timed", key=str, value=Order, timestamp=lambda key, order, headers, sent: key.at)  # wrong
SECOND = timedelta(seconds=1)
WINDOWS = JoinWindows.of(SECOND)


class Numbers(Windower[int, Order]):
    retention = SECOND

    def assign(self, key: int, value: Order, timestamp_ms: int, windows: Sequence[Window]) -> list[Window]:
        return [Window(timestamp_ms, timestamp_ms + key)]

    def close(self, window: Window) -> int:
        return window.end_ms


class Texts(Processor[str, str, str, str]):
    """Takes texts, not orders."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.key, record.value)


def as_of(builder: StreamsBuilder) -> None:
    left, right = builder.stream(orders), builder.stream(customers)
    left.join_latest(right, lambda order, customer: order.amont, tolerance=SECOND)  # wrong
    left.left_join_latest(right, lambda order, customer: customer.name, tolerance=SECOND)  # wrong
    left.join_latest(right, lambda order, customer: order)  # wrong
    left.join_latest(right, lambda order, customer: order, tolerance=SECOND, direction="nearest")  # wrong
    left.join_latest(builder.stream(by_number), lambda order, customer: order, tolerance=SECOND)  # wrong


def stateless(builder: StreamsBuilder) -> None:
    stream = builder.stream(orders)
    stream.filter(lambda _, order: order.amont > 1)  # wrong
    stream.filter_not(lambda customer, _: customer.amount > 1)  # wrong
    stream.map(lambda _, order: (order.customers, 1))  # wrong
    stream.map(lambda _, order: order)  # wrong
    stream.map_values(lambda order: order.amont)  # wrong
    stream.map_values(lambda order: order.amount).map_values(lambda amount: amount.upper())  # wrong
    stream.flat_map_values(lambda order: order.amount)  # wrong
    stream.flat_map_values(lambda order: order.customer.splitt())  # wrong
    stream.select_key(lambda _, order: order.amont)  # wrong
    stream.peek(lambda customer: print(customer))  # wrong
    stream.deduplicate(by=lambda _, order: order.amont, within=SECOND)  # wrong
    stream.deduplicate(by=lambda order: order.amount, within=SECOND)  # wrong
    stream.deduplicate(by=lambda _, order: order.amount)  # wrong
    stream.deduplicate(within=1000)  # wrong
    stream.to_table("last", ttl=5)  # wrong
    stream.deduplicate(within=SECOND, caching=False)  # wrong
    stream.for_each(lambda _, order: print(order.amont))  # wrong
    stream.group_by(lambda _, order: order.amont)  # wrong
    stream.process(Texts)  # wrong
    stream.repartition(partitions="4")  # wrong
    stream.nothing()  # wrong
    split = stream.split()
    split.branch(lambda _, order: order.amont > 1)  # wrong
    split.default_branch().filter(lambda _, order: order.amont > 1)  # wrong


def sinks(builder: StreamsBuilder) -> None:
    stream = builder.stream(orders)
    stream.to(counts)  # wrong
    stream.map_values(lambda order: order.amount).to(texts)  # wrong
    stream.select_key(lambda _, order: order.amount).to(orders)  # wrong
    stream.group_by_key().count().to_stream().to(texts)  # wrong
    stream.group_by_key().windowed_by(TimeWindows.of(SECOND)).count().to_stream().to(counts)  # wrong
    stream.to(lambda _, order: order.amount)  # wrong
    stream.to("name", key=int)  # wrong


def sources(builder: StreamsBuilder) -> None:
    builder.stream("name")  # wrong
    builder.stream(orders).filter(lambda key, _: key + 1)  # wrong
    builder.table("name", key=str, value=int).map_values(lambda count: count.upper())  # wrong
    builder.table(orders, histori=SECOND)  # wrong
    result: KStream[str, str] = builder.stream(orders)  # wrong
    result.for_each(lambda key, value: print(key, value))


def aggregates(builder: StreamsBuilder) -> None:
    grouped = builder.stream(orders).group_by_key()
    grouped.reduce(lambda old, new: old.amount)  # wrong
    grouped.aggregate(lambda: 0, lambda _, order, total: total + order.customer)  # wrong
    grouped.aggregate(lambda: 0, lambda _, order, total: total + order.amont)  # wrong
    grouped.aggregate(list, lambda _, order, seen: [*seen, order.amount], value=list[str])  # wrong for mypy
    grouped.count(retention=SECOND)  # wrong
    grouped.windowed_by(SECOND)  # wrong
    windowed = grouped.windowed_by(TimeWindows.of(SECOND))
    windowed.count().to_stream().filter(lambda window, count: window.keys == "a")  # wrong
    windowed.emit_strategy("close")  # wrong
    windowed.emit(early_every=1.5)  # wrong
    grouped.windowed_by(CountWindows.of(SECOND))  # wrong
    grouped.windowed_by(Numbers())  # wrong
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().filter(lambda _, count: count.upper())  # wrong
    sessions = grouped.windowed_by(SessionWindows.of(SECOND))
    sessions.aggregate(lambda: 0, lambda _, order, total: total + order.amount)  # wrong
    sessions.aggregate(lambda: 0, lambda _, order, total: total + 1, lambda _, left, right: left.upper())  # wrong


def joins(builder: StreamsBuilder) -> None:
    stream, texted = builder.stream(orders), builder.stream(texts)
    names, numbered = builder.table(customers), builder.table(by_number)
    stream.join(texted, lambda order, text: order.amont, WINDOWS)  # wrong
    stream.join(texted, lambda order, text: text.amount, WINDOWS)  # wrong
    stream.join(texted, lambda order, text: text)  # wrong
    stream.left_join(texted, lambda order, text: text.upper(), WINDOWS)  # wrong
    stream.join(names, lambda order, customer: customer.nam)  # wrong
    stream.join(names, lambda order, customer: order.name)  # wrong
    stream.left_join(names, lambda order, customer: customer.name)  # wrong
    stream.join(numbered, lambda order, customer: customer.name)  # wrong
    stream.join(texted, lambda order, text: order.amount, WINDOWS).to(texts)  # wrong
    places = builder.global_table("places", key=int, value=str)
    stream.join(places, lambda order, place: place)  # wrong
    stream.join(places, lambda order, place: place, key=lambda _, order: order.customer)  # wrong
    stream.join(places, lambda order, place: place.amount, key=lambda _, order: order.amount)  # wrong


def table_joins(builder: StreamsBuilder) -> None:
    names, numbered, rows = builder.table(customers), builder.table(by_number), builder.table(orders)
    rows.filter(lambda _, order: order.amont > 1)  # wrong
    rows.map_values(lambda order: order.amont)  # wrong
    rows.join(names, lambda order, customer: customer.amount)  # wrong
    rows.left_join(names, lambda order, customer: customer.name)  # wrong
    rows.join(numbered, lambda order, customer: customer.name)  # wrong
    rows.join(numbered, lambda order, customer: customer.name, foreign_key=lambda _, order: order.customer)  # wrong
    rows.join(numbered, lambda order, customer: customer.amount, foreign_key=lambda _, order: order.amount)  # wrong
    rows.group_by(lambda _, order: order.customer)  # wrong
    rows.suppress(SECOND)  # wrong
    rows.to_stream().to(customers)  # wrong
    rows.to_stream(tombstones=False).to(customers)  # wrong
    rows.to_stream().map_values(lambda order: order.amount)  # wrong
    rows.to_stream().map(lambda customer, order: (customer, order.amount))  # wrong
    rows.to_stream().for_each(lambda _, order: print(order.amount))  # wrong
    rows.to_stream(lambda _, order: order.customer)  # wrong
    rows.to_stream(lambda _, order: order.amont, tombstones=False)  # wrong
    rows.filter(lambda _, order: order.amount > 1).to_stream().filter(lambda _, order: order.amount > 2)  # wrong
    sessions = rows.to_stream().group_by_key().windowed_by(SessionWindows.of(SECOND)).count()
    sessions.to_stream().map(lambda windowed, count: (windowed.key, count + 1))  # wrong
    rows.to_stream().group_by_key().reduce(lambda old, new: old.amount)  # wrong
    rows.to_stream().group_by(lambda _, order: order.customer)  # wrong


async def found(customer: str) -> Order | None:
    return None


def looked_up(stream: KStream[str, Order], numbered: KStream[int, Order]) -> None:
    numbered.look_up(found)  # wrong
    stream.look_up(found, by=lambda _, order: order.amount)  # wrong
    stream.look_up(found, ttl=5)  # wrong
    stream.look_up(found).map_pairs(lambda order, other: other.amount)  # wrong
    stream.look_up(found).map_values(lambda order: order.amount)  # wrong


def read(driver: TopologyTestDriver) -> None:
    for _, order in driver.read(orders):
        print(order.amount)  # wrong
    for _, order in driver.read(orders, tombstones=False):
        print(order.amont)  # wrong
    for record in driver.read_records(orders):
        print(record.value.amount)  # wrong


def summarized(stream: KStream[str, Order]) -> None:
    grouped = stream.group_by_key()
    grouped.summarize(lambda order: agg.sum(order.amont))  # wrong
    grouped.summarize(lambda order: Order(agg.first(order.customer), agg.first(order.customer)))  # wrong
    grouped.summarize(lambda order: Order(agg.first(order.customer), amont=agg.count()))  # wrong
    grouped.summarize(lambda order: agg.count(were=order.amount > 2))  # wrong
