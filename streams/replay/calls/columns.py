"""The names and serdes of output topics."""

from typing import Any

from streams.core.topic import Topic
from streams.files import ArrowRecords
from streams.topology import SinkNode, Topology


def output_topic(topology: Topology, name: str) -> Topic[Any, Any] | None:
    """Return an output topic of the topology with its serdes, or None if they are not known."""
    declared = topology.topics.get(name)
    if declared is not None:
        return declared
    for sink in topology.sinks():
        if isinstance(sink, SinkNode) and sink.topic == name:
            return Topic(name, key=sink.key_serde, value=sink.value_serde)
    return None


def output_schema(topology: Topology, name: str) -> Any:
    """Return the Arrow schema of an output topic as a table for a data lake."""
    return ArrowRecords(output_topic(topology, name), as_table=True).schema
