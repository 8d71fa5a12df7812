"""What stores note of their bytes, and which differences count."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from streams import session_windowed, time_windowed
from streams.core.serdes.serdes import BYTES, DOUBLE, LONG, STRING, PinnedSerde, Serde, serde_for
from streams.state import Content, StoreFormat, StoreSpec, kinds, open_store
from streams.state.engine.engines import EngineBatch
from streams.state.engine.memory import MemoryEngine
from streams.state.formats import serde_format
from streams.state.lifecycle import FORMAT

KV = StoreSpec("kv", kinds.KEY_VALUE, STRING, LONG)
WINDOWS = StoreSpec("w", kinds.WINDOW, STRING, LONG, retention_ms=600_000, window_size_ms=60_000)
SESSIONS = StoreSpec("s", kinds.SESSION, STRING, LONG, retention_ms=600_000)
VERSIONED = evolve(KV, kind=kinds.VERSIONED, history_ms=600_000)


@frozen
class Total:
    cents: int


@frozen
class Sum:
    cents: int
    note: str = ""


def format_of(spec: StoreSpec) -> StoreFormat:
    return StoreFormat.of(spec, is_logged=True)


def differences(one: StoreSpec, two: StoreSpec) -> str:
    return "; ".join(Content.of(one).differences(Content.of(two)))


@pytest.mark.parametrize(
    ("one", "two", "says"),
    [
        (KV, evolve(KV, value_serde=DOUBLE), "values written as long, but the topology reads double"),
        (KV, evolve(KV, key_serde=BYTES), "keys written as string, but the topology reads bytes"),
        (KV, WINDOWS, "entries by key, but the topology keeps windows"),
        (WINDOWS, SESSIONS, "windows, but the topology keeps sessions"),
        (WINDOWS, evolve(WINDOWS, window_size_ms=1), "windows of 60000 ms, but those of the topology have 1 ms"),
        (
            WINDOWS,
            evolve(WINDOWS, retain_duplicates=True),
            "one value per key and time, but the topology",
        ),
    ],
)
def test_entries_of_another_meaning_are_told(one: StoreSpec, two: StoreSpec, says: str) -> None:
    assert says in differences(one, two)
    assert differences(two, one)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (KV, VERSIONED),
        (KV, evolve(KV, kind=kinds.TIMESTAMPED_KEY_VALUE)),
        (KV, evolve(KV, kind=kinds.LRU, max_entries=7)),
        (WINDOWS, evolve(WINDOWS, kind=kinds.TIMESTAMPED_WINDOW, retention_ms=60_000_000)),
        (WINDOWS, evolve(WINDOWS, has_caching=False, has_changelog=False, is_persistent=False)),
        (KV, evolve(KV, value_serde=PinnedSerde("node"))),
        (KV, evolve(KV, value_serde=PinnedSerde("node", "long"))),
        (evolve(WINDOWS, retain_duplicates=True), evolve(WINDOWS, retain_duplicates=True, window_size_ms=7)),
        (evolve(KV, value_serde=serde_for(Total)), evolve(KV, value_serde=serde_for(Sum))),
    ],
)
def test_entries_that_are_read_as_they_were_written_do_not_differ(one: StoreSpec, two: StoreSpec) -> None:
    assert not differences(one, two)
    assert not differences(two, one)


@pytest.mark.parametrize(
    ("serde", "note"),
    [
        (LONG, "long"),
        (serde_for(Total), "json"),
        (serde_for(dict[str, int]), "json"),
        (time_windowed(Total, timedelta(seconds=1)), "time_windowed:1000:json"),
        (session_windowed(PinnedSerde("node", "long")), "session_windowed:long"),
        (session_windowed(PinnedSerde("node")), None),
        (Serde("held:string:pinned", str.encode, bytes.decode), None),
        (Serde(f"held:{serde_for(Total).name}:long", str.encode, bytes.decode), "held:json"),
        (Serde("avro:total", str.encode, bytes.decode), "avro:total"),
    ],
)
def test_serdes_are_noted_by_what_they_read(serde: Serde[Any], note: str | None) -> None:
    assert serde_format(serde) == note


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (KV, VERSIONED),
        (KV, evolve(KV, kind=kinds.TIMESTAMPED_KEY_VALUE)),
        (WINDOWS, evolve(WINDOWS, retention_ms=900_000)),
        (SESSIONS, evolve(SESSIONS, retention_ms=900_000)),
        (VERSIONED, evolve(VERSIONED, history_ms=3_600_000)),
    ],
)
def test_kind_and_segments_decide_where_entries_lie(one: StoreSpec, two: StoreSpec) -> None:
    assert not format_of(one).has_layout_of(format_of(two))
    assert format_of(one).has_layout_of(format_of(one))


def test_short_retentions_share_a_length_of_segments() -> None:
    assert format_of(evolve(WINDOWS, retention_ms=0)).has_layout_of(format_of(evolve(WINDOWS, retention_ms=120_000)))


@pytest.mark.parametrize("spec", [KV, WINDOWS, SESSIONS, VERSIONED, evolve(KV, value_serde=PinnedSerde("node"))])
def test_note_comes_back_from_its_bytes(spec: StoreSpec) -> None:
    assert StoreFormat.read(format_of(spec).encode()) == format_of(spec)
    assert Content.from_json(Content.of(spec).to_json()) == Content.of(spec)


@pytest.mark.parametrize("row", [None, [], ["trees", "a", "b"], 7, {"a": 1}])
def test_what_is_no_content_is_none(row: Any) -> None:
    assert Content.from_json(row) is None


def test_note_of_a_later_form_counts_as_none() -> None:
    assert StoreFormat.read(b'{"format":2}') is None
    assert StoreFormat.read(None) is None


def test_store_is_noted_at_its_commit_and_found_with_the_note_of_before(tmp_path: Path) -> None:
    store = open_store(KV, tmp_path, default_engine="rocksdb")
    assert store.found_format is None
    store.put("a", 1)
    store.commit({})
    store.close()
    store = open_store(evolve(KV, value_serde=DOUBLE), tmp_path, default_engine="rocksdb")

    assert store.found_format == format_of(KV)
    assert store.own_format() == format_of(evolve(KV, value_serde=DOUBLE))
    store.close()


def test_store_of_before_there_were_notes_is_noted_at_its_next_commit() -> None:
    engine = MemoryEngine()
    engine.apply(EngineBatch([], {0: {b"a": LONG.serialize(1)}}, {"changelog_position": b"1"}))
    store = open_store(KV, engine=engine)
    assert (store.found_format, store.get("a")) == (None, 1)
    store.commit({})

    assert engine.metadata() == {"changelog_position": b"1", FORMAT: format_of(KV).encode()}


def test_type_that_nobody_declared_is_noted_once_it_is_known() -> None:
    store = open_store(evolve(KV, value_serde=PinnedSerde("node")))
    store.commit({})
    assert store.own_format().content.value is None
    store.put("a", 1.5)
    store.commit({})

    assert store.own_format().content.value == "double"
    assert store.metadata()[FORMAT] == store.own_format().encode()


def test_what_was_written_without_a_changelog_is_never_taken_to_be_in_one(tmp_path: Path) -> None:
    def noted(*, has_changelog: bool, entry: str | None = None) -> bool:
        store = open_store(evolve(KV, has_changelog=has_changelog), tmp_path, default_engine="rocksdb")
        if entry is not None:
            store.put(entry, 1)
        store.commit({"run": b"1"})
        store.close()
        return bool(store.own_format().is_logged)

    assert not noted(has_changelog=False)
    assert noted(has_changelog=True)
    assert not noted(has_changelog=False, entry="a")
    assert not noted(has_changelog=True, entry="b")
    assert not noted(has_changelog=True)
