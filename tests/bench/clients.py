"""A million records through producer, broker and consumer, in one process and by one thread.

Nothing is left out of the clients: sequences of an idempotent producer, acknowledgements, fetches,
positions.  In process blocks travel as they are, so that what is measured is the work per request
and per record, not bytes.
"""

import gc
import statistics
import time
from collections.abc import Callable, Sequence

from attrs import frozen

from streams.broker import EmbeddedBroker
from streams.clients import Consumer, Producer
from streams.core.blocks.records import Block, TopicPartition
from tests.bench.harness import PARTITIONS, Measure

RECORDS = 1_000_000


@frozen
class Transfer:
    """One benchmark: how records go in and come out, and how many."""

    name: str
    records: int
    produce: Callable[[Producer, int], None]
    consume: Callable[[Consumer], int]
    linger_ms: int = 0


def partitions() -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(PARTITIONS)]


def blocks_of(size: int) -> Callable[[Producer, int], None]:
    block = Block([b"key-%d" % n for n in range(size)], [b"value-%032d" % n for n in range(size)], [0] * size)

    def produce(producer: Producer, count: int) -> None:
        for number in range(count // size):
            producer.send_block(TopicPartition("t", number % PARTITIONS), block)

    return produce


def one_by_one(producer: Producer, count: int) -> None:
    for number in range(count):
        producer.send("t", b"value-%032d" % number, key=b"key-%d" % (number & 1023))


def in_blocks(consumer: Consumer) -> int:
    return sum(len(block) for blocks in consumer.poll_blocks(1_000, 10_000).values() for block in blocks)


def in_records(consumer: Consumer) -> int:
    return len(consumer.poll(1_000))


TRANSFERS: Sequence[Transfer] = (
    Transfer("clients: blocks of 1,000", RECORDS, blocks_of(1_000), in_blocks),
    Transfer("clients: blocks of 100", RECORDS, blocks_of(100), in_blocks),
    Transfer("clients: record by record, linger 5 ms", RECORDS // 5, one_by_one, in_records, linger_ms=5),
    Transfer("clients: record by record, a request each", RECORDS // 20, one_by_one, in_records),
)


def measure_transfer(transfer: Transfer, runs: int) -> Measure:
    """Run a transfer several times, each with a broker of its own."""
    walls, cpus = [], []
    for _ in range(runs):
        wall, cpu = run_once(transfer)
        walls.append(wall / transfer.records)
        cpus.append(cpu / transfer.records)
    median = statistics.median(walls)
    spread = (max(walls) - min(walls)) / median
    return Measure(transfer.name, transfer.records, transfer.records, median, statistics.median(cpus), spread)


def run_once(transfer: Transfer) -> tuple[int, int]:
    """Return wall and CPU nanoseconds from the first record sent to the last one read."""
    with EmbeddedBroker() as broker:
        broker.create_topic("t", PARTITIONS)
        gc.collect()
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        with Producer(broker, linger_ms=transfer.linger_ms) as producer:
            transfer.produce(producer, transfer.records)
        with Consumer(broker, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions())
            read = 0
            while read < transfer.records:
                read += transfer.consume(consumer)
        wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
    assert read == transfer.records
    return wall, cpu
