"""Engines: atomic batches that survive a kill as a prefix, namespaces dropped as a whole."""

from pathlib import Path

import pytest
from attrs import evolve

from streams.core.errors import StoreError
from streams.core.serdes.serdes import LONG, STRING
from streams.state import MemoryBudget, SpillingEngine, StoreSpec, kinds, open_store
from streams.state.engine.engines import Engine, EngineBatch, next_prefix
from streams.state.engine.memory import MemoryEngine
from streams.state.engine.rocksdb import RocksEngine, RocksMemory
from streams.state.engine.spilling import SMALL_BYTES
from streams.state.engine.staging import StagedEngine
from tests import programs

KV = StoreSpec("counts", kinds.KEY_VALUE, STRING, LONG)


@pytest.fixture(params=["in_memory", "rocksdb", "small", "spilled"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    if request.param == "in_memory":
        return MemoryEngine()
    if request.param == "rocksdb":
        return RocksEngine.open(tmp_path / "store")
    return SpillingEngine(tmp_path / "store", MemoryBudget() if request.param == "small" else MemoryBudget(0))


def test_batch_drops_first_then_writes(engine: Engine) -> None:
    engine.apply(EngineBatch(writes={-1: {b"z": b"0"}, 0: {b"a": b"1", b"b": b"2"}, 1: {b"a": b"3"}}))
    engine.apply(EngineBatch(dropped=[0], writes={0: {b"b": b"4"}, 1: {b"c": b"5"}}, metadata={"m": b"x"}))

    assert list(engine.scan(0, None, None)) == [(b"b", b"4")]
    assert list(engine.scan(1, b"a", b"c")) == [(b"a", b"3")]
    assert list(engine.scan(1, None, None, reverse=True)) == [(b"c", b"5"), (b"a", b"3")]
    assert engine.get(-1, b"z") == b"0"
    assert engine.namespaces() == [-1, 0, 1]
    assert engine.metadata() == {"m": b"x"}
    engine.close()


def test_scan_stays_within_its_namespace_and_bounds(engine: Engine) -> None:
    keys = [b"", b"\x00", b"a", b"a\x00", b"b", b"\xff", b"\xff\xff"]
    engine.apply(EngineBatch(writes={number: dict.fromkeys(keys, b"v") for number in (1, 2, 3)}))

    assert [key for key, _ in engine.scan(2, None, None)] == keys
    assert [key for key, _ in engine.scan(2, b"a", b"b")] == [b"a", b"a\x00"]
    assert [key for key, _ in engine.scan(2, b"a", b"b", reverse=True)] == [b"a\x00", b"a"]
    assert [key for key, _ in engine.scan(2, None, None, reverse=True)] == keys[::-1]
    assert list(engine.scan(2, b"b", b"a")) == []
    assert list(engine.scan(7, None, None)) == []
    engine.close()


def test_engine_that_outgrows_memory_moves_to_disk_with_all_that_it_has(tmp_path: Path) -> None:
    """Overwritten entries count once: only what is there makes an engine move."""
    engine = SpillingEngine(tmp_path / "store", MemoryBudget())
    value = bytes(SMALL_BYTES // 4)
    for number in range(20):
        engine.apply(EngineBatch(writes={number % 2: {b"a": value}, 7: {b"b": b"1"}}, metadata={"m": b"%d" % number}))
    is_small = not engine.path.exists()
    engine.apply(EngineBatch(dropped=[1], writes={0: {b"c": value, b"d": value, b"b": None}, 7: {b"b": b"2"}}))
    engine.apply(EngineBatch(writes={0: {b"a": b"3"}}))

    assert is_small
    assert engine.path.exists()
    assert list(engine.scan(0, None, None)) == [(b"a", b"3"), (b"c", value), (b"d", value)]
    assert (engine.get(1, b"a"), engine.get(7, b"b")) == (None, b"2")
    assert (engine.namespaces(), engine.metadata()) == ([0, 7], {"m": b"19"})
    engine.close()


def test_small_engines_share_memory(tmp_path: Path) -> None:
    """A closed engine gives its memory back."""
    budget = MemoryBudget(2 * SMALL_BYTES)
    engines = [SpillingEngine(tmp_path / str(number), budget) for number in range(3)]
    batch = EngineBatch(writes={0: {b"a": bytes(SMALL_BYTES // 2)}})
    engines[0].apply(batch)
    engines[1].apply(batch)
    engines[0].close()
    engines[2].apply(batch)

    assert [engine.path.exists() for engine in engines] == [False, True, False]
    for engine in engines[1:]:
        engine.close()


def test_rocksdb_finds_its_namespaces_again(tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path)
    engine.apply(EngineBatch(writes={-1: {b"a": b"1"}, 5: {b"a": b"1"}, 900: {b"a": b"1"}}, metadata={"m": b"x"}))
    engine.close()
    engine = RocksEngine.open(tmp_path)

    assert engine.namespaces() == [-1, 5, 900]
    assert engine.metadata() == {"m": b"x"}
    engine.close()


@pytest.mark.parametrize("is_bulk", [True, False])
def test_entries_that_are_loaded_take_effect_in_order(engine: Engine, is_bulk: bool) -> None:
    staged = StagedEngine(engine)
    engine.set_bulk(is_bulk)
    staged.load(0, [b"a", b"b", b"c"], [b"1", b"2", b"3"])
    staged.load(1, [b"a"], [b"gone"])
    staged.load(0, [b"b", b"c"], [None, b"4"])
    staged.drop(1)
    assert staged.has_writes
    assert staged.staged_bytes() > 0
    staged.commit({"m": b"1"})

    assert list(staged.scan(0, None, None)) == [(b"a", b"1"), (b"c", b"4")]
    assert list(engine.scan(1, None, None)) == []
    assert (staged.has_writes, staged.staged_bytes(), list(staged.namespaces)) == (False, 0, [0])
    assert engine.metadata() == {"m": b"1"}
    staged.put(0, b"d", b"5")
    staged.load(0, [b"d"], [b"6"])
    staged.commit({})
    assert staged.get(0, b"d") == b"6"
    engine.close()


def test_engine_prepared_for_many_writes_holds_what_any_other_does(engine: Engine) -> None:
    """Written before, meanwhile and afterwards; a key that is written again and one that is deleted."""
    numbered = [b"%03d" % number for number in range(300)]
    engine.apply(EngineBatch(writes={0: dict.fromkeys(numbered[:100], b"before")}))
    engine.set_bulk(True)
    engine.apply(EngineBatch(writes={0: dict.fromkeys(numbered[50:200], b"first")}, metadata={"m": b"1"}))
    engine.apply(EngineBatch(writes={0: {**dict.fromkeys(numbered[150:200], b"second"), b"000": None}}))
    assert engine.get(0, b"160") == b"second"
    engine.set_bulk(True)
    engine.set_bulk(False)
    engine.apply(EngineBatch(writes={0: dict.fromkeys(numbered[200:], b"after")}, metadata={"n": b"2"}))

    expected = dict.fromkeys(numbered[1:50], b"before") | dict.fromkeys(numbered[50:150], b"first")
    expected |= dict.fromkeys(numbered[150:200], b"second") | dict.fromkeys(numbered[200:], b"after")
    assert dict(engine.scan(0, None, None)) == expected
    assert engine.metadata() == {"m": b"1", "n": b"2"}
    engine.close()


def test_store_that_was_there_shares_the_cache_like_a_new_one(tmp_path: Path) -> None:
    """RocksDB keeps the options of a database beside it; those of today count."""
    for _ in range(2):
        memory = RocksMemory.of(4 << 20)
        engine = RocksEngine.open(tmp_path, memory)
        engine.apply(EngineBatch(writes={0: {b"%06d" % number: b"x" * 100 for number in range(10_000)}}))
        engine.flush()
        before = memory.cache.get_usage()
        for number in range(10_000):
            engine.get(0, b"%06d" % number)
        assert memory.cache.get_usage() > before + 500_000
        engine.close()


def test_next_prefix_is_above_everything_with_the_prefix() -> None:
    assert next_prefix(b"ab") == b"ac"
    assert next_prefix(b"a\xff") == b"b"
    assert next_prefix(b"\xff\xff") is None
    assert next_prefix(b"") is None


def test_damaged_directory_is_a_store_error_that_says_what_to_do(tmp_path: Path) -> None:
    store = open_store(KV, tmp_path, default_engine="rocksdb")
    store.put("a", 1)
    store.commit({})
    store.close()
    (tmp_path / "CURRENT").write_text("nonsense\n")

    with pytest.raises(StoreError, match="delete it"):
        open_store(KV, tmp_path, default_engine="rocksdb")


WRITER = """
import os, signal, sys
from pathlib import Path
from streams.core.serdes.serdes import LONG, STRING
from streams.state import MemoryBudget, kinds, StoreSpec, open_store
store = open_store(
    StoreSpec("counts", kinds.KEY_VALUE, STRING, LONG), Path(sys.argv[1]),
    default_engine="rocksdb", memory_budget=MemoryBudget(0),
)
for number in range(int(sys.argv[2])):
    for key in range(50):
        store.put(f"{number:05}-{key:03}", number)
    store.put("last", number)
    store.commit({"position": str(number).encode()})
store.put("uncommitted", 1)
list(store.all())
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("commits", [1, 400])
def test_killed_store_reopens_with_data_and_positions_of_one_commit(tmp_path: Path, commits: int) -> None:
    """No write-ahead log: later commits may be lost, but only whole, and all after the first lost one."""
    done = programs.run(["-c", WRITER, str(tmp_path), str(commits)])
    assert done.returncode == -9

    store = open_store(KV, tmp_path, default_engine="rocksdb")
    found = dict(store.all())
    position = store.metadata().get("position")
    store.close()

    if commits == 1:
        assert (position, found) == (None, {})
        return
    # With small memtables something was flushed before the kill.
    assert position is not None
    last = int(position)
    expected = {f"{number:05}-{key:03}": number for number in range(last + 1) for key in range(50)}
    assert found == {**expected, "last": last}


@pytest.mark.parametrize("engine_name", ["in_memory", "rocksdb"])
def test_windows_expire_by_whole_segments(tmp_path: Path, engine_name: str) -> None:
    """Retention 100 s, so segments of 60 s: stream time 220 s ends the segment [0, 60)."""
    spec = StoreSpec("w", kinds.WINDOW, STRING, LONG, retention_ms=100_000, window_size_ms=10)
    store = open_store(spec, tmp_path, default_engine=engine_name)
    refused: list[int] = []
    store.on_expired = lambda: refused.append(1)
    staged = store._staged

    store.put("a", 1, 10_000)
    store.put("a", 2, 59_999)
    store.put("b", 3, 60_000)
    store.commit({})
    assert staged.engine.namespaces() == [0, 1]

    store.put("a", 4, 159_999)
    store.put("a", 5, 1)
    store.commit({})
    assert staged.engine.namespaces() == [0, 1, 2]
    assert store.fetch("a", 1) is None
    assert (store.expired, refused) == (0, [])

    store.put("a", 6, 160_000)
    store.put("a", 7, 59_999)
    store.commit({})
    assert staged.engine.namespaces() == [1, 2]
    assert (store.expired, refused) == (1, [1])
    assert store.metadata()["observed_stream_time_ms"] == (160_000).to_bytes(8, "big")
    store.close()


def test_exact_expiry_of_stores_declared_in_memory() -> None:
    spec = StoreSpec("w", kinds.WINDOW, STRING, LONG, retention_ms=100, window_size_ms=10, is_persistent=False)
    store = open_store(evolve(spec))
    store.put("a", 1, 50)
    store.put("a", 2, 150)
    store.put("a", 3, 50)
    store.put("a", 4, 51)

    assert [(key.window.start_ms, value) for key, value in store.all()] == [(51, 4), (150, 2)]
    assert store.expired == 1
