"""Restore, changelog, commit, types and close: what is the same for all stores."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from streams.core.blocks.records import Block, Window, Windowed
from streams.core.errors import SerializationError, StoreClosedError, StoreError
from streams.core.serdes.serdes import JSON, LONG, STRING, PinnedSerde, serde_for
from streams.state import StoreSpec, ValueAndTimestamp, kinds, open_store
from streams.state.lifecycle import FORMAT

KV = StoreSpec("counts", kinds.KEY_VALUE, STRING, LONG)
WINDOWS = StoreSpec("w", kinds.TIMESTAMPED_WINDOW, STRING, LONG, retention_ms=100_000, window_size_ms=10)
SESSIONS = StoreSpec("s", kinds.SESSION, STRING, LONG, retention_ms=100_000)
ALL_KINDS = [
    KV,
    evolve(KV, kind=kinds.TIMESTAMPED_KEY_VALUE),
    evolve(KV, kind=kinds.LRU, max_entries=3),
    WINDOWS,
    evolve(WINDOWS, kind=kinds.WINDOW),
    SESSIONS,
    evolve(KV, kind=kinds.VERSIONED, history_ms=1000),
]


def rows(block: Block | None) -> list[Any]:
    assert block is not None
    return [(key, value, time) for _, key, value, time, _ in block.rows()]


def long(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def test_changelog_has_the_last_value_per_key_in_order_of_last_change() -> None:
    store = open_store(evolve(KV, kind=kinds.TIMESTAMPED_KEY_VALUE))
    store.put_pair("a", 1, 10)
    store.put_pair("b", 2, 20)
    store.put_pair("a", 3, 5)
    store.put_pair("c", None, 30)

    assert rows(store.drain_changes()) == [(b"b", long(2), 20), (b"a", long(3), 5), (b"c", None, 30)]
    assert store.drain_changes() is None


def test_changelog_has_the_time_of_the_record_that_changed_an_entry_without_a_time() -> None:
    """As in Kafka Streams, also of deletions."""
    store = open_store(KV)
    for record_ms, key, value in ((10, "a", 1), (30, "b", 2), (20, "a", None)):
        store.hot.record_ms = record_ms
        store.put(key, value)
    sessions = open_store(SESSIONS)
    sessions.hot.record_ms = 7
    sessions.put_at("k", 5, 20, 1)

    assert rows(store.drain_changes()) == [(b"b", long(2), 30), (b"a", None, 20)]
    assert rows(sessions.drain_changes()) == [(b"k" + long(20) + long(5), long(1), 7)]


def test_order_of_changes_spans_range_reads_between_them() -> None:
    store = open_store(KV)
    store.put("a", 1)
    store.put("b", 2)
    list(store.all())
    store.put("a", 3)

    assert [row[:2] for row in rows(store.drain_changes())] == [(b"b", long(2)), (b"a", long(3))]


def test_window_changelog_key_is_key_start_and_sequence() -> None:
    store = open_store(WINDOWS)
    store.put_pair("k", 7, 15, 10)

    assert rows(store.drain_changes()) == [(b"k" + long(10) + bytes(4), long(7), 15)]


def test_duplicates_have_ascending_sequences_also_after_a_restore() -> None:
    spec = evolve(WINDOWS, kind=kinds.WINDOW, retain_duplicates=True)
    store = open_store(spec)
    store.put("k", 1, 10)
    store.put("k", 2, 10)
    changes = store.drain_changes()
    restored = open_store(spec)
    restored.restore(changes)
    restored.put("k", 3, 10)

    assert [row[0][-4:] for row in rows(changes)] == [b"\0\0\0\1", b"\0\0\0\2"]
    assert list(restored.fetch_range("k", 0, 100)) == [(10, 1), (10, 2), (10, 3)]


def test_session_changelog_key_is_key_end_and_start() -> None:
    store = open_store(SESSIONS)
    store.put(Windowed("k", Window(10, 25)), 7)

    assert [row[:2] for row in rows(store.drain_changes())] == [(b"k" + long(25) + long(10), long(7))]


def test_versioned_changelog_keeps_every_version() -> None:
    store = open_store(evolve(KV, kind=kinds.VERSIONED, history_ms=1000))
    for value, time in ((1, 10), (3, 30), (2, 20), (None, 40)):
        store.put("k", value, time)

    assert [row[1:] for row in rows(store.drain_changes())] == [
        (long(1), 10),
        (long(3), 30),
        (long(2), 20),
        (None, 40),
    ]


def test_store_without_changelog_drains_nothing() -> None:
    store = open_store(evolve(KV, has_changelog=False))
    store.put("a", 1)

    assert store.drain_changes() is None
    store.commit({})
    assert store.get("a") == 1


def test_restored_timestamped_value_takes_the_record_time() -> None:
    store = open_store(evolve(KV, kind=kinds.TIMESTAMPED_KEY_VALUE))
    store.restore(Block([b"a"], [long(5)], [77]))

    assert store.get("a") == ValueAndTimestamp(5, 77)
    assert store.drain_changes() is None


def test_uncommitted_writes_are_lost_at_close_and_committed_ones_found_again(tmp_path: Path) -> None:
    store = open_store(KV, tmp_path, default_engine="rocksdb")
    store.put("kept", 1)
    store.commit({"offset": b"7"})
    store.put("lost", 2)
    store.close()
    store = open_store(KV, tmp_path, default_engine="rocksdb")

    assert list(store.all()) == [("kept", 1)]
    assert store.metadata() == {"offset": b"7", FORMAT: store.own_format().encode()}


def test_metadata_is_of_the_last_commit_and_merges() -> None:
    store = open_store(KV)
    assert store.metadata() == {}
    store.commit({"a": b"1", "b": b"1"})
    store.commit({"a": b"2"})

    assert store.metadata() == {"a": b"2", "b": b"1", FORMAT: store.own_format().encode()}


@pytest.mark.parametrize("spec", ALL_KINDS, ids=lambda spec: spec.kind.name)
def test_closed_store_says_so(spec: StoreSpec) -> None:
    store = open_store(spec)
    store.close()
    store.close()

    uses = {
        kinds.SESSION: lambda: store.fetch("a"),
        kinds.VERSIONED: lambda: store.get("a"),
        kinds.WINDOW: lambda: store.fetch("a", 1),
        kinds.TIMESTAMPED_WINDOW: lambda: store.fetch("a", 1),
    }
    with pytest.raises(StoreClosedError, match=spec.name):
        uses.get(spec.kind, lambda: store.get("a"))()


def test_null_key_is_refused() -> None:
    with pytest.raises(StoreError, match="'counts': a key is None"):
        open_store(KV).put(None, 1)


def test_value_of_wrong_type_is_refused_where_it_is_put() -> None:
    with pytest.raises(SerializationError):
        open_store(KV).put("a", "text")


def test_value_that_fails_only_at_commit_names_the_store() -> None:
    store = open_store(KV)
    store.put("a", 1 << 70)

    with pytest.raises(SerializationError) as caught:
        store.commit({})
    assert "while writing store 'counts'" in caught.value.__notes__


def test_equal_keys_of_different_types_stay_apart() -> None:
    store = open_store(evolve(KV, key_serde=JSON))
    for number, key in enumerate((1, True, 1.5, "1", [1], None, 0, False)):
        if key is not None:
            store.put(key, number)

    assert [store.get(key) for key in (1, True, 1.5, "1", [1], 0, False)] == [0, 1, 2, 3, 4, 6, 7]


def test_string_subclass_finds_what_a_string_put() -> None:
    class Name(str):
        pass

    store = open_store(KV)
    store.put(Name("a"), 1)

    assert store.get("a") == store.get(Name("a")) == 1
    assert [type(key) for key, _ in store.all()] == [str]


@pytest.mark.parametrize("is_committed", [False, True])
def test_changing_an_object_that_was_put_or_read_does_not_change_the_store(is_committed: bool) -> None:
    store = open_store(evolve(KV, value_serde=JSON))
    value = {"n": 1}
    store.put("a", value)
    if is_committed:
        store.commit({})
    value["n"] = 2
    store.get("a")["n"] = 3

    assert store.get("a") == {"n": 1}


def test_iterators_stay_as_they_were_when_the_store_is_written_to(tmp_path: Path) -> None:
    for engine in ("in_memory", "rocksdb"):
        store = open_store(KV, tmp_path / engine, default_engine=engine)
        store.put_all([("a", 1), ("b", 2), ("c", 3)])
        store.commit({})
        seen = []
        for key, value in store.all():
            store.delete(key)
            store.put(key + "x", value)
            store.commit({})
            seen.append(key)
        assert seen == ["a", "b", "c"]
        store.close()


def test_long_scan_reads_everything_in_order(tmp_path: Path) -> None:
    store = open_store(KV, tmp_path, default_engine="rocksdb")
    store.put_all([(f"{number:05}", number) for number in range(3000)])
    store.commit({})
    store.put("00500", None)
    expected = [number for number in range(3000) if number != 500]

    assert [value for _, value in store.all()] == expected
    assert [value for _, value in store.reverse_all()] == expected[::-1]
    assert [value for _, value in store.range("00063", "00065")] == [63, 64, 65]
    assert [value for _, value in store.reverse_range("00010", "02000")] == list(
        reversed([*range(10, 500), *range(501, 2001)])
    )
    store.close()


@pytest.mark.parametrize("engine", ["in_memory", "rocksdb"])
def test_pinned_types_are_kept_in_metadata_and_pinned_again_on_open(tmp_path: Path, engine: str) -> None:
    def spec() -> StoreSpec:
        return evolve(KV, key_serde=PinnedSerde("group"), value_serde=PinnedSerde("agg"))

    store = open_store(spec(), tmp_path, default_engine=engine)
    store.put("a", [1])
    store.put("b", [2])
    assert store.get("a") == [1]
    changes = store.drain_changes()
    store.commit({})
    metadata = store.metadata()
    store.close()

    assert metadata["key_type"] == b"string"
    assert changes.headers[0] == tuple((name, metadata[name]) for name in ("key_type", "value_type"))
    again = open_store(spec(), tmp_path / "new", default_engine=engine)
    again.restore(changes)
    assert list(again.all()) == [("a", [1]), ("b", [2])]
    again.close()
    if engine == "rocksdb":
        reopened = open_store(spec(), tmp_path, default_engine=engine)
        assert list(reopened.all()) == [("a", [1]), ("b", [2])]
        with pytest.raises(SerializationError, match="group"):
            reopened.put(1, [1])
        reopened.close()


def test_typed_immutable_values_are_held_as_objects() -> None:
    store = open_store(evolve(KV, value_serde=serde_for(tuple[int, ...])))
    value = (1, 2)
    store.put("a", value)
    store.put("a", value)

    assert store.get("a") == value
    with pytest.raises(SerializationError):
        store.put("a", "text")


def test_snapshot_gives_the_content_sorted_by_key() -> None:
    store = open_store(WINDOWS)
    store.put_pair("b", 1, 5, 0)
    store.put_pair("a", 2, 6, 70_000)
    store.commit({})
    store.put_pair("a", 3, 7, 10)

    (block,) = store.snapshot_blocks()
    assert [row[0][:1] for row in rows(block)] == [b"a", b"a", b"b"]
    assert [row[1:] for row in rows(block)] == [(long(3), 7), (long(2), 6), (long(1), 5)]


def test_lru_store_forgets_the_least_recently_used_and_logs_it() -> None:
    store = open_store(evolve(KV, kind=kinds.LRU, max_entries=2))
    store.put("a", 1)
    store.put("b", 2)
    store.get("a")
    store.put("c", 3)

    assert (store.get("a"), store.get("b"), store.get("c")) == (1, None, 3)
    assert [row[:2] for row in rows(store.drain_changes())] == [(b"a", long(1)), (b"c", long(3)), (b"b", None)]


def test_reads_over_many_keys_of_an_lru_store_go_by_key_and_use_none() -> None:
    store = open_store(evolve(KV, kind=kinds.LRU, max_entries=3))
    for number, key in enumerate(["c", "ab", "b"]):
        store.put(key, number)

    assert list(store.all()) == [("ab", 1), ("b", 2), ("c", 0)]
    assert list(store.reverse_all()) == [("c", 0), ("b", 2), ("ab", 1)]
    assert list(store.range("b", None)) == [("b", 2), ("c", 0)]
    assert list(store.reverse_range(None, "b")) == [("b", 2), ("ab", 1)]
    assert list(store.range("c", "a")) == []
    assert list(store.prefix_scan("a")) == [("ab", 1)]
    store.put("d", 3)
    assert list(store.all()) == [("ab", 1), ("b", 2), ("d", 3)]


def test_one_window_of_retained_duplicates_is_found_on_disk_only() -> None:
    """Kafka Streams' memory store looks for the key without its sequence number."""
    spec = evolve(WINDOWS, kind=kinds.WINDOW, retain_duplicates=True)
    for is_persistent, found in ((False, None), (None, 2)):
        store = open_store(evolve(spec, is_persistent=is_persistent))
        store.put("a", 1, 0)
        store.put("a", 2, 0)

        assert store.fetch("a", 0) == found


def test_nothing_put_where_duplicates_are_retained_moves_the_time_in_memory_only() -> None:
    """Kafka Streams' memory store takes the time of a null first, its RocksDB store leaves the null out."""
    spec = evolve(WINDOWS, kind=kinds.WINDOW, retain_duplicates=True)
    for is_persistent, left in ((False, []), (None, [(0, 1)])):
        store = open_store(evolve(spec, is_persistent=is_persistent))
        store.put("a", 1, 0)
        store.put("a", None, spec.retention_ms)

        assert list(store.fetch_range("a", 0, spec.retention_ms)) == left


def test_backward_session_reads_are_refused_behind_a_changelog() -> None:
    store = open_store(SESSIONS)
    with pytest.raises(StoreError, match="backward_fetch"):
        store.backward_fetch("a")


@pytest.mark.parametrize("spec", [evolve(WINDOWS, retention_ms=-1), evolve(WINDOWS, retain_duplicates=True)])
def test_spec_that_lacks_something_is_refused(spec: StoreSpec) -> None:
    with pytest.raises(StoreError, match="'w'"):
        open_store(spec)
