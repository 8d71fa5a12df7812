"""Windows and sessions expire by whole segments: what that takes does not grow with what is alive."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field

from streams.core.serdes.serdes import LONG
from streams.state import StoreSpec, kinds, open_store
from streams.state.engine.engines import Engine, EngineBatch
from streams.state.engine.memory import MemoryEngine
from streams.state.engine.rocksdb import RocksEngine
from streams.state.views.chains import Chain, ChainCache, TimeIndex

SEGMENT_MS = 60_000
WINDOWS = StoreSpec(
    "w", kinds.TIMESTAMPED_WINDOW, LONG, LONG, retention_ms=2 * SEGMENT_MS, window_size_ms=10, has_changelog=False
)
SESSIONS = evolve(WINDOWS, kind=kinds.SESSION, window_size_ms=-1)


@define(eq=False)
class CountingEngine:
    """An engine that notes what is asked of it."""

    inner: Engine
    calls: list[tuple[Any, ...]] = field(factory=list)

    def get(self, namespace: int, key: bytes) -> bytes | None:
        self.calls.append(("get", namespace))
        return self.inner.get(namespace, key)

    def scan(
        self, namespace: int, low: bytes | None, high: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self.calls.append(("scan", namespace))
        return self.inner.scan(namespace, low, high, reverse)

    def apply(self, batch: EngineBatch) -> None:
        self.calls.append(("drop", *batch.dropped))
        self.calls += [("write", number, len(writes)) for number, writes in batch.writes.items()]
        self.inner.apply(batch)

    def metadata(self) -> dict[str, bytes]:
        return self.inner.metadata()

    def namespaces(self) -> list[int]:
        return self.inner.namespaces()

    def approximate_count(self) -> int:
        return self.inner.approximate_count()

    def memory_bytes(self) -> int:
        return self.inner.memory_bytes()

    def load(self, namespace: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> int | None:
        return self.inner.load(namespace, keys, values)

    def set_bulk(self, is_bulk: bool) -> None:
        self.inner.set_bulk(is_bulk)

    def close(self) -> None:
        self.inner.close()


class Unwalked(dict[Any, Any]):
    """A dict of which nobody may look at everything."""

    def _refuse(self, *_: object) -> Any:
        raise AssertionError("all entries are looked at")

    __iter__ = items = values = keys = _refuse


@pytest.mark.parametrize("alive", [10, 5_000])
@pytest.mark.parametrize("engine_name", ["in_memory", "rocksdb"])
@pytest.mark.parametrize("spec", [WINDOWS, SESSIONS], ids=["windows", "sessions"])
def test_expiry_is_one_drop_however_much_is_alive(
    spec: StoreSpec, engine_name: str, alive: int, tmp_path: Path
) -> None:
    engine = CountingEngine(MemoryEngine() if engine_name == "in_memory" else RocksEngine.open(tmp_path))
    store = open_store(spec, engine=engine)
    for key in range(alive):
        put(store, key, 0)
        put(store, key, SEGMENT_MS)
        put(store, key, 2 * SEGMENT_MS)
    # From here on chains follow what is written.
    assert read(store, 1)
    store.commit({})
    engine.calls.clear()
    store._windows.chains.chains = Unwalked(store._windows.chains.chains)

    put(store, 0, 3 * SEGMENT_MS)
    store.commit({})

    assert engine.calls == [("drop", 0), ("write", 3, 1)]
    assert engine.namespaces() == [1, 2, 3]
    assert [time for time in read(store, 1) if time < SEGMENT_MS] == []
    store.close()


def put(store: Any, key: int, time_ms: int) -> None:
    if store.spec.kind is kinds.SESSION:
        store.put_at(key, time_ms, time_ms, 1)
    else:
        store.put_pair(key, 1, time_ms, time_ms)


def read(store: Any, key: int) -> list[int]:
    if store.spec.kind is kinds.SESSION:
        return [row[0] for row in store.sessions_of(key, 0, 1 << 60)]
    return [start for start, _ in store.pairs_in_range(key, 0, 1 << 60)]


class Compared(int):
    """A time that counts how often it is compared."""

    count = 0

    def __lt__(self, other: int) -> bool:
        Compared.count += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Compared.count += 1
        return int(self) > int(other)

    __hash__ = int.__hash__


@pytest.mark.parametrize("alive", [100, 20_000])
def test_index_looks_at_what_closes_and_what_expires(alive: int) -> None:
    index = TimeIndex(0)
    for time in range(alive):
        index.set(Compared(time), ("key", time), is_present=True)
    Compared.count = 0

    index.raise_floor(Compared(10))
    found = list(index.between(Compared(20), Compared(29)))

    assert [time for time, _ in found] == list(range(20, 30))
    assert Compared.count < 500


def test_dead_chains_go_where_room_is_needed_if_they_are_a_quarter() -> None:
    """Of four keys three are dead when a fifth needs room: they go, and the others are still all there is."""
    chains = ChainCache(8, lambda: 10)
    chains.complete()
    for key, time in enumerate((1, 2, 3, 40)):
        chains.set(key, time, "entry")
    assert list(chains.chains) == [0, 1, 2, 3]

    chains.set(4, 50, "entry")

    assert (chains.is_complete, list(chains.chains)) == (True, [3, 4])


def test_living_chains_end_completeness() -> None:
    """What is known from then on is what has been asked for since."""
    chains = ChainCache(8, lambda: 0)
    chains.complete()
    for key, time in enumerate((20, 30, 40, 50, 60)):
        chains.set(key, time, "entry")

    assert (chains.is_complete, chains.find(1)) == (False, None)


def test_living_chains_make_room_by_generations() -> None:
    chains = ChainCache(16, lambda: 10)
    for key, time in enumerate((1, 20, 30, 40)):
        chains.keep(key, Chain([time], ["entry"]))

    chains.keep(4, Chain([50], ["entry"]))

    assert list(chains.chains) == []
    found = chains.find(1)
    assert found is not None
    assert found.times == [20]
    dead = chains.find(0)
    assert dead is not None
    assert dead.times == []
