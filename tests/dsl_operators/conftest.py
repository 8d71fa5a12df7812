"""A workbench for single operators: real stores, the context of a task, and a list of what comes out."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import define, field

from streams.core.blocks.records import Headers, RecordContext, RecordMetadata, TaskId, Windowed
from streams.core.metrics import Metrics
from streams.core.serdes.serdes import LONG, STRING
from streams.state import RecordCache, StoreSpec, kinds, open_store
from streams.topology import (
    NodeCalls,
    NodeClock,
    NodeContext,
    NodeMetrics,
    NodeOutput,
    NodeStores,
    Process,
    StreamTime,
)


@define(eq=False)
class BenchRecord:
    """The place of the record that was sent last."""

    offset: int = 0
    #: Places of the buffered records that were forwarded.
    origins: list[RecordContext] = field(factory=list)

    def origin(self) -> tuple[str, int, int]:
        return ("in", 0, self.offset)

    def metadata(self) -> RecordMetadata | None:
        return RecordMetadata(*self.origin())

    def within(self, context: RecordContext, forward: Callable[[], None]) -> None:
        self.origins.append(context)
        forward()


@define(eq=False)
class Workbench:
    """Operators by node name over shared stores, as one task has them."""

    stores: dict[str, Any] = field(factory=dict)
    times: dict[str, StreamTime] = field(factory=dict)
    shared: dict[str, Any] = field(factory=dict)
    metrics: Metrics = field(factory=Metrics)
    #: The record cache of the task, or None without caching.
    cache: RecordCache | None = None
    record: BenchRecord = field(factory=BenchRecord)
    _nodes: dict[str, tuple[Any, str | None]] = field(factory=dict)
    _closers: list[Callable[[], None]] = field(factory=list)
    _bound: dict[str, Process] = field(factory=dict)
    contexts: list[NodeContext] = field(factory=list)
    #: Contexts of the nodes that are not initialized yet.
    _unready: list[NodeContext] = field(factory=list)
    _outputs: list[tuple[Any, Any, int, Headers | None]] = field(factory=list)

    def open(self, *specs: StoreSpec) -> "Workbench":
        for spec in specs:
            self.stores[spec.name] = open_store(spec)
        return self

    def add(self, operator: Any, node: str = "node", *, to: str | None = None) -> "Workbench":
        """Add a node that forwards to another one, added before, or to the outputs."""
        self._nodes[node] = (operator, to)
        self._bind(node)
        return self

    def ready(self) -> "Workbench":
        while self._unready:
            self._unready.pop(0).initialize()
        return self

    def send(
        self, key: Any, value: Any, timestamp_ms: int, headers: Headers | None = None, *, node: str = "node"
    ) -> list[Any]:
        """Process one record; return what came out as (key, value, timestamp_ms)."""
        self.ready()
        self._bound[node](key, value, timestamp_ms, headers)
        self.record.offset += 1
        return self.take()

    @property
    def dropped(self) -> int:
        """The number of records that were dropped and counted."""
        return sum(row.count for row in self.metrics.drops())

    def take(self) -> list[Any]:
        """Return outputs since the last call, without headers."""
        return [row[:3] for row in self.take_full()]

    def take_full(self) -> list[Any]:
        taken, self._outputs = self._outputs, []
        return taken

    def flush(self) -> list[Any]:
        """Do what the end of a bounded run with final flush does."""
        self.ready()
        for context in self.contexts:
            context.output.final_flush()
        return self.take()

    def restart(self) -> None:
        """Close the task and open it again from changelogs and kept times."""
        for close in self._closers:
            close()
        self._closers.clear()
        self.contexts.clear()
        self._unready.clear()
        self.shared.clear()
        for name, store in list(self.stores.items()):
            blocks = list(store.snapshot_blocks())
            store.close()
            self.stores[name] = open_store(store.spec)
            for block in blocks:
                self.stores[name].restore(block)
        self.times = {name: StreamTime(time.ms) for name, time in self.times.items()}
        for node in self._nodes:
            self._bind(node)

    def _bind(self, node: str) -> None:
        operator, to = self._nodes[node]
        forward = self._record if to is None else self._bound[to]
        context = self._context(node, forward)
        self.contexts.append(context)
        self._unready.append(context)
        self._bound[node] = operator.bind(context)

    def _context(self, node: str, forward: Process) -> NodeContext:
        """Return the context that a task would provide, without wall clock and calls."""
        task_id = TaskId(0, 0)
        stores = NodeStores(node, tuple(self.stores), self.stores, {}, self.shared, self.cache)
        clock = NodeClock(node, self.times, lambda: -1, lambda: 0, False, _nothing, dict.fromkeys(self.stores, ()))
        output = NodeOutput(node, forward, (), _nothing, self.record, stores)
        calls = NodeCalls(_nothing, _nothing, _nothing, True, lambda: (None, None), _nothing, _nothing)
        sensors = NodeMetrics(node, task_id, self.metrics, stores)
        return NodeContext(node, task_id, "app", stores, clock, output, sensors, calls, _nothing, self._closers.append)

    def _record(self, key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        self._outputs.append((key, value, timestamp_ms, headers))


def _nothing(*_: Any) -> Any:
    raise NotImplementedError


@pytest.fixture
def bench() -> Workbench:
    """An empty workbench."""
    return Workbench()


@pytest.fixture(scope="session")
def new_bench() -> Callable[[], Workbench]:
    """Makes workbenches, for tests that need several."""
    return Workbench


@pytest.fixture(scope="session")
def kv() -> Callable[..., StoreSpec]:
    """Makes the spec of a table's store."""

    def make(name: str = "store", value: Any = LONG, **options: Any) -> StoreSpec:
        return StoreSpec(name, kinds.TIMESTAMPED_KEY_VALUE, STRING, value, **options)

    return make


@pytest.fixture(scope="session")
def versioned() -> Callable[..., StoreSpec]:
    """Makes the spec of a versioned table's store."""

    def make(name: str = "store", value: Any = STRING, history_ms: int = 100) -> StoreSpec:
        return StoreSpec(name, kinds.VERSIONED, STRING, value, history_ms=history_ms)

    return make


@pytest.fixture(scope="session")
def window_store() -> Callable[..., StoreSpec]:
    """Makes the spec of a windowed table's store."""

    def make(name: str = "store", value: Any = LONG, size_ms: int = 10, retention_ms: int = 1_000_000) -> StoreSpec:
        return StoreSpec(
            name, kinds.TIMESTAMPED_WINDOW, STRING, value, retention_ms=retention_ms, window_size_ms=size_ms
        )

    return make


@pytest.fixture(scope="session")
def session_store() -> Callable[..., StoreSpec]:
    """Makes the spec of a session store."""

    def make(name: str = "store", value: Any = LONG, retention_ms: int = 1_000_000) -> StoreSpec:
        return StoreSpec(name, kinds.SESSION, STRING, value, retention_ms=retention_ms)

    return make


@pytest.fixture(scope="session")
def join_store() -> Callable[..., StoreSpec]:
    """Makes the spec of one side's store of a stream-stream join."""

    def make(name: str, retention_ms: int = 1_000_000) -> StoreSpec:
        return StoreSpec(
            name,
            kinds.WINDOW,
            STRING,
            STRING,
            retention_ms=retention_ms,
            window_size_ms=retention_ms,
            retain_duplicates=True,
            has_caching=False,
        )

    return make


@pytest.fixture(scope="session")
def shown() -> Callable[[Sequence[Any]], list[Any]]:
    """Write rows with windowed keys as ``(key@start/end, new, timestamp_ms)``."""

    def show(rows: Sequence[Any]) -> list[Any]:
        return [(name(key), value[0] if isinstance(value, tuple) else value, time) for key, value, time in rows]

    def name(key: Any) -> str:
        if isinstance(key, Windowed):
            return f"{key.key}@{key.window.start_ms}/{key.window.end_ms}"
        return str(key)

    return show
