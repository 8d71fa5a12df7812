"""One bound for the memory of all stores of a process: how it is divided, and that stores keep to it."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from streams.core.serdes.serdes import BYTES, LONG, STRING
from streams.state import MemoryBudget, StoreSpec, kinds, open_store

MIB = 1 << 20
KV = StoreSpec("s", kinds.KEY_VALUE, LONG, LONG)
WINDOWS = StoreSpec("s", kinds.TIMESTAMPED_WINDOW, LONG, LONG, retention_ms=1_000_000, window_size_ms=10)


def test_shares_are_within_the_whole() -> None:
    budget = MemoryBudget(100 * MIB, record_cache_bytes=20 * MIB)

    reads = budget.read_entries(entry_bytes=100) * 100
    assert budget.rocks().cache.get_usage() == 0
    assert budget.uncommitted_bytes + budget.restoring_bytes + reads <= 48 * MIB
    assert budget.rocks().write_buffer_manager.get_buffer_size() < 24 * MIB
    assert budget.rocks() is budget.rocks()


def test_each_open_store_has_its_part_of_the_read_caches(tmp_path: Path) -> None:
    budget = MemoryBudget(64 * MIB)
    alone = budget.read_entries(100)

    stores = [open_store(KV, tmp_path / str(number), memory_budget=budget) for number in range(4)]
    assert budget.read_entries(100) == pytest.approx(alone / 4, abs=1)

    for store in stores:
        store.close()
        store.close()
    assert budget.read_entries(100) == alone


@pytest.mark.parametrize("spec", [KV, WINDOWS, evolve(WINDOWS, kind=kinds.WINDOW)])
def test_read_cache_takes_what_the_store_may_have_now(spec: StoreSpec, tmp_path: Path) -> None:
    budget = MemoryBudget(MIB)
    store = open_store(spec, tmp_path / "first", default_engine="rocksdb", memory_budget=budget)
    for number in range(5_000):
        put(store, number, number)
    store.commit({})
    before = len(store.hot.clean)
    assert 0 < before * 350 <= MIB // 8

    others = [open_store(KV, memory_budget=budget) for _ in range(9)]
    for number in range(5_000):
        put(store, number, number + 1)
    store.commit({})
    for number in range(5_000):
        put(store, number, number + 2)
    store.commit({})

    assert len(store.hot.clean) <= before // 5
    for each in (store, *others):
        each.close()


def put(store: Any, key: int, value: Any) -> None:
    match store.spec.kind:
        case kinds.KEY_VALUE:
            store.put(key, value)
        case kinds.WINDOW:
            store.put(key, value, 0)
        case _:
            store.put_pair(key, value, 0, 0)


@pytest.mark.parametrize(("serde", "value"), [(BYTES, b"x" * 10_000), (STRING, "x" * 10_000)])
def test_large_values_weigh_more(serde: Any, value: Any) -> None:
    """A thousand values of 10 kB wait: 10 MB at least, and not ten times that."""
    store = open_store(evolve(KV, value_serde=serde))
    seen = []
    for number in range(1_000):
        store.put(number, value)
        seen.append(store.approximate_uncommitted_bytes)

    assert 10_000_000 <= seen[-1] <= 100_000_000
    store.drain_changes()
    store.commit({})
    assert store.approximate_uncommitted_bytes == 0


def test_databases_share_one_cache_and_their_memtables_one_bound(tmp_path: Path) -> None:
    """Four stores write 16 MB under a budget of 8: what is in memtables after a commit stays within it."""
    budget = MemoryBudget(8 * MIB)
    stores = [
        open_store(
            evolve(KV, value_serde=BYTES), tmp_path / str(number), default_engine="rocksdb", memory_budget=budget
        )
        for number in range(4)
    ]
    most = 0
    for number in range(4_000):
        for store in stores:
            store.put(number, b"x" * 1_000)
            if number % 100 == 99:
                store.drain_changes()
                store.commit({})
                most = max(most, budget.rocks().write_buffer_manager.get_usage())

    assert 0 < most <= 4 * MIB
    for store in stores:
        store.close()
