"""Rebalances of large groups, each protocol: time on the virtual clock and CPU time of broker and consumers together.

    python -m tests.bench.rebalances {range,cooperative,consumer} [--members N] [--partitions N] [--interval-ms N]

All consumers join at once, then one more joins, then one leaves.  Each polls every 100 to 1,000 ms of the virtual
clock, and a rebalance is over when all have their share.
"""

import argparse
import time

from streams.broker import EmbeddedBroker
from streams.clients import Consumer
from streams.core.clock import VirtualClock
from streams.group import CooperativeStickyAssignor, CoordinatorConfig, RangeAssignor


def main() -> None:
    """Measure the protocol that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("protocol", choices=("range", "cooperative", "consumer"))
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--poll-ms", type=int, default=1_000)
    parser.add_argument("--interval-ms", type=int, default=1_000, help="consumer.assignment.interval.ms")
    options = parser.parse_args()
    clock = VirtualClock()

    def started() -> Consumer:
        if options.protocol == "consumer":
            consumer = Consumer(broker, "g", clock=clock, group_protocol="consumer")
        else:
            assignor = RangeAssignor() if options.protocol == "range" else CooperativeStickyAssignor()
            consumer = Consumer(broker, "g", clock=clock, assignors=[assignor])
        consumer.subscribe("t")
        return consumer

    def settled() -> bool:
        shares = [len(consumer.assignment()) for consumer in consumers]
        return sum(shares) == options.partitions and max(shares) - min(shares) <= 1

    def report(what: str) -> None:
        cpu, begin_ms = time.process_time(), clock.monotonic_ms()
        while True:
            for consumer in consumers:
                consumer.poll()
            if settled():
                break
            clock.advance(options.poll_ms)
        seconds = (clock.monotonic_ms() - begin_ms) / 1_000
        print(f"{options.protocol}, {what}: {seconds:.1f} s, {time.process_time() - cpu:.1f} s of CPU", flush=True)

    config = CoordinatorConfig(consumer_assignment_interval_ms=options.interval_ms)
    with EmbeddedBroker(clock=clock, group_config=config) as broker:
        broker.create_topic("t", options.partitions)
        consumers = [started() for _ in range(options.members)]
        report("all join")
        consumers.append(started())
        report("one joins")
        consumers.pop(0).close()
        report("one leaves")


if __name__ == "__main__":
    main()
