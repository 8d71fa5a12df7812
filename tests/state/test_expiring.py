"""Key-value stores with a TTL, against a model, on both engines."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.core.blocks.records import Block
from streams.core.errors import StoreError
from streams.core.serdes.serdes import LONG, STRING
from streams.state import (
    EXPIRING_KEY_VALUE,
    EXPIRING_TIMESTAMPED_KEY_VALUE,
    LRU,
    StoreSpec,
    ValueAndTimestamp,
    open_store,
)

ENGINES = ["in_memory", "rocksdb"]
TTL_MS = 50
SPEC = StoreSpec("s", EXPIRING_TIMESTAMPED_KEY_VALUE, STRING, LONG, ttl_ms=TTL_MS)


class Task:
    """A store with the clock of a task; what is removed goes to ``removed``."""

    def __init__(self, spec: StoreSpec, path: Path, engine: Any) -> None:
        self.spec, self.path, self.engine = spec, path, engine
        self.now_ms = 0
        self.log: list[Block] = []
        self.removed: list[tuple[str, int, int]] = []
        self.open()

    def open(self) -> None:
        self.store = open_store(self.spec, self.path, default_engine=self.engine)
        self.store.expiry.clock = lambda: self.now_ms
        self.store.expiry.on_removed = lambda key, value, expiry_ms: self.removed.append((key, value, expiry_ms))

    def commit(self) -> None:
        block = self.store.drain_changes()
        if block is not None:
            self.log.append(block)
        self.store.commit({})

    def reopen(self, *, is_restored: bool) -> None:
        self.commit()
        self.store.close()
        if is_restored or self.engine == "in_memory":
            self.path = self.path.parent / f"{self.path.name}x"
            self.open()
            for block in self.log:
                self.store.restore(block)
        else:
            self.open()


OPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.sampled_from("abc"), st.integers(0, 9) | st.none(), st.sampled_from([0, 3, 49, 50])
        ),
        st.tuples(st.just("advance"), st.sampled_from([1, 4, 20, 60])),
        st.tuples(st.just("take"), st.sampled_from("abc")),
        st.tuples(st.sampled_from(["sweep", "commit", "reopen", "restore"])),
    ),
    max_size=40,
)


@pytest.mark.case
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=40)
@given(ops=OPS)
def test_store_shows_what_has_not_expired_and_removes_the_rest_once(engine: str, ops: list[tuple[Any, ...]]) -> None:
    rows: dict[str, tuple[int, int]] = {}
    removed: list[tuple[str, int, int]] = []
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        task = Task(SPEC, Path(folder) / "s", engine)
        for op in ops:
            match op:
                case ("put", key, value, late_ms):
                    time_ms = task.now_ms - late_ms
                    task.store.put(key, None if value is None else ValueAndTimestamp(value, time_ms))
                    if value is None:
                        rows.pop(key, None)
                    elif late_ms < TTL_MS:
                        rows[key] = (value, time_ms)
                    else:
                        refused += 1
                case ("advance", step_ms):
                    task.now_ms += step_ms
                case ("take", key):
                    task.store.expiry.take(key)
                    if key in rows and rows[key][1] + TTL_MS <= task.now_ms:
                        value, time_ms = rows.pop(key)
                        removed.append((key, value, time_ms + TTL_MS))
                case ("sweep",):
                    task.store.expiry.sweep(task.now_ms)
                    due = sorted((t + TTL_MS, key) for key, (_, t) in rows.items() if (t + 55) // 5 * 5 <= task.now_ms)
                    removed += [(key, rows.pop(key)[0], expiry_ms) for expiry_ms, key in due]
                case ("commit",):
                    task.commit()
                case ("reopen",) | ("restore",):
                    refused = 0
                    task.reopen(is_restored=op == ("restore",))
            live = {key: row for key, row in rows.items() if row[1] + TTL_MS > task.now_ms}
            assert {key: tuple(row) for key, row in task.store.all()} == live
            assert {key: tuple(row) for key in "abc" if (row := task.store.get(key))} == live
            assert task.store.approximate_num_entries() == len(live)
            assert task.removed == removed
            assert task.store.expired == refused
        task.store.close()


def test_index_is_built_again_if_the_ttl_has_changed(tmp_path):
    task = Task(SPEC, tmp_path / "s", "rocksdb")
    task.store.put("a", ValueAndTimestamp(1, 0))
    task.commit()
    task.store.close()
    task.spec = evolve(SPEC, ttl_ms=200)
    task.open()

    task.now_ms = 199
    task.store.expiry.sweep(task.now_ms)
    assert task.store.get("a") == (1, 0)
    task.now_ms = 220
    task.store.expiry.sweep(task.now_ms)

    assert task.removed == [("a", 1, 200)]


def test_index_has_one_entry_per_key_and_bucket_and_ends_with_its_bucket():
    store = open_store(SPEC)
    for time_ms in range(100):
        store.put("a", ValueAndTimestamp(1, time_ms))
        if time_ms % 10 == 9:
            store.commit({})

    assert len(store._staged.namespaces) == 1 + 10
    store.expiry.sweep(150)
    store.commit({})
    assert list(store._staged.namespaces) == [0]


@pytest.mark.case
@pytest.mark.parametrize("engine", ENGINES)
def test_index_of_a_standby_replica_has_no_buckets_whose_entries_are_all_removed(engine, tmp_path):
    """It is never swept, so the index would grow for as long as the replica is one."""
    active = Task(SPEC, tmp_path / "active", engine)
    standby = open_store(SPEC, tmp_path / "standby", default_engine=engine)
    for time_ms in range(0, 3000, 7):
        active.now_ms = time_ms
        active.store.expiry.put("abcdefghi"[time_ms // 7 % (5 if time_ms < 1000 else 9)], 1, time_ms)
        active.store.expiry.sweep(time_ms)
        active.commit()
        standby.restore(active.log[-1])
        standby.commit({})
        assert len(standby._staged.namespaces) <= 1 + 13
        assert list(standby.all()) == [(key, row) for key, row in active.store.expiry.scan(None, None, False)]
    assert active.removed

    # As the store of a task, it removes what is left.
    standby.expiry.clock = lambda: 9000
    standby.expiry.sweep(9000)
    standby.commit({})
    assert list(standby._staged.namespaces) == [0]
    assert standby.expiry.find_undeleted("a") is None
    active.store.close()
    standby.close()


@pytest.mark.case
@pytest.mark.parametrize("engine", ENGINES)
def test_a_standby_replica_does_not_return_what_expired_before_its_last_update(engine, tmp_path):
    active = Task(SPEC, tmp_path / "active", engine)
    standby = open_store(SPEC, tmp_path / "standby", default_engine=engine)
    for key, time_ms in (("a", 10), ("b", 59), ("c", 60)):
        active.store.expiry.put(key, 7, time_ms)
        active.commit()
        standby.restore(active.log[-1])
        assert (standby.get("a") is None) == (time_ms == 60)

    assert [key for key, _ in standby.all()] == ["b", "c"]
    active.store.close()
    standby.close()


def test_plain_store_takes_the_time_of_a_write_from_the_task():
    store = open_store(evolve(SPEC, kind=EXPIRING_KEY_VALUE))
    store.expiry.clock = lambda: now_ms

    now_ms = 10
    store.put("a", 1)
    now_ms = 40
    store.put("b", 2)
    now_ms = 60
    assert (store.get("a"), store.get("b"), list(store.all())) == (None, 2, [("b", 2)])
    store.expiry.sweep(now_ms)
    assert list(store.drain_changes().timestamps) == [10, 40]
    now_ms = 65
    store.expiry.sweep(now_ms)
    removed = store.drain_changes()
    assert (list(removed.keys), list(removed.values), list(removed.timestamps)) == ([b"a"], [None], [60])


def test_ttl_is_for_key_value_stores():
    with pytest.raises(StoreError, match="a ttl is for plain and timestamped key-value stores"):
        open_store(StoreSpec("s", LRU, STRING, LONG, max_entries=3, ttl_ms=5))
    with pytest.raises(StoreError, match="give ttl_ms, at least 0"):
        open_store(evolve(SPEC, ttl_ms=-1))
