"""Whether two systems have given the same results: the topic `out`, as a multiset or as the last value of each key.

Records are (key, value, timestamp); JSON is compared by value, for Kafka Streams' program writes the keys of an
object in the order of a class's fields, and streams sorts them.  Dumps are sorted by `sort`, so that
millions of records need no memory.
"""

import os
import subprocess
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, TopicPartition

from tests.bench.peers.topics import PARTITIONS

#: Queries with counts as values: eight bytes, most significant first.
_COUNTS = ("W1", "W2", "S1")

_canonical = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.decode


def dump(servers: str, query: str, path: Path) -> int:
    """Write the records of `out` as sorted lines of key, value and timestamp; return their number."""
    is_count = query.removesuffix("-cached").partition(",")[0] in _COUNTS
    is_final = query.endswith("-cached")
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "compare", "enable.auto.commit": False})
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition("out", number), 20)[1] for number in range(PARTITIONS)
    }
    consumer.assign([TopicPartition("out", number, 0) for number in range(PARTITIONS)])
    left, last = sum(ends.values()), {}
    raw = path.with_suffix(".unsorted")
    with raw.open("wb") as file:
        while left:
            messages = consumer.consume(10_000, 10.0)
            assert messages, f"{left} records of {query} are missing"
            left -= len(messages)
            for message in messages:
                key, value, timestamp = message.key(), message.value(), message.timestamp()[1]
                assert key is not None, f"a record of {query} without a key"
                if value is None:
                    text = b"null"
                else:
                    text = b"%d" % int.from_bytes(value, "big") if is_count else _canonical(_decode(value))
                if is_final:
                    last[key] = b"%b\t%b\t%d\n" % (key, text, timestamp)
                else:
                    file.write(b"%b\t%b\t%d\n" % (key, text, timestamp))
        file.writelines(last.values())
    consumer.close()
    subprocess.run(["sort", "-S", "512M", "-o", path, raw], env={**os.environ, "LC_ALL": "C"}, check=True)
    raw.unlink()
    return sum(ends.values())


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
