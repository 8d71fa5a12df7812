"""Check of topic schemas when an application starts, so that an incompatible schema prevents the start."""

from streams.core.serdes import FormatSerde
from streams.topology import SinkNode, SourceNode, Topology


def check_schemas(topology: Topology) -> None:
    """Register the schemas of the topics that are written, and check those of the topics that are read.

    Raises:
        SchemaError: a schema is incompatible with others of its subject, or the schema registry does not respond.
    """
    for node in topology.nodes.values():
        if isinstance(node, (SinkNode, SourceNode)):
            for serde in (node.key_serde, node.value_serde):
                if isinstance(serde, FormatSerde):
                    serde.format.prepare(writes=isinstance(node, SinkNode))
