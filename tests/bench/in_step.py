"""What event time in step costs a live application: marks of many tasks, marks at rest, and latency.

    python -m tests.bench.in_step idle [--partitions N] [--threads N] [--seconds N]
    python -m tests.bench.in_step marks [--partitions N] [--threads N] [--records N]
    python -m tests.bench.in_step latency [--rounds N] [--seconds N]

``idle``: an application whose tasks have N partitions in all, half of them of repartition topics, each of which 100
tasks write, processes one record and rests; the records that it writes to the progress topic meanwhile.  ``marks``: a
backlog in N partitions goes through a repartition topic of N partitions; records of the progress topic in each second.
``latency``: 1,000 records a second through a repartition topic, from the call of the producer to the call of the
consumer, with and without patience in turn; percentiles of each round, and the least of each.
"""

import argparse
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from streams import Consumer, EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic, TopicPartition
from streams.core.blocks.records import Block
from tests.waiting import until

APPLICATION = "in-step"
PROGRESS = TopicPartition(f"{APPLICATION}-progress", 0)
PER_S = 1_000
events = Topic("events", key=str, value=int)
counts = Topic("counts", key=str, value=int)
#: Tasks that write one repartition topic of the application at rest.
_WRITERS = 100
#: On a busy machine, so many threads in one process are not heard of for long.
_SETTINGS: dict[str, Any] = {"poll_ms": 10, "session_timeout_ms": 600_000}
_START_MS = 1_700_000_000_000


def counted(builder: StreamsBuilder, source: Topic[str, int] = events) -> None:
    """Count by another key."""
    groups = builder.stream(source).group_by(lambda key, value: f"{key}-{value % 97}", f"{source.name}-by")
    groups.count(f"{source.name}-n").to_stream().to(counts)


def echoed(builder: StreamsBuilder) -> None:
    """Give each value on under another key."""
    builder.stream(events).select_key(lambda _, value: str(value % 97)).repartition("by", key=str).to(counts)


@contextmanager
def running(
    topology: Callable[[StreamsBuilder], None], partitions: int, topics: Sequence[str] = ("events",), **settings: Any
) -> Iterator[tuple[EmbeddedBroker, Streams]]:
    """Yield a broker, and an application that has all its tasks and is paused."""
    with EmbeddedBroker() as broker:
        for name in topics:
            broker.create_topic(name, partitions)
        broker.create_topic("counts", 4)
        live = Streams(topology, application_id=APPLICATION, broker=broker, **_SETTINGS, **settings)
        live.pause()
        with live:
            threads = live.instance.stream_threads
            until(lambda: sum(len(thread.tasks) for thread in threads) == 2 * partitions * len(topics))
            until(lambda: all(thread.is_ready for thread in threads))
            yield broker, live


def put(broker: EmbeddedBroker, number: int, count: int) -> None:
    """Append records to a partition, 3 s apart."""
    keys = [f"p{number}".encode()] * count
    values = [events.value_serde.serialize(value) for value in range(count)]
    times = [_START_MS + value * 3_000 for value in range(count)]
    broker.append(TopicPartition("events", number), Block(keys, values, times))


def idle(options: argparse.Namespace) -> None:
    """Print the marks of an application at rest."""
    begin = time.monotonic()
    topics = ["events", *(f"events-{number}" for number in range(1, options.partitions // 2 // _WRITERS))]

    def topology(builder: StreamsBuilder) -> None:
        for name in topics:
            counted(builder, Topic(name, key=str, value=int))

    with running(topology, _WRITERS, topics, num_stream_threads=options.threads) as (broker, live):
        started_s = time.monotonic() - begin
        live.resume()
        put(broker, 0, 1)
        until(lambda: live.metrics["process-total"] == 2)
        threads = live.instance.stream_threads
        until(lambda: not any(task.has_work for thread in threads for task in list(thread.tasks.values())))
        begun = broker.end_offset(PROGRESS)
        time.sleep(1)
        before = broker.end_offset(PROGRESS)
        cpu_s = time.process_time()
        time.sleep(options.seconds)
        cpu_s = time.process_time() - cpu_s
        written = broker.end_offset(PROGRESS) - before
        print(
            f"idle: {options.partitions:,} partitions, {options.threads} threads, started in {started_s:.0f} s with "
            f"{begun:,} marks and {before - begun:,} in the first second; {written:,} in {options.seconds} s at rest, "
            f"{cpu_s / options.seconds:.1%} of a core, {memory()}"
        )


def marks(options: argparse.Namespace) -> None:
    """Print the marks of each second of a backlog."""
    begin = time.monotonic()
    with running(counted, options.partitions, num_stream_threads=options.threads) as (broker, live):
        print(f"marks: started in {time.monotonic() - begin:.0f} s, {memory()}", flush=True)
        each = options.records // options.partitions
        for number in range(options.partitions):
            put(broker, number, each)
        before = last = broker.end_offset(PROGRESS)
        cpu_s = time.process_time()
        begin = second = time.monotonic()
        live.resume()
        rates: list[float] = []
        while live.metrics["process-total"] < 2 * each * options.partitions:
            time.sleep(1)
            now = time.monotonic()
            end = broker.end_offset(PROGRESS)
            rates.append((end - last) / (now - second))
            second, last = now, end
        took_s = time.monotonic() - begin
        cpu_s = time.process_time() - cpu_s
        print(
            f"marks: {options.partitions:,} tasks to {options.partitions:,} partitions, {options.threads} threads: "
            f"{each * options.partitions:,} records in {took_s:.1f} s, {cpu_s:.1f} s of CPU; {last - before:,} marks, "
            f"{(last - before) / took_s:.0f} a second, {max(rates):.0f} in the busiest; {memory()}; "
            f"{live.metrics['repartition-wait-ended-total']:.0f} waits cut, "
            f"{live.metrics['dropped-records-total']:.0f} dropped"
        )


def latency(options: argparse.Namespace) -> None:
    """Print latencies with and without patience, in turn."""
    least: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, settings in (("default", {}), ("patience 0", {"repartition_patience_ms": 0})):
            times = sorted(one_round(options.seconds, settings))
            figures = [times[len(times) * share // 100] / 1e6 for share in (50, 99)]
            least[name] = [min(pair) for pair in zip(least.get(name, figures), figures, strict=True)]
            print(f"latency, {name}: p50 {figures[0]:.1f} ms, p99 {figures[1]:.1f} ms, {load()}", flush=True)
    for name, (half, most) in least.items():
        print(f"latency, {name}, least of {options.rounds}: p50 {half:.1f} ms, p99 {most:.1f} ms")


def one_round(seconds: int, settings: dict[str, Any]) -> list[int]:
    """Return the latencies of some seconds, but for the first one, in nanoseconds."""
    count = seconds * PER_S
    sent: list[int] = []
    seen: list[int] = []

    def read() -> None:
        while len(seen) < count:
            for record in consumer.poll(100):
                seen.append(time.monotonic_ns() - sent[int.from_bytes(record.value or b"", "big")])

    with running(echoed, 4, num_stream_threads=2, **settings) as (broker, live):
        live.resume()
        with Consumer(broker) as consumer, Producer(broker) as producer:
            partitions = [TopicPartition("counts", number) for number in range(4)]
            consumer.assign(partitions)
            consumer.seek_to_beginning(partitions)
            reader = threading.Thread(target=read)
            reader.start()
            begin = time.monotonic()
            for number in range(count):
                time.sleep(max(0.0, begin + number / PER_S - time.monotonic()))
                sent.append(time.monotonic_ns())
                producer.send(events, number, key=f"p{number % 40}")
                producer.flush()
            reader.join()
    return seen[PER_S:]


def memory() -> str:
    """Return the most memory that this process has had."""
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024:,.0f} MiB"


def load() -> str:
    """Return the load of the machine."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser()
    kinds = parser.add_subparsers(required=True)
    for measure, defaults in (
        # With 10,000 the internal topics are more than a broker creates at once.
        (idle, {"partitions": 9_800, "threads": 4, "seconds": 20}),
        (marks, {"partitions": 1_000, "threads": 40, "records": 1_000_000}),
        (latency, {"rounds": 5, "seconds": 6}),
    ):
        kind = kinds.add_parser(measure.__name__)
        kind.set_defaults(measure=measure)
        for name, value in defaults.items():
            kind.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    options.measure(options)
    print(load())


if __name__ == "__main__":
    main()
