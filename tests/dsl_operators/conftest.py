"""A workbench for single operators: real stores, a context that records what comes out."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import define, field

from streams.core import metrics
from streams.core.blocks.records import Headers, RecordContext, RecordMetadata, TaskId, Windowed
from streams.core.serdes.serdes import LONG, STRING
from streams.state import RecordCache, StoreSpec, kinds, open_store
from streams.state.cache import Section
from streams.topology.operator import Process, StreamTime


@define(eq=False)
class BenchContext:
    """What one bound operator may ask of its task; what it forwards goes to ``outputs``."""

    node: str
    bench: "Workbench"
    forward: Process
    task_id: TaskId = field(factory=lambda: TaskId(0, 0))
    application_id: str = "app"
    initializers: list[Callable[[], None]] = field(factory=list)
    flushes: list[Callable[[], None]] = field(factory=list)
    closers: list[Callable[[], None]] = field(factory=list)
    children: Sequence[str] = ()

    def forward_to(self, child: str) -> Process:
        raise NotImplementedError

    def store(self, name: str) -> Any:
        return self.bench.stores[name]

    def hot_states(self) -> list[Any]:
        return [store.hot for store in self.bench.stores.values()]

    def table_forward(self, store: str | None, *, send_old: bool = True) -> Any:
        forward = self.forward

        def emit(key: Any, new: Any, old: Any, timestamp_ms: int, headers: Any, is_latest: bool = True) -> None:
            forward(key, (new, old, is_latest), timestamp_ms, headers)

        return emit

    def table_section(self, store: str, *, send_old: bool = True, window_of: Any = None) -> Section:
        def emit(slot: Any, new: Any, old: Any, timestamp_ms: int, headers: Any, _: Any, is_latest: bool) -> None:
            key = slot if window_of is None else Windowed(slot[0], window_of(slot[1]))
            self.forward(key, (new, old if send_old else None, is_latest), timestamp_ms, headers)

        return RecordCache(0).register(store, emit)

    def shared(self, key: str, make: Callable[[], Any]) -> Any:
        if key not in self.bench.shared:
            self.bench.shared[key] = make()
        return self.bench.shared[key]

    def stream_time(self, name: str = "") -> StreamTime:
        return self.bench.times.setdefault(f"{self.node}/{name}", StreamTime())

    def emitted_time(self, store: str) -> StreamTime:
        return self.bench.times.setdefault(f"/{store}", StreamTime())

    def schedule(self, *arguments: Any) -> Any:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def drop(self, reason: str, count: int = 1) -> None:
        self.bench.dropped[reason] += count

    def on_idle(self, advance: Callable[[int], bool], shared_store: str | None = None) -> None:
        """Ignore it: a bench has no inputs that could be idle."""

    def side_output(self) -> None:
        return None

    def tally(self, reason: str) -> metrics.Counter:
        return self.bench.tallies.setdefault(reason, metrics.Counter())

    def counter(self, sensor: metrics.SensorSpec) -> metrics.Counter:
        return metrics.Counter()

    def records(self, sensor: metrics.SensorSpec) -> bool:
        return False

    def task_stream_time_ms(self) -> int:
        return -1

    def wall_clock_ms(self) -> int:
        return 0

    def record_metadata(self) -> RecordMetadata | None:
        return RecordMetadata("in", 0, self.bench.offset)

    def on_init(self, callback: Callable[[], None]) -> None:
        self.initializers.append(callback)

    def caches(self, store: str | None) -> bool:
        return store in self.bench.cached

    def within(self, context: RecordContext, forward: Callable[[], None]) -> None:
        self.bench.origins.append(context)
        forward()

    def on_final_flush(self, callback: Callable[[], None]) -> None:
        self.flushes.append(callback)

    def on_close(self, callback: Callable[[], None]) -> None:
        self.closers.append(callback)


@define(eq=False)
class Workbench:
    """Operators by node name over shared stores, as one task has them."""

    stores: dict[str, Any] = field(factory=dict)
    times: dict[str, StreamTime] = field(factory=dict)
    shared: dict[str, Any] = field(factory=dict)
    dropped: Counter[str] = field(factory=Counter)
    tallies: dict[str, metrics.Counter] = field(factory=dict)
    cached: set[str] = field(factory=set)
    offset: int = 0
    #: Origins that held-back records came out with.
    origins: list[RecordContext] = field(factory=list)
    _nodes: dict[str, tuple[Any, str | None]] = field(factory=dict)
    _bound: dict[str, Process] = field(factory=dict)
    _contexts: list[BenchContext] = field(factory=list)
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
        for context in self._contexts:
            for initialize in context.initializers:
                initialize()
            context.initializers.clear()
        return self

    def send(
        self, key: Any, value: Any, timestamp_ms: int, headers: Headers | None = None, *, node: str = "node"
    ) -> list[Any]:
        """Process one record; return what came out as (key, value, timestamp_ms)."""
        self.ready()
        self._bound[node](key, value, timestamp_ms, headers)
        self.offset += 1
        return self.take()

    def take(self) -> list[Any]:
        """Return outputs since the last call, without headers."""
        return [row[:3] for row in self.take_full()]

    def take_full(self) -> list[Any]:
        taken, self._outputs = self._outputs, []
        return taken

    def flush(self) -> list[Any]:
        """Do what the end of a bounded run with final flush does."""
        self.ready()
        for context in self._contexts:
            for flush in context.flushes:
                flush()
        return self.take()

    def restart(self) -> None:
        """Close the task and open it again from changelogs and kept times."""
        for context in self._contexts:
            for close in context.closers:
                close()
        self._contexts.clear()
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
        context = BenchContext(node, self, forward)
        self._contexts.append(context)
        self._bound[node] = operator.bind(context)

    def _record(self, key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        self._outputs.append((key, value, timestamp_ms, headers))


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
