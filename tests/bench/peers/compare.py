"""Whether two systems have given the same results: the topic `out`, as a multiset or as the last value of each key.

Records are (key, value, timestamp); JSON is compared by value, for Kafka Streams' program writes the keys of an
object in the order of a class's fields, and streams sorts them.  Dumps are sorted by `sort`, so that
millions of records need no memory.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, TopicPartition

from tests.bench.peers.topics import PARTITIONS

#: Queries with counts as values: eight bytes, most significant first.
_COUNTS = ("W1", "W2", "S1")

_canonical = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.decode


def extent(query: str) -> str:
    """Say what of a query's output is compared, and why not all."""
    if query.endswith("-cached"):
        return "last value of each key: what a cache swallows depends on its size and on commits"
    if query == "S1":
        return "every record, input of one partition"
    if query == "J2":
        return "every record but bids at their auction's own millisecond, whose order is not defined"
    return "every record"


def _undefined(servers: str, query: str) -> set[tuple[bytes, int]]:
    """Keys and times of results that depend on which of two records of the same time goes first.

    A bid that meets the table in the very millisecond of its auction: Kafka Streams promises no order, and has
    taken the auction first where ours takes the input that the join names first.
    """
    if query != "J2":
        return set()
    return {(key, timestamp) for key, _, timestamp in _records(servers, "auctions")}


def _records(servers: str, topic: str) -> Iterator[tuple[bytes, bytes | None, int]]:
    """Yield key, value and timestamp of all that a topic has now."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "compare", "enable.auto.commit": False})
    try:
        partitions = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        left = sum(consumer.get_watermark_offsets(partition, 20)[1] for partition in partitions)
        consumer.assign(partitions)
        while left:
            messages = consumer.consume(10_000, 10.0)
            assert messages, f"{left} records of {topic} are missing"
            left -= len(messages)
            for message in messages:
                key = message.key()
                assert key is not None, f"a record of {topic} without a key"
                yield key, message.value(), message.timestamp()[1]
    finally:
        consumer.close()


def dump(servers: str, query: str, path: Path) -> None:
    """Write the records of `out` as sorted lines of key, value and timestamp."""
    is_count = query.removesuffix("-cached") in _COUNTS
    is_final = query.endswith("-cached")
    undefined = _undefined(servers, query)
    last: dict[bytes, bytes] = {}
    raw = path.with_suffix(".unsorted")
    with raw.open("wb") as file:
        for key, value, timestamp in _records(servers, "out"):
            if value is None:
                text = b"null"
            else:
                text = b"%d" % int.from_bytes(value, "big") if is_count else _canonical(_decode(value))
            line = b"%b\t%b\t%d\n" % (key, text, timestamp)
            if is_final:
                last[key] = line
            elif (key, timestamp) not in undefined:
                file.write(line)
        file.writelines(last.values())
    subprocess.run(["sort", "-S", "512M", "-o", path, raw], env={**os.environ, "LC_ALL": "C"}, check=True)
    raw.unlink()


def difference(ours: Path, theirs: Path, shown: int = 6) -> str:
    """Return how two dumps differ, by their first lines that do; empty if they are equal."""
    if subprocess.run(["cmp", "-s", ours, theirs]).returncode == 0:
        return ""
    found = []
    for option, whose in (("-23", "ours only"), ("-13", "theirs only")):
        with subprocess.Popen(
            ["comm", option, ours, theirs], stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"}
        ) as lines:
            assert lines.stdout is not None
            count = 0
            for count, line in enumerate(lines.stdout, 1):
                if count <= shown:
                    found.append(f"  {whose}: {line.decode(errors='replace').rstrip()}")
        found.append(f"  {whose}: {count:,} records")
    return "\n".join(found)
