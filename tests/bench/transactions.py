"""How long a transaction takes on a real Kafka, which has version 2 of them (KIP-890).

    python -m tests.bench.transactions [--retry-backoff-ms MS] [--partitions N]

One producer commits one record to each partition, again and again.  A transaction that begins while the broker still
writes the markers of the one before waits at the broker: ``--retry-backoff-ms`` is the broker's
``add.partitions.to.txn.retry.backoff.ms``.  The jars are those of ``make kafka-jars``.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from streams import Producer
from streams.clients import Admin
from streams.protocol.messages import TopicSpec
from tests.kafka.node import KafkaNode

_WARM_UP = 20


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--retry-backoff-ms", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--transactions", type=int, default=200)
    options = parser.parse_args()
    settings = {"add.partitions.to.txn.retry.backoff.ms": options.retry_backoff_ms}
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaNode(Path(folder) / "node", settings=settings) as node,
        Admin(bootstrap_servers=node.bootstrap_servers) as admin,
        Producer(bootstrap_servers=node.bootstrap_servers, transactional_id="bench") as producer,
    ):
        admin.create_topics([TopicSpec("results", options.partitions)])
        producer.init_transactions()
        times_ms = []
        for _ in range(_WARM_UP + options.transactions):
            begin = time.perf_counter()
            producer.begin_transaction()
            for partition in range(options.partitions):
                producer.send("results", b"one", partition=partition)
            producer.commit_transaction()
            times_ms.append((time.perf_counter() - begin) * 1_000)
    low, *_, high = statistics.quantiles(times_ms[_WARM_UP:], n=10)
    middle = statistics.median(times_ms[_WARM_UP:])
    print(f"median {middle:.1f} ms, 10th percentile {low:.1f}, 90th {high:.1f}")


if __name__ == "__main__":
    main()
