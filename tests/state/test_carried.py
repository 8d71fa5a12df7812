"""A store made again from its snapshot, entries and what is carried beside them, cannot be told from the first.

Both are put through the same verbs: what they return, what they refuse and the bytes of their changes
are the same.
"""

import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.core.blocks.records import Block, Window
from streams.core.errors import StoreError
from streams.core.serdes.serdes import JSON, LONG, STRING, PinnedSerde
from streams.state import MemoryBudget, Store, StoreSpec, kinds, open_store

ENGINES = ["in_memory", "rocksdb"]
#: Few and similar keys, whose bytes interleave with the times that follow them.
KEYS = ["", "a", "a\x00", "ab", "b", "é", "\U0001f600"]

KV = StoreSpec("s", kinds.KEY_VALUE, STRING, LONG)
WINDOW = StoreSpec("s", kinds.WINDOW, STRING, LONG, retention_ms=100_000, window_size_ms=10_000)
SESSION = StoreSpec("s", kinds.SESSION, STRING, LONG, retention_ms=100_000)
VERSIONED = StoreSpec("s", kinds.VERSIONED, STRING, LONG, history_ms=20_000)
SPECS: dict[str, Callable[[], StoreSpec]] = {
    "kv": lambda: KV,
    "kv of mutable values": lambda: evolve(KV, value_serde=JSON),
    "kv of pinned types": lambda: evolve(KV, key_serde=PinnedSerde("k"), value_serde=PinnedSerde("v")),
    "timestamped kv": lambda: evolve(KV, kind=kinds.TIMESTAMPED_KEY_VALUE),
    "lru": lambda: evolve(KV, kind=kinds.LRU, max_entries=3),
    "window": lambda: WINDOW,
    "window in memory": lambda: evolve(WINDOW, is_persistent=False),
    "window with duplicates": lambda: evolve(WINDOW, retain_duplicates=True),
    "timestamped window": lambda: evolve(WINDOW, kind=kinds.TIMESTAMPED_WINDOW),
    "timestamped window in memory": lambda: evolve(
        WINDOW, kind=kinds.TIMESTAMPED_WINDOW, is_persistent=False, value_serde=JSON
    ),
    "session": lambda: SESSION,
    "session in memory": lambda: evolve(SESSION, is_persistent=False),
    "versioned": lambda: VERSIONED,
    "versioned of pinned types": lambda: evolve(VERSIONED, key_serde=PinnedSerde("k"), value_serde=PinnedSerde("v")),
}

keys = st.sampled_from(KEYS)
ends = st.one_of(st.none(), keys)
values = st.one_of(st.none(), st.integers(0, 3))
numbers = st.integers(0, 3)
times = st.integers(0, 40).map(lambda step: step * 7_000)
close_times = st.integers(0, 60).map(lambda step: step * 1_000)
bounds = st.tuples(times, times).map(sorted)
spans = st.tuples(times, st.integers(0, 4)).map(lambda pair: Window(pair[0], pair[0] + pair[1] * 5_000))

Verb = tuple[Any, ...]


def _verbs(*shapes: tuple[Any, ...]) -> st.SearchStrategy[Verb]:
    """Return a strategy of calls: a method's name and what it is given."""
    return st.one_of(st.tuples(st.just(shape[0]), *shape[1:]) for shape in (*shapes, ("drain",), ("commit",)))


KV_VERBS = _verbs(
    ("put", keys, values), ("put_if_absent", keys, values), ("delete", keys), ("get", keys), ("range", ends, ends)
)
VERBS = {
    kinds.KEY_VALUE: KV_VERBS,
    kinds.TIMESTAMPED_KEY_VALUE: _verbs(
        ("put_pair", keys, values, times), ("put_pair", keys, values, times), ("get", keys), ("all",)
    ),
    kinds.LRU: _verbs(("put", keys, numbers), ("put", keys, values), ("get", keys), ("get", keys)),
    kinds.WINDOW: _verbs(
        ("put", keys, values, times),
        ("put", keys, numbers, times),
        ("fetch", keys, times),
        ("fetch_range", keys, bounds),
        ("fetch_keys", ends, ends, bounds),
        ("all",),
        ("windows_between", bounds),
    ),
    kinds.TIMESTAMPED_WINDOW: _verbs(
        ("put_pair", keys, values, times, times),
        ("put_pair", keys, numbers, times, times),
        ("fetch", keys, times),
        ("backward_fetch_range", keys, bounds),
        ("fetch_all", bounds),
        ("windows_between", bounds),
    ),
    kinds.SESSION: _verbs(
        ("put_at", keys, spans, values),
        ("put_at", keys, spans, numbers),
        ("remove_at", keys, spans),
        ("fetch_session", keys, spans),
        ("find_sessions", keys, bounds),
        ("fetch_keys", ends, ends),
        ("sessions_between", bounds),
    ),
    kinds.VERSIONED: _verbs(
        ("put", keys, values, close_times),
        ("put", keys, values, close_times),
        ("put", keys, numbers, close_times),
        ("delete", keys, close_times),
        ("get", keys),
        ("get_as_of", keys, close_times),
    ),
}


def call(store: Any, verb: Verb) -> Any:
    """Return what a verb gives, in a form that can be compared, and how often the store has refused."""
    before = store.expired
    name, *given = verb
    if name == "drain":
        return rows_of(store.drain_changes())
    if name == "commit":
        store.commit({"position": b"1"})
        return None
    # Bounds and spans are two arguments each.
    arguments = [part for item in given for part in (item if isinstance(item, list | Window) else [item])]
    result = getattr(store, name)(*arguments)
    return list(result) if isinstance(result, Iterator) else result, store.expired - before


def rows_of(block: Block | None) -> Any:
    if block is None:
        return None
    headers = block.headers or [None] * len(block)
    return list(zip(block.keys, block.values, block.timestamps, headers, strict=True))


def effective(rows: Any, log: set[bytes]) -> Any:
    """Return changes without deletions of what the changelog does not have; note what it has then.

    A session that comes and goes between two drains leaves no trace where the store knows that it is new.
    """
    found = []
    for row in rows or ():
        if row[1] is not None:
            log.add(row[0])
        elif row[0] not in log:
            continue
        else:
            log.remove(row[0])
        found.append(row)
    return found


def opened(name: str, engine: str, directory: Path) -> Any:
    # A tiny read cache, so that its generations turn.
    budget = MemoryBudget(0)
    return open_store(SPECS[name](), directory, default_engine=engine, memory_budget=budget)  # type: ignore[arg-type]


def copied(store: Store, name: str, engine: str, directory: Path) -> Any:
    """Return a store made from the snapshot of another."""
    copy = opened(name, engine, directory)
    for block in store.snapshot_blocks():
        # A snapshot is kept as bytes, without headers.
        copy.restore(Block(block.keys, block.values, block.timestamps, None, block.offsets))
    copy.restore_carried(store.carried())
    return copy


@pytest.mark.case(12)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_store_of_a_snapshot_behaves_as_the_first(name: str, engine: str, data: st.DataObject) -> None:
    verbs = st.lists(VERBS[SPECS[name]().kind], max_size=40)
    other_engine = data.draw(st.sampled_from(ENGINES), label="engine of the copy")
    with tempfile.TemporaryDirectory() as folder:
        first = opened(name, engine, Path(folder, "first"))
        for verb in data.draw(verbs, label="before"):
            call(first, verb)
        call(first, ("drain",))

        second = copied(first, name, other_engine, Path(folder, "second"))

        assert second.drain_changes() is None
        kept = {key for block in first.snapshot_blocks() for key in block.keys}
        logs = [(second, set(kept)), (first, set(kept))]
        for verb in [*data.draw(verbs, label="after"), ("drain",)]:
            given = [(call(store, verb), log) for store, log in logs]
            copy, original = [effective(rows, log) if verb == ("drain",) else rows for rows, log in given]
            assert copy == original, verb
        assert snapshot(second) == snapshot(first)
        assert second.carried() == first.carried()
        for store in (first, second):
            store.close()


def snapshot(store: Store) -> list[Any]:
    return [row for block in store.snapshot_blocks() for row in rows_of(block)]


@pytest.mark.case(12)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_snapshot_is_sorted_by_raw_key_and_knows_what_is_not_committed(
    name: str, engine: str, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = opened(name, engine, Path(folder))
        for verb in data.draw(st.lists(VERBS[SPECS[name]().kind], max_size=40)):
            call(store, verb)

        before = snapshot(store)
        is_versioned = store.spec.kind is kinds.VERSIONED
        order = [(key, time) if is_versioned else key for key, _, time, _ in before]
        store.commit({})

        assert order == sorted(order)
        assert is_versioned or len(set(order)) == len(order)
        assert snapshot(store) == before
        store.close()


@pytest.mark.world
@pytest.mark.parametrize("name", ["kv", "timestamped window", "versioned"])
def test_snapshot_of_a_store_on_disk_is_read_as_it_is_asked_for(name: str, tmp_path: Path) -> None:
    """All of it in memory would be 40 MB and more."""
    spec = evolve(SPECS[name](), value_serde=STRING)
    store = open_store(spec, tmp_path, default_engine="rocksdb", memory_budget=MemoryBudget(0))
    size = 100_000
    for number in range(size):
        value, time = "x" * 300, number % 10 * 10_000
        match spec.kind:
            case kinds.KEY_VALUE:
                store.put(f"{number:09}", value)
            case kinds.VERSIONED:
                store.put(f"{number:09}", value, number)
            case _:
                store.put_pair(f"{number:09}", value, time, time)
        if number % 10_000 == 0:
            store.drain_changes()
            store.commit({})
    store.drain_changes()
    store.commit({})

    tracemalloc.start()
    try:
        count = sum(len(block) for block in store.snapshot_blocks())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        store.close()

    assert count == size
    assert peak < 20_000_000


@pytest.mark.world
def test_carried_does_not_speak_of_the_changelog() -> None:
    store = open_store(WINDOW)
    store.put("a", 1, 70_000)
    store.commit({"changelog_position": b"7"})

    assert store.carried() == {"observed_stream_time_ms": (70_000).to_bytes(8, "big")}


def test_order_of_use_of_another_snapshot_is_refused() -> None:
    first, second = (open_store(SPECS["lru"]()) for _ in range(2))
    first.put("a", 1)

    with pytest.raises(StoreError, match="different snapshots"):
        second.restore_carried(first.carried())


@pytest.mark.world
def test_what_is_carried_is_committed_with_the_entries(tmp_path: Path) -> None:
    first = open_store(WINDOW)
    first.put("a", 1, 70_000)
    first.put("a", None, 70_000)
    second = open_store(WINDOW, tmp_path, default_engine="rocksdb")
    second.restore_carried(first.carried())
    second.commit({})
    second.close()

    again = open_store(WINDOW, tmp_path, default_engine="rocksdb")

    assert again.observed_stream_time_ms == 70_000
    again.close()
