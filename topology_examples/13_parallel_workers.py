"""Orders that are confirmed by a slow service: eight workers, each customer's orders in their order.

A parallel consumer hands every partition to a pool of workers.  The service refuses an order now and
then, which is tried again with nothing of its partition overtaking it; an order that it never accepts
goes to a dead letter topic with the reason in its headers.  What is confirmed is written once to
another topic: producers are idempotent.

    python topology_examples/13_parallel_workers.py
"""

from collections import defaultdict
from threading import Lock

from streams import EmbeddedBroker, Topic, TopicPartition
from streams.clients import Consumer, ConsumerRecord, ParallelConsumer, Producer

PARTITIONS = 6
ORDERS = 60

orders = Topic("orders", key=str, value=int)
confirmed = Topic("confirmed", key=str, value=int)


class Service:
    """Accepts orders; each fourth one only at its third attempt, order 13 never."""

    def __init__(self) -> None:
        self.attempts: dict[int, int] = defaultdict(int)
        self._lock = Lock()

    def confirm(self, order: int) -> None:
        """Accept an order, or raise."""
        with self._lock:
            self.attempts[order] += 1
            attempts = self.attempts[order]
        if order == 13 or (order % 4 == 0 and attempts < 3):
            raise ConnectionError(f"order {order} was refused")


def main() -> None:
    """Send orders, confirm them in parallel, and show what has become of them."""
    service = Service()
    with EmbeddedBroker(default_partitions=PARTITIONS) as broker, Producer(broker) as producer:
        for number in range(ORDERS):
            producer.send(orders, number, key=f"customer {number % 10}")
        producer.flush()

        def handle(record: ConsumerRecord[str, int]) -> None:
            service.confirm(record.value)
            producer.send(confirmed, record.value, key=record.key).result()

        workers = ParallelConsumer(
            broker,
            "confirmation",
            [orders],
            handle,
            max_concurrency=8,
            max_attempts=4,
            retry_backoff_ms=1,
            dead_letter_topic="refused",
            auto_offset_reset="earliest",
        )
        workers.run(until=lambda: workers.handled + workers.dead_letters == ORDERS)
        show(broker, workers)


def show(broker: EmbeddedBroker, workers: ParallelConsumer) -> None:
    """Print what was confirmed, by customer, and what was refused."""
    by_customer: dict[str, list[int]] = defaultdict(list)
    with Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign(consumer.partitions_for("confirmed"), [confirmed])
        while sum(map(len, by_customer.values())) < ORDERS - 1:
            for record in consumer.poll(1_000):
                by_customer[record.key].append(record.value)
    for customer, numbers in sorted(by_customer.items()):
        print(f"{customer}: {' '.join(map(str, numbers))}")
    print(f"{workers.handled} handled, {workers.failed_attempts} attempts failed, {workers.dead_letters} given up")
    for number in range(PARTITIONS):
        for block in broker.read(TopicPartition("refused", number), 0):
            for _, key, _, _, headers in block.rows():
                reasons = dict(headers)
                print(f"refused: {(key or b'').decode()}: {(reasons['__streams.errors.message'] or b'').decode()}")


if __name__ == "__main__":
    main()
