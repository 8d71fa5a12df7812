"""Schemas of topics at the start of an application: a wrong one ends the start, not the first record."""

from streams.core.serdes import FormatSerde
from streams.topology import SinkNode, SourceNode, Topology


def check_schemas(topology: Topology) -> None:
    """Register the schemas of what is written, and check that what is read can be read.

    Raises:
        SchemaError: a schema does not fit the others of its subject, or the registry does not answer.
    """
    for node in topology.nodes.values():
        if isinstance(node, (SinkNode, SourceNode)):
            for serde in (node.key_serde, node.value_serde):
                if isinstance(serde, FormatSerde):
                    serde.format.prepare(writes=isinstance(node, SinkNode))
