"""The processor graph: sources, processors, sinks and stores.

``Topology`` is the low-level builder that the DSL uses and that users of the Processor API call directly. Each
node is checked when it is added; ``validate`` checks the graph as a whole.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Self

from attrs import Factory, define, frozen

from streams.core.arguments import NOT_GIVEN
from streams.core.errors import TopologyError
from streams.core.event_time.timestamps import Extractor, ExtractorName
from streams.core.serdes.serdes import Serde
from streams.core.settings.offset_reset import OffsetReset, policy_of
from streams.core.topic import Sink, Topic, agreed, check_topic_name, topic_name
from streams.core.user_code import is_same, refuse_unawaited, refuse_unawaited_methods
from streams.state import StoreSpec
from streams.topology.node_context import Operator
from streams.topology.processors import ProcessorOperator, ProcessorSupplier, StoreBuilder, serde_of

#: Chooses the partition of a record: (topic, key, value, number of partitions) -> partition or None.
Partitioner = Callable[[str, Any, Any, int], int | None]


@frozen
class SourceNode:
    """Reads topics, given by their names or by a pattern."""

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    #: How event times are determined: an extractor, the name of a policy, or None for the default from the
    #: settings.
    extractor: Extractor | ExtractorName | None = None
    offset_reset: str | None = None
    #: How long the source must be at its end before the stream time of its operators advances with the wall clock;
    #: 0 = never, None = the setting ``idle_close_ms``.
    idle_close_ms: int | None = None

    def reads(self, topic: str) -> bool:
        """Return whether this source reads a topic, which it has by name or whose name its pattern matches."""
        return topic in self.topics or (self.pattern is not None and self.pattern.fullmatch(topic) is not None)


def reader_of(topic: str, sources: Iterable[SourceNode]) -> SourceNode | None:
    """Return the source that reads a topic, None if there is none.

    Raises:
        TopologyError: two sources would read the topic, because their patterns overlap (KAFKA-3443).
    """
    readers = [source for source in sources if source.reads(topic)]
    if len(readers) > 1:
        both = " and ".join(
            f"{repr(source.pattern.pattern) if source.pattern else 'the name'} of source {source.name!r}"
            for source in readers
        )
        raise TopologyError(
            f"topic {topic!r} is matched by {both}, but a topic has one source; change the patterns so that one "
            "of them matches it, or read both as one stream with a pattern that matches all topics"
        )
    return readers[0] if readers else None


@frozen
class ProcessorNode:
    """Runs an operator on the records of its parents."""

    name: str
    operator: Operator
    parents: tuple[str, ...]


@frozen
class SinkNode:
    """Writes to one topic, or to the topic that ``topic_for(key, value, RecordContext)`` returns.

    Without a ``partitioner`` the bytes of the key determine the partition; for a windowed key, these are the
    bytes of the inner key.
    """

    name: str
    topic: str | None
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    parents: tuple[str, ...]
    topic_for: Callable[..., str] | None = None
    partitioner: Partitioner | None = None

    @property
    def is_plain(self) -> bool:
        """Return whether the topic is fixed and the partition depends only on the bytes of the key."""
        return self.topic_for is None and self.partitioner is None


Node = SourceNode | ProcessorNode | SinkNode


@frozen
class RepartitionTopic:
    """A repartition topic; ``partitions`` defaults to the largest partition count of the upstream source topics."""

    name: str
    partitions: int | None = None
    #: How long a live run waits for a writing task that does not move; 0 = records are read as they come, None = the
    #: setting ``repartition_patience_ms``.
    patience_ms: int | None = None


@frozen
class GlobalStore:
    """A global store, which every instance fills from all partitions of a topic."""

    spec: StoreSpec
    source: SourceNode
    processor: ProcessorNode


@define(repr=False)
class NodeGraph:
    """A graph of sources, processors, sinks and state stores.

    Node names are unique. Nodes are in the order in which they were added, which determines the numbers of the
    sub-topologies. Names of internal topics do not include the application id.
    """

    nodes: dict[str, Node] = Factory(dict)
    children: dict[str, list[str]] = Factory(dict)
    stores: dict[str, StoreSpec] = Factory(dict)
    #: Store name -> names of the connected nodes, in the order in which they were connected.
    store_users: dict[str, list[str]] = Factory(dict)
    global_stores: dict[str, GlobalStore] = Factory(dict)
    internal_topics: dict[str, RepartitionTopic] = Factory(dict)
    #: Store name -> source topic that serves as the changelog of the store (optimized tables).
    source_changelogs: dict[str, str] = Factory(dict)
    #: Names of all nodes, including the nodes of global stores, in the order in which they were added.
    order: list[str] = Factory(list)
    #: Declarations of the topics that were given as ``Topic`` objects, by topic name.
    topics: dict[str, Topic[Any, Any]] = Factory(dict)

    def add_source(
        self,
        name: str,
        *topics: str | Topic[Any, Any] | re.Pattern[str],
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        timestamp: Extractor | ExtractorName | None = None,
        offset_reset: OffsetReset | None = None,
    ) -> Self:
        """Add a source that reads topics; serdes come from ``Topic`` objects, or from ``key`` and ``value``.

        Raises:
            TopologyError: another node has this name, no topic is given, another source reads one of the topics, or
                the topics have different types or sources of event time.
        """
        patterns = [topic for topic in topics if isinstance(topic, re.Pattern)]
        if not topics or (patterns and len(topics) > 1):
            raise TopologyError(f"source {name!r}: give one or more topics, or one pattern")
        declared = [topic for topic in topics if isinstance(topic, Topic)]
        named = (topic for topic in topics if not isinstance(topic, re.Pattern))
        names = tuple(check_topic_name(topic_name(topic, f"source {name!r}")) for topic in named)
        first = declared[0] if declared else None
        for topic in declared:
            self.declare(topic)
            assert first is not None
            for what, form in (("key", key), ("value", value)):
                serde = getattr(first, f"{what}_serde")
                other = getattr(topic, f"{what}_serde")
                if form is NOT_GIVEN and serde.name != other.name:
                    raise TopologyError(
                        f"source {name!r}: the {what}s of {first.name!r} and {topic.name!r} have different types, "
                        f"{serde.name!r} and {other.name!r}; add a source for each"
                    )
            if timestamp is None and not is_same(topic.timestamp, first.timestamp):
                raise TopologyError(
                    f"source {name!r}: {first.name!r} and {topic.name!r} have different sources of event time; "
                    "add a source for each"
                )
        extractor: object = timestamp
        if callable(extractor):
            refuse_unawaited(extractor, f"timestamp of source {name!r}")
        refuse_unawaited_methods(timestamp, ("block", "one"), f"timestamp of source {name!r}")
        if timestamp is None and first is not None:
            timestamp = first.event_time
        self.add_node(
            SourceNode(
                name,
                names,
                patterns[0] if patterns else None,
                first.key_serde if first and key is NOT_GIVEN else serde_of(key),
                first.value_serde if first and value is NOT_GIVEN else serde_of(value),
                timestamp,
                policy_of(offset_reset, f"source {name!r}"),
            )
        )
        return self

    def add_processor(self, name: str, processor: ProcessorSupplier, *parents: str, stores: Iterable[str] = ()) -> Self:
        """Add a processor, given as a class or a factory function, downstream of its parents."""
        operator = ProcessorOperator(processor)
        self.add_node(ProcessorNode(name, operator, parents))
        self.connect_declared(name, operator)
        self.connect(name, *stores)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | Sink[Any, Any] | Callable[..., str],
        *parents: str,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        partitioner: Partitioner | None = None,
    ) -> Self:
        """Add a sink that writes the records of its parents to a topic, or to the topic that a function returns."""
        declared = topic if isinstance(topic, Topic) else None
        if not isinstance(topic, Topic) and not callable(topic):
            if not isinstance(topic, str):
                raise TopologyError(
                    f"sink {name!r} needs a Topic, a topic's name or a function that chooses one, got {topic!r}"
                )
            check_topic_name(topic)
        if callable(topic):
            refuse_unawaited(topic, f"topic of sink {name!r}")
        refuse_unawaited(partitioner, f"partitioner of sink {name!r}")
        if declared is not None:
            self.declare(declared)
        self.add_node(
            SinkNode(
                name,
                declared.name if declared else topic if isinstance(topic, str) else None,
                declared.key_serde if declared and key is NOT_GIVEN else serde_of(key, name),
                declared.value_serde if declared and value is NOT_GIVEN else serde_of(value, name),
                parents,
                topic if callable(topic) and declared is None else None,
                partitioner,
            )
        )
        return self

    def add_state_store(self, store: "StoreSpec | StoreBuilder[Any]", *processors: str) -> Self:
        """Add a store and connect it to processors.

        Raises:
            TopologyError: another store has this name, or a processor does not exist.
        """
        spec = store.spec() if isinstance(store, StoreBuilder) else store
        existing = self.stores.get(spec.name)
        if existing is not None and existing != spec:
            raise TopologyError(
                f"state store {spec.name!r} is added twice with different settings; choose another name"
            )
        if spec.name in self.global_stores:
            raise TopologyError(f"state store {spec.name!r}: a global store has this name")
        self.stores[spec.name] = spec
        self.store_users.setdefault(spec.name, [])
        for processor in processors:
            self.connect(processor, spec.name)
        return self

    def connect_declared(self, processor: str, operator: ProcessorOperator) -> None:
        """Add and connect the stores that a processor class declares as attributes."""
        for builder in operator.store_builders():
            if self.store_users.get(builder.name) and not builder.is_named:
                raise TopologyError(
                    f"processor {processor!r}: its store {builder.name!r} is already that of "
                    f"{self.store_users[builder.name][0]!r}; give it a name of its own, or the same name= to share it"
                )
            self.add_state_store(builder, processor)

    def connect(self, processor: str, *stores: str) -> Self:
        """Connect a processor to stores, given by name, so that it can access them."""
        for store in stores:
            if processor not in self.nodes:
                raise TopologyError(f"cannot connect store {store!r}: there is no processor {processor!r}")
            if store in self.global_stores:
                continue  # Every node can use global stores without being connected to them.
            if store not in self.stores:
                raise TopologyError(f"processor {processor!r}: there is no state store {store!r}; add it first")
            users = self.store_users[store]
            if processor not in users:
                users.append(processor)
        return self

    def add_global_store(self, store: GlobalStore) -> Self:
        """Add a global store, with its source and processor."""
        name = store.spec.name
        if name in self.stores or name in self.global_stores:
            raise TopologyError(f"global store {name!r}: a store of this name exists")
        self._check_new(store.source.name)
        self._check_topics(store.source)
        self.global_stores[name] = store
        self.order += [store.source.name, store.processor.name]
        return self

    def add_internal_topic(self, topic: RepartitionTopic) -> None:
        """Declare a repartition topic.

        Raises:
            TopologyError: another repartition topic has this name.
        """
        if topic.name in self.internal_topics:
            base = topic.name.removesuffix("-repartition")
            raise TopologyError(
                f"there are two repartition topics of the name {base!r}, which comes from the name= of a "
                "repartition(), a grouping or a join, or else from the store of the aggregation; give each its own "
                "name=, or use the repartitioned stream twice"
            )
        self.internal_topics[topic.name] = topic

    def declare(self, topic: Topic[Any, Any]) -> None:
        """Register the declaration of a topic: serdes, partition count, timestamp function, and file key function.

        Raises:
            TopologyError: the topic was declared before, with another type, function or partition count.
        """
        self.topics[topic.name] = agreed(self.topics.get(topic.name, topic), topic)

    def add_node(self, node: Node) -> None:
        """Add a node downstream of its parents.

        Raises:
            TopologyError: another node has this name, a parent does not exist or is a sink, or another source reads one
                of the topics.
        """
        self._check_new(node.name)
        if isinstance(node, SourceNode):
            self._check_topics(node)
        else:
            for parent in node.parents:
                self._check_parent(node.name, parent)
        self.nodes[node.name] = node
        self.order.append(node.name)
        self.children[node.name] = []
        if not isinstance(node, SourceNode):
            for parent in node.parents:
                self.children[parent].append(node.name)

    def offset_reset(self, topic: str) -> str | None:
        """Return the reset policy of a topic's source; None if it has none of its own."""
        source = reader_of(topic, self.sources())
        return None if source is None else source.offset_reset

    def sources(self) -> list[SourceNode]:
        """Return the source nodes in the order in which they were added."""
        return [node for node in self.nodes.values() if isinstance(node, SourceNode)]

    def all_sources(self) -> list[SourceNode]:
        """Return the source nodes, and those of the global stores."""
        return [*self.sources(), *(store.source for store in self.global_stores.values())]

    def sinks(self) -> list[SinkNode]:
        """Return the sink nodes in the order in which they were added."""
        return [node for node in self.nodes.values() if isinstance(node, SinkNode)]

    def stores_of(self, node: str) -> list[str]:
        """Return the names of the stores connected to a node."""
        return [store for store, users in self.store_users.items() if node in users]

    def _check_new(self, name: str) -> None:
        if not name:
            raise TopologyError("a node needs a name")
        taken = any(name in (store.source.name, store.processor.name) for store in self.global_stores.values())
        if name in self.nodes or taken:
            raise TopologyError(f"node {name!r} is added twice; node names are unique")

    def _check_parent(self, name: str, parent: str) -> None:
        if parent == name:
            raise TopologyError(f"node {name!r} cannot be its own parent")
        if parent not in self.nodes:
            raise TopologyError(f"node {name!r}: there is no parent {parent!r}; add it first")
        if isinstance(self.nodes[parent], SinkNode):
            raise TopologyError(f"node {name!r}: its parent {parent!r} is a sink, which forwards nothing")

    def _check_topics(self, source: SourceNode) -> None:
        for other in self.all_sources():
            both = set(source.topics) & set(other.topics)
            if both:
                raise TopologyError(
                    f"source {source.name!r}: topic {min(both)!r} is already read by source {other.name!r}; "
                    "use that stream twice instead"
                )
            for one, two in ((source, other), (other, source)):
                if one.pattern and (match := next((t for t in two.topics if one.pattern.fullmatch(t)), None)):
                    raise TopologyError(
                        f"source {source.name!r}: pattern {one.pattern.pattern!r} and topic {match!r} overlap"
                    )
