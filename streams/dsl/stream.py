"""``KStream``: a stream of records, and the operators on it.

Each method adds a node to the logical graph and returns its output; nothing runs before the
topology is built.  In the examples ``lines`` is a stream of texts without keys, ``orders`` is a stream of
amounts by customer, and ``customers`` is a table of names; ``play`` shows the output for some input.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar, Unpack, overload

from attrs import define
from typing_extensions import TypeForm

from streams.core.arguments import NOT_GIVEN
from streams.core.blocks.records import RecordContext
from streams.core.event_time.windows import JoinWindows
from streams.core.serdes.serdes import Serde
from streams.core.topic import Sink
from streams.dsl.branched import Branched
from streams.dsl.building import async_operators, batch_operators, stream_joins, stream_operators
from streams.dsl.building.asof_joins import AsOfOptions, join_latest
from streams.dsl.building.async_operators import CallPolicy, Pairs
from streams.dsl.building.deduplication import DeduplicationOptions, deduplicate
from streams.dsl.building.join_arguments import StreamJoinOptions, TableLookupOptions
from streams.dsl.building.look_ups import LookUpOptions, look_up, map_pairs
from streams.dsl.global_table import GlobalKTable
from streams.dsl.grouped import KGroupedStream
from streams.dsl.materialized import SAME_AS_NAME, StoreArguments, StoreOptions
from streams.dsl.processing import JoinKind
from streams.dsl.ref import StreamRef
from streams.dsl.table import KTable
from streams.topology import Partitioner, Processor

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
KO = TypeVar("KO")
VO = TypeVar("VO")
GK = TypeVar("GK")
R = TypeVar("R")
D = TypeVar("D")
A = TypeVar("A")
L = TypeVar("L")


@define(eq=False, repr=False)
class KStream(Generic[K, V]):
    """A stream of records with keys of type ``K`` and values of type ``V``.

    In every operator, ``name`` is the name of its node, and of what belongs to the node; ``key`` and ``value`` are
    types or serdes of what its functions return, which otherwise are those of their annotations or of the first record.
    """

    _ref: StreamRef

    def __repr__(self) -> str:
        return repr(self._ref)

    # Operators on single records.

    def filter(self, predicate: Callable[[K, V], object], name: str | None = None) -> "KStream[K, V]":
        """Keep the records for which ``predicate(key, value)`` is true.

        >>> play(orders.filter(lambda customer, amount: amount > 1), ("ann", 1), ("bob", 2))
        [('bob', 2)]
        """
        return KStream(stream_operators.filter_records(self._ref, predicate, name, negate=False))

    def filter_not(self, predicate: Callable[[K, V], object], name: str | None = None) -> "KStream[K, V]":
        """Drop the records for which ``predicate(key, value)`` is true.

        >>> play(orders.filter_not(lambda customer, amount: amount > 1), ("ann", 1), ("bob", 2))
        [('ann', 1)]
        """
        return KStream(stream_operators.filter_records(self._ref, predicate, name, negate=True))

    def map(
        self,
        mapper: Callable[[K, V], tuple[K2, V2]],
        name: str | None = None,
        *,
        key: TypeForm[K2] | Serde[K2] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
    ) -> "KStream[K2, V2]":
        """Replace key and value with the pair that ``mapper(key, value)`` returns.

        >>> play(orders.map(lambda customer, amount: (amount, customer)), ("ann", 1))
        [(1, 'ann')]
        """
        return KStream(stream_operators.map_records(self._ref, mapper, name, key, value))

    @overload
    def map_values(
        self, mapper: Callable[[V], V2], name: str | None = None, *, value: TypeForm[V2] | Serde[V2] = NOT_GIVEN
    ) -> "KStream[K, V2]": ...
    @overload
    def map_values(
        self, mapper: Callable[[K, V], V2], name: str | None = None, *, value: TypeForm[V2] | Serde[V2] = NOT_GIVEN
    ) -> "KStream[K, V2]": ...
    def map_values(
        self, mapper: Callable[..., Any], name: str | None = None, *, value: Any = NOT_GIVEN
    ) -> "KStream[Any, Any]":
        """Replace the value with the result of ``mapper(value)`` or ``mapper(key, value)``.

        >>> play(lines.map_values(str.upper), (None, "hi"))
        [(None, 'HI')]
        """
        return KStream(stream_operators.map_values(self._ref, mapper, name, value))

    def flat_map(
        self,
        mapper: Callable[[K, V], Iterable[tuple[K2, V2]]],
        name: str | None = None,
        *,
        key: TypeForm[K2] | Serde[K2] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
    ) -> "KStream[K2, V2]":
        """Replace each record with the pairs that ``mapper(key, value)`` returns.

        >>> play(lines.flat_map(lambda _, line: [(word, len(word)) for word in line.split()]), (None, "to be"))
        [('to', 2), ('be', 2)]
        """
        return KStream(stream_operators.flat_map(self._ref, mapper, name, key, value))

    @overload
    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[V2]],
        name: str | None = None,
        *,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
    ) -> "KStream[K, V2]": ...
    @overload
    def flat_map_values(
        self,
        mapper: Callable[[K, V], Iterable[V2]],
        name: str | None = None,
        *,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
    ) -> "KStream[K, V2]": ...
    def flat_map_values(
        self, mapper: Callable[..., Any], name: str | None = None, *, value: Any = NOT_GIVEN
    ) -> "KStream[Any, Any]":
        """Replace each record with one record per value returned by ``mapper(value)`` or ``mapper(key, value)``.

        >>> play(lines.flat_map_values(lambda line: line.split()), (None, "to be"))
        [(None, 'to'), (None, 'be')]
        """
        return KStream(stream_operators.flat_map_values(self._ref, mapper, name, value))

    @overload
    def map_values_async(
        self,
        mapper: Callable[[V], Awaitable[V2]],
        name: str | None = None,
        *,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
        **options: Unpack[CallPolicy],
    ) -> "KStream[K, V2]": ...
    @overload
    def map_values_async(
        self,
        mapper: Callable[[K, V], Awaitable[V2]],
        name: str | None = None,
        *,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
        **options: Unpack[CallPolicy],
    ) -> "KStream[K, V2]": ...
    def map_values_async(
        self, mapper: Any, name: str | None = None, *, value: Any = NOT_GIVEN, **options: Unpack[CallPolicy]
    ) -> Any:
        """Replace the value with the result of the async function ``mapper(value)`` or ``mapper(key, value)``.

        The stream thread does not wait for calls: they run on an event loop in a thread of its own, and commits store
        the records in flight.  After a crash their calls are repeated: with exactly-once each record has one result,
        but the function may be called more than once for it.  A result has the timestamp and headers of its record.

        Options, all optional: ``concurrency`` is the maximum number of calls in flight, for this operator in one stream
        thread (default 100).  ``order`` is ``"key"`` (default: calls of one key run one after another; records without
        a key have no order), ``"partition"`` (results are in the order of the records of each input partition) or
        ``"none"`` (results are in the order in which calls end).  An attempt fails with ``TimeoutError`` after
        ``timeout`` (default one minute; None = never).  A failed call is retried up to ``retries`` times (default 0) if
        its error is of a type in ``retry_on`` (default ``Exception``), after a pause of ``backoff`` (default 100 ms),
        which doubles with each retry, up to one minute.

        A call that still fails is passed to the ``processing_handler`` with the source record of that call.

        Raises:
            TopologyError: the function is not async, or an option is out of range.

        >>> async def greeting(customer, amount):
        ...     await asyncio.sleep(0.1)
        ...     return f"{customer} owes {amount}"
        >>> play(orders.map_values_async(greeting, concurrency=500), ("ann", 1), ("bob", 2))
        [('ann', 'ann owes 1'), ('bob', 'bob owes 2')]
        """
        return KStream(async_operators.map_values_async(self._ref, mapper, name, value, options))

    def map_async(
        self,
        mapper: Callable[[K, V], Awaitable[tuple[K2, V2]]],
        name: str | None = None,
        *,
        key: TypeForm[K2] | Serde[K2] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
        **options: Unpack[CallPolicy],
    ) -> "KStream[K2, V2]":
        """Replace key and value with the pair that the async function ``mapper(key, value)`` returns.

        The key may change, so that grouping, aggregating or joining repartitions the stream.  Options, order, failures
        and guarantees are those of ``map_values_async``; ``order="key"`` refers to the input keys.

        Raises:
            TopologyError: the function is not async, or an option is out of range.

        >>> async def owner(customer, amount):
        ...     return customer.upper(), amount
        >>> play(orders.map_async(owner), ("ann", 1))
        [('ANN', 1)]
        """
        return KStream(async_operators.map_async(self._ref, mapper, name, (key, value), options))

    def flat_map_async(
        self,
        mapper: Callable[[K, V], Awaitable[Pairs[K2, V2]]],
        name: str | None = None,
        *,
        key: TypeForm[K2] | Serde[K2] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
        **options: Unpack[CallPolicy],
    ) -> "KStream[K2, V2]":
        """Replace each record with the pairs of key and value that the async function ``mapper(key, value)`` returns.

        All pairs of a record, which may be none, are forwarded together.  The key may change, so that grouping,
        aggregating or joining repartitions the stream.  Options, order, failures and guarantees are those of
        ``map_values_async``; ``order="key"`` refers to the input keys.

        Raises:
            TopologyError: the function is not async, or an option is out of range.

        >>> async def parts(customer, amount):
        ...     return [(customer, amount - 1), ("fees", 1)]
        >>> play(orders.flat_map_async(parts), ("ann", 5))
        [('ann', 4), ('fees', 1)]
        """
        return KStream(async_operators.flat_map_async(self._ref, mapper, name, (key, value), options))

    @overload
    def look_up(
        self,
        function: Callable[[K], Awaitable[A | None]],
        by: None = None,
        name: str | None = None,
        **options: Unpack[LookUpOptions],
    ) -> "LookedUpKStream[K, V, A]": ...
    @overload
    def look_up(
        self,
        function: Callable[[K], A | None],
        by: None = None,
        name: str | None = None,
        **options: Unpack[LookUpOptions],
    ) -> "LookedUpKStream[K, V, A]": ...
    @overload
    def look_up(
        self,
        function: Callable[[L], Awaitable[A | None]],
        by: Callable[[K, V], L | None],
        name: str | None = None,
        **options: Unpack[LookUpOptions],
    ) -> "LookedUpKStream[K, V, A]": ...
    @overload
    def look_up(
        self,
        function: Callable[[L], A | None],
        by: Callable[[K, V], L | None],
        name: str | None = None,
        **options: Unpack[LookUpOptions],
    ) -> "LookedUpKStream[K, V, A]": ...
    def look_up(
        self, function: Any, by: Any = None, name: str | None = None, **options: Unpack[LookUpOptions]
    ) -> "LookedUpKStream[K, V, Any]":
        """Replace the value with the pair (value, result of ``function(key)``); the result None means not found.

        The function is async or plain.  The looked-up key is the result of ``by(key, value)``, or by default the key of
        the record.  For the key None, the function is not called, and the result is None.

        Each task caches results in a store with a changelog, so that results survive restarts.  ``cache`` is the
        maximum number of cached results per task (default 10,000); the least recently used results are evicted.  A
        result is fresh for ``ttl`` (default one hour; with None, it never expires).  After that, it is stale for
        ``stale`` (default 0): a stale result is used, and refreshed in the background.  The result "not found" is
        cached for ``negative`` (default: ``ttl``).  Times are wall-clock time; ``ttl`` begins with the call.
        A task has at most one call in flight per looked-up key.

        An async function runs on the event loop of the stream thread, a plain one in up to ``concurrency`` threads; the
        stream thread does not wait.  Calls, failures and guarantees are those of ``map_values_async``, with the options
        ``concurrency``, ``order`` (of output records only), ``timeout``, ``retries``, ``backoff`` and ``retry_on``.
        All options are in ``LookUpOptions``.

        Raises:
            TopologyError: a function has the wrong arguments, or an option is unknown or out of range.

        >>> async def city_of(customer):
        ...     await asyncio.sleep(0.1)
        ...     return {"ann": "Oslo"}.get(customer)
        >>> play(orders.look_up(city_of, ttl=timedelta(minutes=5)), ("ann", 1), ("bob", 2))
        [('ann', (1, 'Oslo')), ('bob', (2, None))]
        """
        return LookedUpKStream(look_up(self._ref, function, by, name, options))

    @overload
    def map_values_batches(
        self,
        mapper: Callable[[list[V]], Sequence[V2]],
        name: str | None = None,
        *,
        max_records: int = 1000,
        max_wait: timedelta | None = None,
    ) -> "KStream[K, V2]": ...
    @overload
    def map_values_batches(
        self,
        mapper: Callable[[Any], Any],
        name: str | None = None,
        *,
        max_records: int = 1000,
        max_wait: timedelta | None = None,
        value: TypeForm[V2] | Serde[V2],
    ) -> "KStream[K, V2]": ...
    def map_values_batches(
        self,
        mapper: Callable[[Any], Any],
        name: str | None = None,
        *,
        max_records: int = 1000,
        max_wait: timedelta | None = None,
        value: Any = NOT_GIVEN,
    ) -> "KStream[Any, Any]":
        """Replace the values of a batch of records with the list that ``mapper(values)`` returns, one value for each.

        This is useful for models, vectorized code and bulk services.  ``values`` is a list; annotate the parameter with
        ``pyarrow.Table`` or ``polars.DataFrame`` to get columns.  The result may also be an array, a series or a table;
        ``value`` is the type of its values or rows.  Keys, timestamps, headers and order stay the same.  A batch has at
        most ``max_records`` records.  It ends before each commit, and with the run of consecutive records that the task
        takes from its queues or, with ``max_wait``, after that wall-clock time at the latest.  If the mapper fails,
        it is called again for each half of the batch, recursively; a record that fails alone is passed to the
        ``processing_handler``.

        >>> total = lambda amounts: [sum(amounts) + amount for amount in amounts]
        >>> play(orders.map_values_batches(total), ("ann", 1))
        [('ann', 2)]

        Raises:
            TopologyError: a limit is out of range, or the mapper does not take one argument.
        """
        return KStream(batch_operators.map_values_batches(self._ref, mapper, name, max_records, max_wait, value))

    def flat_map_batches(
        self,
        mapper: Callable[[list[tuple[K, V]]], Iterable[tuple[K2, V2]]],
        name: str | None = None,
        *,
        max_records: int = 1000,
        max_wait: timedelta | None = None,
        key: TypeForm[K2] | Serde[K2] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
    ) -> "KStream[K2, V2]":
        """Replace the records of a batch with any number of key-value pairs that ``mapper(records)`` returns.

        Batches and failures are handled as in ``map_values_batches``.  The results have the highest timestamp of the
        batch and no headers.

        >>> last = lambda records: dict(records).items()
        >>> play(orders.flat_map_batches(last), ("ann", 1))
        [('ann', 1)]
        """
        return KStream(batch_operators.flat_map_batches(self._ref, mapper, name, max_records, max_wait, (key, value)))

    def select_key(
        self, mapper: Callable[[K, V], K2], name: str | None = None, *, key: TypeForm[K2] | Serde[K2] = NOT_GIVEN
    ) -> "KStream[K2, V]":
        """Replace the key with the result of ``mapper(key, value)``.

        If the result is grouped or joined, its records are sent through a repartition topic.

        >>> play(orders.select_key(lambda customer, amount: customer[0]), ("ann", 1))
        [('a', 1)]
        """
        return KStream(stream_operators.select_key(self._ref, mapper, name, key))

    def peek(self, action: Callable[[K, V], object], name: str | None = None) -> "KStream[K, V]":
        """Call ``action(key, value)`` for each record and forward the record unchanged.

        >>> play(orders.peek(lambda customer, amount: print("saw", customer)), ("ann", 1))
        saw ann
        [('ann', 1)]
        """
        return KStream(stream_operators.peek(self._ref, action, name))

    def for_each(self, action: Callable[[K, V], object], name: str | None = None) -> None:
        """Call ``action(key, value)`` for each record; this is a terminal operator.

        >>> orders.for_each(lambda customer, amount: print("saw", customer))
        >>> play(orders, ("ann", 1))
        saw ann
        [('ann', 1)]
        """
        stream_operators.for_each(self._ref, action, name)

    def split(self, name: str | None = None) -> "Branched[K, V]":
        """Split the stream into branches; ``name`` is the prefix of the branch names.

        >>> split = orders.split()
        >>> large = split.branch(lambda customer, amount: amount > 9)
        >>> small = split.default_branch()
        >>> play(large, ("ann", 1), ("bob", 10))
        [('bob', 10)]
        """
        return Branched(self._ref, name, KStream)

    def merge(self, other: "KStream[K2, V2]", name: str | None = None) -> "KStream[K | K2, V | V2]":
        """Merge the records of both streams; the order between the two streams is undefined.

        >>> play(orders.merge(totals.to_stream()), ("ann", 1), ("totals", "bob", 9))
        [('ann', 1), ('bob', 9)]
        """
        return KStream(stream_operators.merge(self._ref, _ref(other), name))

    def process(
        self,
        processor: Callable[[], Processor[K, V, KO, VO]],
        name: str | None = None,
        *,
        stores: Iterable[str] = (),
        key: TypeForm[KO] | Serde[KO] = NOT_GIVEN,
        value: TypeForm[VO] | Serde[VO] = NOT_GIVEN,
    ) -> "KStream[KO, VO]":
        """Process each record with a ``Processor``, given as a class or as a function that creates one per task.

        ``stores`` names stores that were added to the builder; stores that the class declares are
        added automatically.  The key may change (KIP-820).

        >>> class Twice(Processor[str, int, str, int]):
        ...     def process(self, record):
        ...         self.context.forward(record.key, record.value)
        ...         self.context.forward(record.key, record.value)
        >>> play(orders.process(Twice), ("ann", 1))
        [('ann', 1), ('ann', 1)]
        """
        return KStream(stream_operators.process(self._ref, processor, name, stores, key, value))

    def process_values(
        self,
        processor: Callable[[], Processor[K, V, K, VO]],
        name: str | None = None,
        *,
        stores: Iterable[str] = (),
        value: TypeForm[VO] | Serde[VO] = NOT_GIVEN,
    ) -> "KStream[K, VO]":
        """Process each record with a ``Processor`` that must keep the key, so that no repartitioning is needed.

        >>> class Double(Processor[str, int, str, int]):
        ...     def process(self, record):
        ...         self.context.forward(record.key, 2 * record.value)
        >>> play(orders.process_values(Double), ("ann", 1))
        [('ann', 2)]
        """
        return KStream(stream_operators.process_values(self._ref, processor, name, stores, value))

    def deduplicate(
        self,
        by: Callable[[K, V], object] | None = None,
        name: str | None = None,
        *,
        within: timedelta,
        grace: timedelta | None = None,
        **options: Unpack[DeduplicationOptions[K, V]],
    ) -> "DeduplicatedKStream[K, V]":
        """Keep the first record with each id in an interval of event time, and drop its duplicates (KIP-655).

        The id of a record is its key or, with ``by``, its key together with ``by(key, value)``.  A record is a
        duplicate if a record with the same id was kept whose timestamp is at most ``within`` earlier or later.  If
        ``by`` may return the same value for several keys, and these records are duplicates, first make that value the
        key (``select_key``).  In a stream without keys, ``by(key, value)`` alone is the id, and a repartition topic
        partitions the records by id.  Records without a key or id are kept.

        Ids are stored for ``within`` + ``grace`` of stream time (``grace`` is ``within`` by default), which bounds the
        state.  A record that is out of order by at most ``grace`` is compared with all kept records; an older record is
        kept unless the store still contains a duplicate of it.  Duplicates are counted with the reason "duplicate", and
        ``dropped()`` of the result returns a stream of them.

        >>> once = orders.deduplicate(by=lambda customer, amount: amount, within=timedelta(seconds=10))
        >>> play(once, ("ann", 5, 0), ("ann", 5, 10_000), ("bob", 5, 10_000), ("ann", 5, 10_001))
        [('ann', 5), ('bob', 5), ('ann', 5)]

        Raises:
            TopologyError: ``within`` is not positive, or the stream has no keys and there is no ``by``.
        """
        return DeduplicatedKStream(deduplicate(self._ref, by, name, within, grace, options))

    # Topics.

    def repartition(
        self,
        name: str | None = None,
        *,
        partitions: int | None = None,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        partitioner: Partitioner | None = None,
        patience: timedelta | None = None,
    ) -> "KStream[K, V]":
        """Send the records through an internal topic named ``<name>-repartition`` (KIP-221).

        ``partitions`` is the partition count; by default, it is the count of the source topics.  ``patience`` is how
        long the reader of the topic, in a live run, waits for a task that writes to it and does not move, before it
        goes on without the records of this task; the default is the setting ``repartition_patience_ms``, and with 0 the
        records are read as they come, as in Kafka Streams.

        >>> play(orders.repartition(partitions=3), ("ann", 1))
        [('ann', 1)]

        Raises:
            TopologyError: ``partitions`` is not positive, or ``patience`` is negative or no ``timedelta``.
        """
        return KStream(stream_operators.repartition(self._ref, name, partitions, key, value, partitioner, patience))

    @overload
    def to(self, topic: Sink[K, V], name: str | None = None, *, partitioner: Partitioner | None = None) -> None: ...
    @overload
    def to(
        self,
        topic: str | Callable[[K, V], str],
        name: str | None = None,
        *,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        partitioner: Partitioner | None = None,
    ) -> None: ...
    @overload
    def to(
        self,
        topic: Callable[[K, V, RecordContext], str],
        name: str | None = None,
        *,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        partitioner: Partitioner | None = None,
    ) -> None: ...
    def to(
        self,
        topic: Any,
        name: str | None = None,
        *,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        partitioner: Partitioner | None = None,
    ) -> None:
        """Write the records to a ``Topic``, to a topic given by name, or to the topic that a function returns.

        The function takes (key, value) or (key, value, context), where the context is the
        ``RecordContext`` of the record.  ``key`` and ``value`` declare types for a topic without a declaration.

        Raises:
            TopologyError: ``topic`` is not a topic, or a ``Topic`` is given together with ``key`` or ``value``.

        >>> doubled = Topic("doubled", key=str, value=int)
        >>> orders.map_values(lambda amount: 2 * amount).to(doubled)
        >>> driver = driver_of(orders, ("ann", 1))
        >>> driver.read(doubled)
        [('ann', 2)]
        """
        stream_operators.to_topic(self._ref, topic, name, key, value, partitioner)

    @overload
    def to_table(
        self: "KStream[K, V2 | None]",
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V2]: ...
    @overload
    def to_table(
        self,
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V]: ...
    def to_table(
        self,
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> Any:
        """Convert the stream to a table: each record replaces the row for its key, and the value None deletes it.

        ``name`` is also the store name unless ``store`` is given.

        >>> play(orders.to_table("last-order"), ("ann", 1), ("ann", 2))
        [('ann', 1), ('ann', 2)]
        """
        return KTable(stream_operators.to_table(self._ref, name, StoreArguments(store, key, value, options)))

    # Groups.

    @overload
    def group_by_key(
        self: "KStream[K, V2 | None]",
        name: str | None = None,
        *,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
    ) -> KGroupedStream[K, V2]: ...
    @overload
    def group_by_key(
        self,
        name: str | None = None,
        *,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
    ) -> KGroupedStream[K, V]: ...
    def group_by_key(self, name: str | None = None, *, key: Any = NOT_GIVEN, value: Any = NOT_GIVEN) -> Any:
        """Group the records by their key, to be counted, reduced or aggregated.

        Records whose value is None are not aggregated.

        ``name`` is the name of the repartition topic, which is created if the key was changed upstream.

        >>> play(orders.group_by_key().count(), ("ann", 1), ("ann", 2))
        [('ann', 1), ('ann', 2)]
        """
        return KGroupedStream(stream_operators.group_by_key(self._ref, name, key, value))

    @overload
    def group_by(
        self: "KStream[K, V2 | None]",
        mapper: Callable[[K, V2 | None], K2],
        name: str | None = None,
        *,
        key: TypeForm[K2] | Serde[K2] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
    ) -> KGroupedStream[K2, V2]: ...
    @overload
    def group_by(
        self,
        mapper: Callable[[K, V], K2],
        name: str | None = None,
        *,
        key: TypeForm[K2] | Serde[K2] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
    ) -> KGroupedStream[K2, V]: ...
    def group_by(self, mapper: Any, name: str | None = None, *, key: Any = NOT_GIVEN, value: Any = NOT_GIVEN) -> Any:
        """Group the records by the key that ``mapper(key, value)`` returns.

        >>> play(lines.group_by(lambda _, word: word).count("words"), (None, "to"), (None, "be"), (None, "to"))
        [('to', 1), ('be', 1), ('to', 2)]
        """
        return KGroupedStream(stream_operators.group_by(self._ref, mapper, name, key, value))

    # Joins.

    @overload
    def join(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[V, V2], R],
        windows: JoinWindows,
        name: str | None = None,
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V | V2]": ...
    @overload
    def join(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[K, V, V2], R],
        windows: JoinWindows,
        name: str | None = None,
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V | V2]": ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2], R],
        name: str | None = None,
        **options: Unpack[TableLookupOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V]": ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2], R],
        name: str | None = None,
        **options: Unpack[TableLookupOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V]": ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[V, V2], R],
        name: str | None = None,
        *,
        key: Callable[[K, V], GK],
    ) -> "JoinedKStream[K, R, V]": ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[K, V, V2], R],
        name: str | None = None,
        *,
        key: Callable[[K, V], GK],
    ) -> "JoinedKStream[K, R, V]": ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[K, GK, V, V2], R],
        name: str | None = None,
        *,
        key: Callable[[K, V], GK],
    ) -> "JoinedKStream[K, R, V]": ...
    def join(self, other: Any, joiner: Any, *arguments: Any, **options: Any) -> "JoinedKStream[K, Any, Any]":
        """Join with a stream within windows, with a table, or with a global table.

        The joiner takes (left, right) or (key, left, right), or with a global table (key, row key, left, right): the
        key of the record, and that of the row (KIP-1340).

        With a stream, records with the same key are joined if the difference of their timestamps is within ``windows``;
        ``name`` is the prefix of the node names, and ``store`` is the prefix of the store names.  A table is looked up
        when a stream record arrives; with ``grace``, the record is buffered for that stream time and joined with the
        row that was valid at the record's timestamp (KIP-923).  A global table requires ``key``, a function that takes
        (key, value) and returns the table key.

        >>> both = orders.join(orders, lambda one, two: one + two, JoinWindows.of(timedelta(seconds=1)))
        >>> play(both, ("ann", 1), ("ann", 2))
        [('ann', 2), ('ann', 3), ('ann', 3), ('ann', 4)]
        """
        return JoinedKStream(stream_joins.join(self._ref, _ref(other), joiner, JoinKind.INNER, arguments, options))

    @overload
    def left_join(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[V, V2 | None], R],
        windows: JoinWindows,
        name: str | None = None,
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V | V2]": ...
    @overload
    def left_join(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[K, V, V2 | None], R],
        windows: JoinWindows,
        name: str | None = None,
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V | V2]": ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2 | None], R],
        name: str | None = None,
        **options: Unpack[TableLookupOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V]": ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2 | None], R],
        name: str | None = None,
        **options: Unpack[TableLookupOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V]": ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[V, V2 | None], R],
        name: str | None = None,
        *,
        key: Callable[[K, V], GK],
    ) -> "JoinedKStream[K, R, V]": ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[K, V, V2 | None], R],
        name: str | None = None,
        *,
        key: Callable[[K, V], GK],
    ) -> "JoinedKStream[K, R, V]": ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[K, GK, V, V2 | None], R],
        name: str | None = None,
        *,
        key: Callable[[K, V], GK],
    ) -> "JoinedKStream[K, R, V]": ...
    def left_join(self, other: Any, joiner: Any, *arguments: Any, **options: Any) -> "JoinedKStream[K, Any, Any]":
        """Join like ``join``, but with None for the right side if there is no match.

        If two streams are joined, a result without a match is emitted when the window has closed (KIP-633).

        >>> named = orders.left_join(customers, lambda amount, name: (name, amount))
        >>> play(named, ("ann", 1), ("customers", "ann", "Ann"), ("ann", 2))
        [('ann', (None, 1)), ('ann', ('Ann', 2))]
        """
        return JoinedKStream(stream_joins.join(self._ref, _ref(other), joiner, JoinKind.LEFT, arguments, options))

    @overload
    def outer_join(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[V | None, V2 | None], R],
        windows: JoinWindows,
        name: str | None = None,
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V | V2]": ...
    @overload
    def outer_join(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[K, V | None, V2 | None], R],
        windows: JoinWindows,
        name: str | None = None,
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V | V2]": ...
    def outer_join(self, other: Any, joiner: Any, *arguments: Any, **options: Any) -> "JoinedKStream[K, Any, Any]":
        """Join two streams within windows, with None for a side that has no match.

        >>> near = JoinWindows.of(timedelta(seconds=1))
        >>> both = orders.outer_join(totals.to_stream(), lambda amount, total: (amount, total), near)
        >>> play(both, ("ann", 1, 0), ("totals", "ann", 9, 500), ("bob", 2, 600), ("totals", "cid", 3, 3000))
        [('ann', (1, 9)), ('bob', (2, None))]
        """
        return JoinedKStream(stream_joins.join(self._ref, _ref(other), joiner, JoinKind.OUTER, arguments, options))

    @overload
    def join_latest(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[V, V2], R],
        name: str | None = None,
        **options: Unpack[AsOfOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V | V2]": ...
    @overload
    def join_latest(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[K, V, V2], R],
        name: str | None = None,
        **options: Unpack[AsOfOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V | V2]": ...
    def join_latest(
        self, other: Any, joiner: Any, name: str | None = None, **options: Any
    ) -> "JoinedKStream[K, Any, Any]":
        """Join each record with the latest record of another stream at or before its time, like pandas' ``merge_asof``.

        The matching record has the same key and is at most ``tolerance`` older.  With ``direction="forward"``, it is
        the first record at or after the time of the left record, and at most ``tolerance`` newer.  A result is emitted
        when stream time is more than ``grace`` after the left record or, with ``direction="forward"``, after its match
        or the end of its tolerance.  So results do not depend on which stream is read first.

        >>> before = orders.join_latest(totals.to_stream(), lambda one, two: (one, two), tolerance=timedelta(seconds=1))
        >>> play(before, ("ann", 1, 500), ("totals", "ann", 8, 100), ("totals", "ann", 9, 400), ("totals", "x", 0, 501))
        [('ann', (1, 9))]
        """
        return JoinedKStream(join_latest(self._ref, _ref(other), joiner, JoinKind.INNER, name, options))

    @overload
    def left_join_latest(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[V, V2 | None], R],
        name: str | None = None,
        **options: Unpack[AsOfOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V | V2]": ...
    @overload
    def left_join_latest(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[K, V, V2 | None], R],
        name: str | None = None,
        **options: Unpack[AsOfOptions[K, V, V2]],
    ) -> "JoinedKStream[K, R, V | V2]": ...
    def left_join_latest(
        self, other: Any, joiner: Any, name: str | None = None, **options: Any
    ) -> "JoinedKStream[K, Any, Any]":
        """Join like ``join_latest``, but with None for the right side if there is no match."""
        return JoinedKStream(join_latest(self._ref, _ref(other), joiner, JoinKind.LEFT, name, options))


@define(eq=False, repr=False)
class JoinedKStream(KStream[K, V], Generic[K, V, D]):
    """The result of a join; the records that the join drops have values of type ``D``."""

    def late(self, name: str | None = None) -> KStream[K, D]:
        """Return a stream of the records, from both sides, that are too old for the join's stores.

        Such a record is still joined with the stored records, but later records cannot find it; ``join_latest`` drops
        it.  ``DropNote.of(headers)`` reads from the headers of a record by how much it was late.

        >>> near = JoinWindows.of(timedelta(seconds=1))
        >>> both = orders.join(totals.to_stream(), lambda amount, total: amount + total, near)
        >>> play(both.late(), ("ann", 1, 900_000), ("ann", 2, 100))
        [('ann', 2)]

        Raises:
            TopologyError: the join is with a table, which drops no record as late.
        """
        return KStream(stream_joins.late(self._ref, name))

    def dropped(self, name: str | None = None) -> "KStream[K | None, D | None]":
        """Return a stream of all records that the join drops: late, without a key or value, or without a match.

        ``DropNote.of(headers)`` reads the reason from the headers of a record.

        >>> named = orders.join(customers, lambda amount, name: (name, amount))
        >>> play(named.dropped(), ("ann", 1))
        [('ann', 1)]
        """
        return KStream(self._ref.side.dropped(name))


@define(eq=False, repr=False)
class DeduplicatedKStream(KStream[K, V], Generic[K, V]):
    """The result of ``deduplicate``: a stream without duplicates."""

    def dropped(self, name: str | None = None) -> KStream[K, V]:
        """Return a stream of the duplicates that were dropped.

        >>> once = orders.deduplicate(within=timedelta(seconds=10))
        >>> play(once.dropped(), ("ann", 5, 0), ("ann", 6, 1), ("bob", 5, 2))
        [('ann', 6)]
        """
        return KStream(self._ref.side.dropped(name))


def _ref(other: Any) -> Any:
    """Return the reference in a stream or table; return other objects unchanged, so that an error can show them."""
    return other._ref if isinstance(other, KStream | KTable | GlobalKTable) else other


class LookedUpKStream(KStream[K, tuple[V, A | None]], Generic[K, V, A]):
    """The result of ``look_up``: a stream of pairs (value, look-up result)."""

    def map_pairs(
        self, mapper: Callable[[V, A | None], R], name: str | None = None, *, value: TypeForm[R] | Serde[R] = NOT_GIVEN
    ) -> KStream[K, R]:
        """Replace the pair (value, look-up result) with the result of ``mapper(value, result)``.

        >>> cities = {"ann": "Oslo"}
        >>> found = orders.look_up(cities.get, ttl=None)
        >>> play(found.map_pairs(lambda amount, city: f"{amount} to {city}"), ("ann", 1), ("bob", 2))
        [('ann', '1 to Oslo'), ('bob', '2 to None')]
        """
        return KStream(map_pairs(self._ref, mapper, name, value))
