"""What the examples in the docstrings of the DSL stand on.

``orders`` is a stream of amounts by customer, ``lines`` one of texts without key, ``customers`` a
table of names, ``totals`` a table of amounts; ``play`` shows what comes out for some input.
"""

import asyncio
import sys
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from streams import agg
from streams.core.blocks.records import Windowed
from streams.core.event_time.windows import JoinWindows, SessionWindows, TimeWindows
from streams.core.topic import Topic
from streams.dsl import EmitStrategy, KStream, KTable, StreamsBuilder, Suppressed, ValueTransformer
from streams.testing import TopologyTestDriver
from streams.topology import Processor, key_value_store


class Examples:
    """One topology under construction, and the input of its topics."""

    def __init__(self) -> None:
        self.builder = StreamsBuilder()
        self.topics: dict[str, Topic[Any, Any]] = {
            "orders": Topic("orders", key=str, value=int),
            "lines": Topic("lines", value=str),
            "customers": Topic("customers", key=str, value=str),
            "totals": Topic("totals", key=str, value=int),
        }
        self.orders = self.builder.stream(self.topics["orders"])
        self.lines = self.builder.stream(self.topics["lines"])
        self.customers = self.builder.table(self.topics["customers"])
        self.totals = self.builder.table(self.topics["totals"])

    def driver_of(self, _: Any, *records: tuple[Any, ...]) -> TopologyTestDriver:
        """Run records: (key, value), (key, value, time), or either with the name of a topic before.

        Without a topic a record is an order, or a line if it has no key.
        """
        topology = self.builder.build()
        driver = TopologyTestDriver(topology)
        sources = [*topology.sources(), *(store.source for store in topology.global_stores.values())]
        known = {name: source for source in sources for name in source.topics}
        for number, record in enumerate(records):
            name = "lines" if record[0] is None else "orders"
            if len(record) > 2 and record[0] in known:
                name, record = record[0], record[1:]
            key, value, *time = record
            topic = Topic(name, key=known[name].key_serde, value=known[name].value_serde)
            driver.pipe(topic, value, key=key, timestamp_ms=time[0] if time else number)
        return driver

    def play(self, result: Any, *records: tuple[Any, ...]) -> list[tuple[Any, Any]]:
        """Run records and return what a stream or table made of them."""
        seen: list[tuple[Any, Any]] = []
        stream = result.to_stream() if isinstance(result, KTable) else result
        assert isinstance(stream, KStream)
        stream.for_each(lambda key, value: seen.append((key, value)))
        self.driver_of(result, *records)
        return seen


def shown(rows: list[tuple[Any, Any]]) -> None:
    """Print rows of windowed tables as key@start/end: value."""
    for key, value in rows:
        assert isinstance(key, Windowed)
        sys.stdout.write(f"{key.key}@{key.window.start_ms}/{key.window.end_ms}: {value}\n")


@pytest.fixture(autouse=True)
def examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    """Put a fresh topology into the names of each example of the DSL."""
    if not request.node.name.startswith("streams.dsl."):
        return
    made = Examples()
    negative = made.orders.filter(lambda customer, amount: amount < 0)
    positive = made.orders.filter(lambda customer, amount: amount > 0)
    both = (
        positive.group_by_key()
        .cogroup(lambda customer, amount, total: total + amount, value=int)
        .cogroup(negative.group_by_key(), lambda customer, amount, total: total - 1)
    )
    doctest_namespace.update(
        builder=made.builder,
        orders=made.orders,
        lines=made.lines,
        customers=made.customers,
        totals=made.totals,
        both=both,
        play=made.play,
        driver_of=made.driver_of,
        shown=shown,
        NamedTuple=NamedTuple,
        agg=agg,
        asyncio=asyncio,
        timedelta=timedelta,
        Topic=Topic,
        TimeWindows=TimeWindows,
        SessionWindows=SessionWindows,
        JoinWindows=JoinWindows,
        EmitStrategy=EmitStrategy,
        Suppressed=Suppressed,
        Processor=Processor,
        ValueTransformer=ValueTransformer,
        key_value_store=key_value_store,
    )
