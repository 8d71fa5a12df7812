"""A shop that is served: orders that are joined, counted and refused, for a browser to look at."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread
from typing import Any

from streams import EmbeddedBroker, Producer, State, Streams, StreamsBuilder, TimeWindows, Topic
from streams.web import WebServer
from tests import waiting

orders = Topic("orders", key=str, value=int, partitions=4)
customers = Topic("customers", key=str, value=str, partitions=4)
large = Topic("large-orders", key=str, value=str, partitions=4)
#: A page that shows keys as they are would run this one.
HOSTILE = '<img src=x onerror="document.title=1">&</script>'
NAMES = ("ann", "bob", "cem", "dee", "a/b ü", HOSTILE)
SETTINGS: dict[str, Any] = {
    "application_id": "shop",
    "num_stream_threads": 2,
    "commit_interval_ms": 50,
    "poll_ms": 20,
    "heartbeat_interval_ms": 20,
    "processing_exception_handler": "continue",
    "errors_dead_letter_queue_topic_name": "orders-failed",
}


def priced(amount: int) -> int:
    if amount < 0:
        raise ValueError(f"a negative amount: {amount}")
    return amount * 2


def shop(builder: StreamsBuilder) -> None:
    priced_orders = builder.stream(orders).map_values(priced)
    names = builder.table(customers)
    priced_orders.filter(lambda key, amount: amount > 100).join(names, lambda amount, name: f"{name}: {amount}").to(
        large
    )
    by_size = priced_orders.group_by(lambda key, amount: "large" if amount > 100 else "small")
    by_size.windowed_by(TimeWindows.of(timedelta(minutes=1))).count("per-minute")
    priced_orders.group_by_key().count("by-customer")


@contextmanager
def served(broker: EmbeddedBroker, token: str | None = None) -> Iterator[tuple[Streams, WebServer]]:
    """An instance of the shop with its server."""
    streams = Streams(shop, broker=broker, **SETTINGS)
    server = streams.serve(token=token)
    with streams:
        waiting.until(lambda: streams.state is State.RUNNING)
        yield streams, server


@contextmanager
def orders_coming(broker: EmbeddedBroker) -> Iterator[None]:
    """Orders of all customers until the end of the block; one in a hundred is refused."""
    is_over = Event()

    def send() -> None:
        number = 0
        with Producer(broker) as producer:
            for name in NAMES:
                producer.send(customers, name.title(), key=name)
            while not is_over.is_set():
                for _ in range(20):
                    number += 1
                    producer.send(orders, -1 if number % 100 == 0 else number * 7 % 200, key=NAMES[number % len(NAMES)])
                producer.flush()
                is_over.wait(0.05)

    thread = Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
