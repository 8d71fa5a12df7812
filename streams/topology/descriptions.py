"""The descriptions of the parts of a topology: its nodes, sub-topologies and global stores."""

from attrs import frozen


@frozen
class NodeDescription:
    """The description of one node: its kind, edges, topics and stores."""

    type: str
    name: str
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    topic: str | None = None
    stores: tuple[str, ...] = ()
    #: Names and milliseconds, such as ``idle_close`` of a source, ``ttl`` of a store, ``within`` of an operator.
    periods: tuple[tuple[str, int], ...] = ()
    #: Other limits and choices by name, such as ``concurrency`` of async calls, ``size`` of count windows in records;
    #: and ``behind_cache``, the stores whose record cache makes the results depend on commits.
    options: tuple[tuple[str, int | str], ...] = ()


@frozen
class SubTopologyDescription:
    """The description of one sub-topology, with its nodes in the order in which they were added."""

    id: int
    nodes: tuple[NodeDescription, ...]


@frozen
class GlobalStoreDescription:
    """The description of a global store, with its source and processor."""

    id: int
    source: str
    topics: tuple[str, ...]
    processor: str
    stores: tuple[str, ...]
