"""Rows per second of each sink, `python -m tests.bench.sinks [NAME ...]`.

One worker reads a topic of 3 partitions of an embedded broker, whose values have four fields, in batches of 10,000,
and writes it to an empty target: the seconds from the start of the worker to a lag of zero.  Median of several runs.
"""

import argparse
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

from attrs import frozen

from streams.broker import EmbeddedBroker
from streams.clients import Producer
from streams.connect import SinkWorker
from streams.core.topic import Topic
from tests.bench.harness import machine
from tests.connect.targets import NAMES, target
from tests.waiting import until


@frozen
class Order:
    customer: str
    product: int
    amount: float
    is_paid: bool


ORDERS = Topic("orders", key=str, value=Order)


def seconds(broker: EmbeddedBroker, name: str, records: int, run: int) -> float:
    """Return the time that a worker takes to write the topic."""
    with tempfile.TemporaryDirectory() as folder, target(name, Path(folder)) as found:
        # The kit has small requests, to have many.
        sink = partial(found.make, batch_records=500)() if name == "http" else found.make()
        start = time.perf_counter()
        with SinkWorker(broker, ORDERS, sink, name=f"{name}-{run}") as worker:
            until(lambda: worker.progress.lag == 0 or not worker.is_running)
            taken = time.perf_counter() - start
        assert worker.progress.records == records
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[name for name in NAMES if name != "notebook"])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    print(machine())
    with EmbeddedBroker() as broker:
        broker.create_topic("orders", 3)
        with Producer(broker) as producer:
            for number in range(given.records):
                order = Order(f"customer-{number % 1000}", number % 77, number / 4, number % 3 == 0)
                producer.send(ORDERS, order, key=f"order-{number}")
        for name in given.names:
            taken = [seconds(broker, name, given.records, run) for run in range(given.runs)]
            median = statistics.median(taken)
            print(
                f"{name:<16} {given.records / median:>9,.0f} rows/s, from {given.records / max(taken):,.0f} to "
                f"{given.records / min(taken):,.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
