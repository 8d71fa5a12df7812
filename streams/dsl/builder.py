"""``StreamsBuilder``, which adds sources to a topology, and ``build_topology``, which calls a topology function.

The builder is the interface between user code and the logical graph.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar, Unpack, cast, get_args, overload

from attrs import evolve, frozen
from typing_extensions import TypeForm

from streams.core.arguments import NOT_GIVEN
from streams.core.errors import TopologyError
from streams.core.event_time.timestamps import (
    Custom,
    Extractor,
    ExtractorName,
    TimestampFunction,
)
from streams.core.migrations import Migration
from streams.core.serdes.serdes import PartialSerde, Serde
from streams.core.settings.config import StreamsConfig
from streams.core.settings.offset_reset import OffsetReset, policy_of
from streams.core.topic import Topic, check_topic_name
from streams.core.user_code import refuse_unawaited_methods
from streams.dsl import optimize
from streams.dsl.building.migrating import add_migrations
from streams.dsl.building.side_outputs import SideOutputs
from streams.dsl.functions import check_function
from streams.dsl.global_table import GlobalKTable
from streams.dsl.logical import LogicalGlobalStore, LogicalGraph, LogicalNode, LogicalStore
from streams.dsl.materialized import SAME_AS_NAME, StoreOptions, key_value, store_name, to_ms
from streams.dsl.nodes import LogicalGlobalTable, LogicalOperator, LogicalSource, LogicalTableSource
from streams.dsl.processing import TableSource
from streams.dsl.ref import GlobalTableRef, StreamRef, TableRef
from streams.dsl.serde_variables import declared
from streams.dsl.stream import KStream
from streams.dsl.table import KTable
from streams.dsl.table_state import SourceState
from streams.state import StoreSpec
from streams.topology import (
    GlobalStore,
    Processor,
    ProcessorNode,
    ProcessorOperator,
    StoreBuilder,
    Topology,
)

K = TypeVar("K")
V = TypeVar("V")

#: The source of event times: a policy by name, a function of (key, value, record
#: timestamp, partition time), or an extractor.
Timestamp: TypeAlias = ExtractorName | TimestampFunction | Extractor


class StreamsBuilder:
    """Builds a topology from streams and tables.

    In the examples, ``builder`` is a ``StreamsBuilder``, and ``play`` shows the output for some input records.
    """

    def __init__(self) -> None:
        self._migrations: tuple[Migration, ...] = ()
        self._graph = LogicalGraph()
        self._built: tuple[str, Topology] | None = None

    @overload
    def stream(
        self,
        topic: Topic[K, V],
        *topics: Topic[K, V],
        name: str | None = None,
        timestamp: Timestamp | None = None,
        offset_reset: OffsetReset | None = None,
        idle_close: timedelta | None = None,
    ) -> KStream[K, V]: ...
    @overload
    def stream(
        self,
        topic: str | re.Pattern[str],
        *topics: str,
        key: TypeForm[K],
        value: TypeForm[V],
        name: str | None = None,
        timestamp: Timestamp | None = None,
        offset_reset: OffsetReset | None = None,
        idle_close: timedelta | None = None,
    ) -> KStream[K, V]: ...
    @overload
    def stream(
        self,
        topic: str | re.Pattern[str],
        *topics: str,
        key: TypeForm[K] | Serde[K],
        value: TypeForm[V] | Serde[V],
        name: str | None = None,
        timestamp: Timestamp | None = None,
        offset_reset: OffsetReset | None = None,
        idle_close: timedelta | None = None,
    ) -> KStream[K, V]: ...
    def stream(
        self,
        topic: Any,
        *topics: Any,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        name: str | None = None,
        timestamp: Timestamp | None = None,
        offset_reset: OffsetReset | None = None,
        idle_close: timedelta | None = None,
    ) -> KStream[Any, Any]:
        """Read one or more topics, or all topics whose names match a pattern, as a stream.

        ``timestamp`` is the source of event times; the default comes from the ``Topic`` or from the settings.
        ``offset_reset`` is where a live run begins in a partition without a committed offset: ``earliest``, ``latest``,
        ``none``, which is an error, or a timedelta back from now (KIP-1106); the default is the setting
        ``auto_offset_reset``.  When the source has had no further records for ``idle_close``,
        the stream time of its operators advances with the wall clock, so that windows close without a further record;
        the default is the setting ``idle_close_ms``, and 0 means never.

        >>> play(builder.stream("orders", key=str, value=int), ("ann", 1))
        [('ann', 1)]

        Raises:
            TopologyError: the topics have different types or event time sources, types are missing, or ``idle_close``
                is negative or a fraction of 1 ms.
        """
        source = _Source.of("stream", (topic, *topics), key, value, timestamp, offset_reset)
        full_name = self._graph.names.node(name, "KSTREAM-SOURCE-")
        content = source.logical(full_name)
        content.idle_close_ms = None if idle_close is None else to_ms(idle_close, "idle_close of stream")
        source.declare(self._graph)
        node = self._graph.add(self._graph.root, LogicalNode(full_name, content))
        return KStream(StreamRef(self._graph, node, content.key, content.value))

    @overload
    def table(
        self,
        topic: Topic[K, V],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        timestamp: Timestamp | None = None,
        offset_reset: OffsetReset | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V]: ...
    @overload
    def table(
        self,
        topic: str,
        name: str | None = None,
        *,
        key: TypeForm[K],
        value: TypeForm[V],
        store: str | None = SAME_AS_NAME,
        timestamp: Timestamp | None = None,
        offset_reset: OffsetReset | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V]: ...
    @overload
    def table(
        self,
        topic: str,
        name: str | None = None,
        *,
        key: TypeForm[K] | Serde[K],
        value: TypeForm[V] | Serde[V],
        store: str | None = SAME_AS_NAME,
        timestamp: Timestamp | None = None,
        offset_reset: OffsetReset | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V]: ...
    def table(
        self,
        topic: Any,
        name: str | None = None,
        *,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        store: str | None = SAME_AS_NAME,
        timestamp: Timestamp | None = None,
        offset_reset: OffsetReset | None = None,
        **options: Unpack[StoreOptions],
    ) -> KTable[Any, Any]:
        """Read a topic as a table: each record replaces the row for its key, and the value None deletes the row.

        ``name`` is also the store name unless ``store`` is given; ``history`` keeps old versions of rows, and with
        ``ttl``, a row expires if it is not updated for that period of event time.  ``offset_reset`` is that of
        ``stream``.

        >>> prices = builder.table("prices", name="current-prices", key=str, value=int)
        >>> play(prices, ("prices", "tea", 3), ("prices", "tea", None))
        [('tea', 3), ('tea', None)]
        """
        source = _Source.of("table", (topic,), key, value, timestamp, offset_reset)
        explicit_name = store_name(name, store)
        names = self._graph.names
        topic_name = source.single("table")
        topics = source.logical(topic_name)
        materialized = key_value(
            self._graph, explicit_name, f"{topic_name}-", topics.key, topics.value, options, can_expire=True
        )
        source_name = names.suffixed(name, "-source", "KSTREAM-SOURCE-")
        full_name = names.node(name, "KTABLE-SOURCE-")
        source.declare(self._graph)
        state = SourceState(materialized, materialized.is_needed or isinstance(source.value, PartialSerde))
        process = LogicalOperator(lambda: TableSource(state.store, state.send_old, source.value), state.specs)
        content = LogicalTableSource(source_name, topics, process, lambda: state.store)
        node = LogicalNode(full_name, content, is_output_versioned=materialized.is_versioned)
        self._graph.add(self._graph.root, node)
        rows = StreamRef(self._graph, node, topics.key, topics.value)
        table = TableRef(self._graph, node, topics.key, topics.value, state)
        table.side = SideOutputs.at(node, rows)
        return KTable(table)

    @overload
    def global_table(
        self,
        topic: Topic[K, V],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        timestamp: Timestamp | None = None,
        **options: Unpack[StoreOptions],
    ) -> GlobalKTable[K, V]: ...
    @overload
    def global_table(
        self,
        topic: str,
        name: str | None = None,
        *,
        key: TypeForm[K],
        value: TypeForm[V],
        store: str | None = SAME_AS_NAME,
        timestamp: Timestamp | None = None,
        **options: Unpack[StoreOptions],
    ) -> GlobalKTable[K, V]: ...
    @overload
    def global_table(
        self,
        topic: str,
        name: str | None = None,
        *,
        key: TypeForm[K] | Serde[K],
        value: TypeForm[V] | Serde[V],
        store: str | None = SAME_AS_NAME,
        timestamp: Timestamp | None = None,
        **options: Unpack[StoreOptions],
    ) -> GlobalKTable[K, V]: ...
    def global_table(
        self,
        topic: Any,
        name: str | None = None,
        *,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        store: str | None = SAME_AS_NAME,
        timestamp: Timestamp | None = None,
        **options: Unpack[StoreOptions],
    ) -> GlobalKTable[Any, Any]:
        """Read a topic as a global table, which has all rows on every instance.

        >>> names = builder.global_table("names", key=int, value=str)
        >>> named = orders.join(names, lambda amount, name: name, key=lambda customer, amount: amount)
        >>> play(named, ("names", 7, "seven"), ("ann", 7))
        [('ann', 'seven')]
        """
        source = _Source.of("global_table", (topic,), key, value, timestamp, None)
        if "history" in options:
            raise TopologyError("a global table cannot be versioned; leave out history=")
        names = self._graph.names
        topic_name = source.single("global_table")
        topics = source.logical(topic_name)
        types = topics.key, topics.value
        materialized = key_value(self._graph, store_name(name, store), f"{topic_name}-", *types, options)
        materialized.has_changelog = False
        source_name = names.suffixed(name, "-source", "KSTREAM-SOURCE-")
        full_name = names.node(name, "KTABLE-SOURCE-")
        source.declare(self._graph)
        operator = TableSource(materialized.store, serde=source.value)
        content = LogicalGlobalTable(source_name, topics, lambda: operator, materialized.spec)
        self._graph.add(self._graph.root, LogicalNode(full_name, content))
        return GlobalKTable(GlobalTableRef(self._graph, *types, materialized.store))

    def add_state_store(self, store: StoreBuilder[Any] | StoreSpec) -> "StreamsBuilder":
        """Add a store for processors; ``process(..., stores=[...])`` connects it by name.

        >>> _ = builder.add_state_store(key_value_store(str, int, "seen"))
        >>> class Last(Processor[str, int, str, int]):
        ...     def process(self, record):
        ...         seen = self.context.store("seen")
        ...         self.context.forward(record.key, seen.get(record.key))
        ...         seen.put(record.key, record.value)
        >>> play(orders.process(Last, stores=["seen"]), ("ann", 1), ("ann", 2))
        [('ann', None), ('ann', 1)]
        """
        spec = _spec(store, "add_state_store")
        self._graph.claim_store(spec.name)
        self._graph.add(self._graph.root, LogicalNode(spec.name, LogicalStore(spec)))
        return self

    def add_global_store(
        self,
        store: StoreBuilder[Any] | StoreSpec,
        topic: Topic[K, V] | str,
        processor: Callable[[], Processor[K, V, Any, Any]],
        name: str | None = None,
        *,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        timestamp: Timestamp | None = None,
    ) -> "StreamsBuilder":
        """Add a global store, which a processor fills from all partitions of a topic on every instance.

        >>> class Keep(Processor[str, int, None, None]):
        ...     def process(self, record):
        ...         self.context.store("limits").put(record.key, record.value)
        >>> _ = builder.add_global_store(key_value_store(str, int, "limits"), Topic("limit", key=str, value=int), Keep)
        >>> driver_of(orders, ("limit", "ann", 9)).store("limits").get("ann")
        9
        """
        spec = _spec(store, "add_global_store")
        self._graph.claim_store(spec.name)
        source = _Source.of("add_global_store", (topic,), key, value, timestamp, None)
        check_function(processor, "add_global_store", "()")
        source.single("add_global_store")
        names = self._graph.names
        source_name = names.suffixed(name, "-source", "KSTREAM-SOURCE-")
        full_name = names.node(name, "KTABLE-SOURCE-")
        source.declare(self._graph)
        global_store = GlobalStore(
            evolve(spec, has_changelog=False),
            source.logical(full_name).source(source_name),
            ProcessorNode(full_name, ProcessorOperator(processor), (source_name,)),
        )
        self._graph.add(self._graph.root, LogicalNode(full_name, LogicalGlobalStore(global_store)))
        return self

    def migrate(self, *migrations: Migration) -> "StreamsBuilder":
        """Add migrations, which convert entries that an earlier version of this topology has left in stores.

        Entries are converted when a store is restored from its changelog, on disk too, each of them once.  Each store
        has one chain of migrations, from each version to the next.

        >>> from streams import migrate
        >>> @migrate("totals", 1, 2)
        ... def in_cents(euros: int) -> int:
        ...     return euros * 100
        >>> fresh = StreamsBuilder()
        >>> orders = fresh.stream("orders", key=str, value=int).group_by_key()
        >>> orders.reduce(lambda a, b: a + b, name="totals").to_stream().to("sums")
        >>> fresh.migrate(in_cents).build().stores["totals"].migrations[0].to_version
        2

        Raises:
            TopologyError: an argument is no result of ``migrate``.
        """
        for item in migrations:
            if not isinstance(item, Migration):
                raise TopologyError(f"migrate() takes functions that are decorated with @migrate(...), not {item!r}")
        self._migrations += migrations
        return self

    def build(self, *, topology_optimization: str = "none") -> Topology:
        """Build and return the topology; ``topology_optimization`` is ``none`` or ``all`` (KIP-295).

        >>> fresh = StreamsBuilder()
        >>> fresh.stream("orders", key=str, value=int).to("copy")
        >>> list(fresh.build().nodes)
        ['KSTREAM-SOURCE-0000000000', 'KSTREAM-SINK-0000000001']

        Raises:
            TopologyError: the topology is invalid as a whole, or ``all`` cannot merge its repartition topics.  As in
                Kafka Streams, the latter happens if an upstream operator leads to several repartition topics, or
                if one merge follows another.
        """
        if topology_optimization not in ("none", "all"):
            raise TopologyError(f"topology_optimization must be 'none' or 'all', not {topology_optimization!r}")
        if self._built is None:
            self._graph.is_built = True
            self._built = topology_optimization, optimize.write(self._graph, topology_optimization)
            add_migrations(self._built[1], self._migrations)
        if self._built[0] != topology_optimization:
            raise TopologyError(f"the topology is built already, with topology_optimization={self._built[0]!r}")
        return self._built[1]


_POLICIES: tuple[str, ...] = get_args(ExtractorName)


def _spec(store: Any, operator: str) -> StoreSpec:
    if isinstance(store, StoreBuilder):
        return store.spec()
    if isinstance(store, StoreSpec):
        return store
    raise TopologyError(f"{operator} needs a store such as key_value_store(str, int, 'name'), got {store!r}")


@frozen
class _Source:
    """The validated arguments of a source."""

    names: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key: Serde[Any] | Any
    value: Serde[Any] | Any
    extractor: Extractor | ExtractorName | None
    offset_reset: str | None
    declared: tuple[Topic[Any, Any], ...]

    @classmethod
    def of(
        cls, operator: str, topics: tuple[Any, ...], key: Any, value: Any, timestamp: Any, offset_reset: Any
    ) -> "_Source":
        """Check the arguments of a source.

        Raises:
            TopologyError: the arguments contradict each other.
        """
        declared = tuple(topic for topic in topics if isinstance(topic, Topic))
        patterns = [topic for topic in topics if isinstance(topic, re.Pattern)]
        if patterns and (len(topics) > 1 or operator != "stream"):
            raise TopologyError(
                f"{operator}: only stream() takes a pattern, and no other topic with it; got {topics!r}"
            )
        names = tuple(_topic_name(topic, operator) for topic in topics if not isinstance(topic, re.Pattern))
        if len(set(names)) < len(names):
            raise TopologyError(f"{operator} of {', '.join(names)}: a topic is given twice")
        shown = ", ".join(names) or repr(patterns[0].pattern)
        key = _common(operator, shown, "key", key, [topic.key_serde for topic in declared])
        value = _common(operator, shown, "value", value, [topic.value_serde for topic in declared])
        if isinstance(value, PartialSerde) and operator not in ("table", "global_table"):
            raise TopologyError(
                f"{operator} of {shown}: its values ({value.name}) keep what the former row has, which only a table "
                "knows; read it with table() or global_table()"
            )
        extractor = _extractor(operator, shown, timestamp, declared, len(names))
        policy = policy_of(offset_reset, f"{operator} of {shown}")
        return cls(names, patterns[0] if patterns else None, key, value, extractor, policy, declared)

    def single(self, operator: str) -> str:
        """Return the topic of a source that must have exactly one."""
        if len(self.names) != 1:
            raise TopologyError(f"{operator} needs one topic, got {self.names!r}")
        return self.names[0]

    def logical(self, node: str) -> LogicalSource:
        """Return this source as the content of a logical node, with new serde variables."""
        types = declared(self.key, node), declared(self.value, node)
        return LogicalSource(self.names, self.pattern, *types, self.extractor, self.offset_reset)

    def declare(self, graph: LogicalGraph) -> None:
        """Register the declarations of the source's topics in the graph."""
        for topic in self.declared:
            graph.declare(topic)


def _topic_name(topic: Any, operator: str) -> str:
    if isinstance(topic, Topic):
        return topic.name
    if isinstance(topic, str):
        return check_topic_name(topic)
    raise TopologyError(f"{operator} needs a Topic or a topic's name with key= and value=, got {topic!r}")


def _common(operator: str, topics: str, side: str, form: Any, serdes: list[Serde[Any]]) -> Any:
    """Return the key or value type of a source: ``form`` if given, otherwise the type that all topics declare.

    Raises:
        TopologyError: no type is known, or the topics have different types.
    """
    if form is not NOT_GIVEN:
        return form
    if not serdes:
        raise TopologyError(f"{operator} of {topics}: give {side}=, the type of the {side}s")
    if len({serde.name for serde in serdes}) > 1:
        shown = ", ".join(serde.name for serde in serdes)
        raise TopologyError(
            f"{operator} of {topics}: the {side}s have different types ({shown}); read each topic as a stream "
            "of its own and merge() them"
        )
    return serdes[0]


def _extractor(
    operator: str, topics: str, timestamp: Any, declared: tuple[Topic[Any, Any], ...], count: int
) -> Extractor | ExtractorName | None:
    """Return the timestamp extractor of the source, or None to use the extractor from the settings."""
    if timestamp is not None:
        if hasattr(timestamp, "block"):
            refuse_unawaited_methods(timestamp, ("block", "one"), f"timestamp of {operator}")
            extractor: Extractor = timestamp
            return extractor
        if isinstance(timestamp, str):
            if timestamp not in _POLICIES:
                raise TopologyError(
                    f"{operator} of {topics}: unknown timestamp policy {timestamp!r}; there are {', '.join(_POLICIES)}"
                )
            return cast(ExtractorName, timestamp)
        form = "(key, value, record_timestamp_ms, partition_time_ms)"
        return Custom(topics, check_function(timestamp, f"timestamp of {operator}", form))
    declarations = [topic.event_time for topic in declared if topic.event_time is not None]
    if not declarations:
        return None
    if len({each.function for each in declarations}) > 1 or len(declarations) < count:
        raise TopologyError(
            f"{operator} of {topics}: the topics have different sources of event time; read each topic as a "
            "stream of its own and merge() them"
        )
    return evolve(declarations[0], topic=topics)


#: A topology: a function that takes the builder, or a built ``Topology``.
TopologySource: TypeAlias = Callable[[StreamsBuilder], Any] | Topology


def build_topology(topology: TopologySource, config: StreamsConfig | None = None) -> Topology:
    """Call a topology function and return its topology; a built ``Topology`` is returned unchanged.

    If the function itself returns a ``Topology``, that topology is used.

    Raises:
        TopologyError: the argument is neither a function nor a ``Topology``, or the topology cannot be built.
    """
    if isinstance(topology, Topology):
        return topology
    if isinstance(topology, StreamsBuilder):
        raise TopologyError("give the function that takes the StreamsBuilder, or builder.build()")
    check_function(topology, "the topology", "(builder)")
    builder = StreamsBuilder()
    built = topology(builder)
    if isinstance(built, Topology):
        return built
    return builder.build(topology_optimization="none" if config is None else config.topology_optimization)
