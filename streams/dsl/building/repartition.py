"""Names of repartition topics, and the nodes of the topology that write and read them.

The module imports only ``topology`` from outside ``dsl``.
"""

from streams.dsl.logical import LogicalNode
from streams.dsl.names import REPARTITION_SUFFIX, Names, is_generated
from streams.dsl.nodes import LogicalRepartition
from streams.dsl.serde_variables import SerdeVariable
from streams.topology import Partitioner


def repartition_node(
    names: Names,
    base: str,
    key: SerdeVariable,
    value: SerdeVariable,
    *,
    is_optimizable: bool = True,
    partitions: int | None = None,
    partitioner: Partitioner | None = None,
    patience_ms: int | None = None,
) -> LogicalNode:
    """Return the node for a repartition topic named ``<base>-repartition``; it takes three numbers from ``names``.

    Sink, filter and source have generated names if ``base`` is generated; otherwise their names are derived
    from the topic name.
    """
    topic = base if base.endswith(REPARTITION_SUFFIX) else base + REPARTITION_SUFFIX
    sink = names.generated("KSTREAM-SINK-")
    null_filter = names.generated("KSTREAM-FILTER-")
    source = names.generated("KSTREAM-SOURCE-")
    if not is_generated(base):
        sink = f"{topic}-sink"
        null_filter = f"{topic}-filter"
        source = f"{topic}-source"
    content = LogicalRepartition(
        topic, sink, source, null_filter, key, value, is_optimizable, partitions, partitioner, patience_ms
    )
    return LogicalNode(source, content)
