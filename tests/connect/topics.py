"""What a topic of an embedded broker, and the positions of a source, are at this moment."""

import json
from typing import Any

from streams.clients import Consumer
from streams.core.blocks.records import TopicPartition


def records_of(broker: Any, topic: Any, partition: int = 0) -> list[Any]:
    """The committed records of a partition, with the types of the topic."""
    return _read(broker, TopicPartition(topic.name, partition), [topic])


def last_positions(broker: Any, name: str) -> dict[str, Any]:
    """The positions of a source, by its partitions."""
    found = {}
    for record in _read(broker, TopicPartition(f"{name}-positions", 0), []):
        found[record.key.decode()] = record.value and json.loads(record.value)
    return {name: position for name, position in found.items() if position is not None}


def _read(broker: Any, partition: TopicPartition, topics: list[Any]) -> list[Any]:
    with Consumer(broker, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([partition], topics)
        consumer.seek_to_beginning([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[Any] = []
        while (consumer.known_position(partition) or 0) < end:
            found += consumer.poll(100)
        return found
