"""Every view answers as a plain model does, on both engines, through commits, reopening and restores.

The models know the rules of the reference's stores (visibility, refusal, order) and nothing of
buffers, segments or bytes but their order.
"""

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streams.core.blocks.records import Block, Window, Windowed
from streams.core.errors import StoreError
from streams.core.serdes.serdes import JSON, LONG, STRING, Serde
from streams.state import (
    NOT_PUT,
    VALID_TO_UNDEFINED,
    MemoryBudget,
    StoreSpec,
    ValueAndTimestamp,
    WindowStore,
    kinds,
    open_store,
)

ENGINES = ["in_memory", "rocksdb"]
#: Few and similar keys, whose bytes interleave with the times that follow them.
KEYS = ["", "a", "a\x00", "ab", "b", "é", "\U0001f600"]
RETENTION_MS = 100_000
SEGMENT_MS = 60_000
WINDOW_MS = 10_000

keys = st.sampled_from(KEYS)
values = st.one_of(st.none(), st.integers(0, 3))
upkeep = st.sampled_from([("drain",), ("commit",), ("reopen",), ("restore",)])


def order(key: str) -> bytes:
    return key.encode()


@define
class Harness:
    """A store that can be committed, reopened and rebuilt from its changelog."""

    spec: StoreSpec
    engine: str
    directory: Path
    store: Any = None
    log: list[Block] = field(factory=list)
    incarnation: int = 0

    def __attrs_post_init__(self) -> None:
        self.store = self._open()

    def _open(self) -> Any:
        path = self.directory / str(self.incarnation)
        # A tiny read cache, so that its generations turn.
        budget = MemoryBudget(0)
        return open_store(self.spec, path, default_engine=self.engine, memory_budget=budget)  # type: ignore[arg-type]

    def upkeep(self, action: str) -> None:
        block = self.store.drain_changes()
        if block is not None:
            self.log.append(block)
        if action == "drain":
            return
        self.store.commit({"position": b"1"})
        if action == "commit":
            return
        self.store.close()
        if action == "restore" or self.engine == "in_memory" or self.spec.is_persistent is False:
            self.incarnation += 1
            self.store = self._open()
            for entry in self.log:
                self.store.restore(entry)
        else:
            self.store = self._open()
            assert self.store.metadata()["position"] == b"1"


def harnesses(spec: StoreSpec, engine: str) -> Iterator[Harness]:
    with tempfile.TemporaryDirectory() as directory:
        harness = Harness(spec, engine, Path(directory))
        yield harness
        harness.store.close()


def rebuilt(harness: Harness) -> Any:
    """Return a memory store made from the snapshot of the harness's store."""
    copy = open_store(harness.spec)
    for block in harness.store.snapshot_blocks():
        copy.restore(block)
    return copy


# Key-value.

kv_ops = st.lists(
    st.one_of(
        upkeep,
        st.tuples(st.just("put"), keys, values),
        st.tuples(st.just("put_if_absent"), keys, values),
        st.tuples(st.just("delete"), keys),
        st.tuples(st.just("get"), keys),
        st.tuples(st.just("range"), st.one_of(st.none(), keys), st.one_of(st.none(), keys)),
        st.tuples(st.just("prefix"), keys),
        st.tuples(st.just("count")),
    ),
    max_size=40,
)


def kv_expected(model: dict[str, Any], op: tuple[Any, ...]) -> Any:
    """Perform ``op`` on a dict."""
    name, *rest = op
    ordered = sorted(model, key=order)
    if name == "count":
        return len(model)
    if name == "range":
        low, high = (None if key is None else order(key) for key in rest)
        return [
            (key, model[key])
            for key in ordered
            if (low is None or order(key) >= low) and (high is None or order(key) <= high)
        ]
    if name == "prefix":
        return [(key, model[key]) for key in ordered if order(key).startswith(order(rest[0]))]
    key = rest[0]
    old = model.get(key)
    if name == "put" or (name == "put_if_absent" and old is None):
        if rest[1] is None:
            model.pop(key, None)
        else:
            model[key] = rest[1]
    if name == "delete":
        model.pop(key, None)
    return None if name == "put" else old


def kv_actual(store: Any, op: tuple[Any, ...]) -> Any:
    name, *rest = op
    if name == "count":
        return store.approximate_num_entries()
    if name == "range":
        forward = list(store.range(*rest))
        assert list(store.reverse_range(*rest)) == forward[::-1]
        return forward
    if name == "prefix":
        return list(store.prefix_scan(*rest))
    return getattr(store, name)(*rest)


@pytest.mark.case
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("serde", [LONG, JSON], ids=["immutable", "mutable"])
@settings(max_examples=60, deadline=None)
@given(kv_ops)
def test_key_value_store_is_a_map_ordered_by_key_bytes(serde: Serde[Any], engine: str, ops: list[Any]) -> None:
    model: dict[str, Any] = {}
    for harness in harnesses(StoreSpec("s", kinds.KEY_VALUE, STRING, serde), engine):
        for op in ops:
            if op[0] in ("drain", "commit", "reopen", "restore"):
                harness.upkeep(op[0])
            elif op[0] == "count" and engine == "rocksdb":
                continue  # An estimate.
            else:
                assert kv_actual(harness.store, op) == kv_expected(model, op), op
        expected = sorted(model.items(), key=lambda entry: order(entry[0]))
        assert list(harness.store.all()) == expected
        assert list(harness.store.reverse_all()) == expected[::-1]
        assert list(rebuilt(harness).all()) == expected
        assert harness.store.is_empty == (not model)


@pytest.mark.case
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=60, deadline=None)
@given(kv_ops)
def test_timestamped_store_keeps_the_time_of_each_value(engine: str, ops: list[Any]) -> None:
    model: dict[str, Any] = {}
    for harness in harnesses(StoreSpec("s", kinds.TIMESTAMPED_KEY_VALUE, STRING, JSON), engine):
        for time_ms, op in enumerate(ops):
            if op[0] in ("drain", "commit", "reopen", "restore"):
                harness.upkeep(op[0])
            elif op[0] == "count" and engine == "rocksdb":
                continue
            else:
                if op[0] in ("put", "put_if_absent") and op[2] is not None:
                    op = (*op[:2], ValueAndTimestamp([op[2]], time_ms))
                assert kv_actual(harness.store, op) == kv_expected(model, op), op
        assert dict(rebuilt(harness).all()) == model


# Windows.

starts = st.integers(0, 40).map(lambda step: step * 7_000)
bounds = st.tuples(starts, starts)
window_ops = st.lists(
    st.one_of(
        upkeep,
        st.tuples(st.just("put"), keys, values, starts),
        st.tuples(st.just("put"), keys, values, starts),
        st.tuples(st.just("fetch"), keys, starts),
        st.tuples(st.just("fetch_range"), keys, bounds),
        st.tuples(st.just("fetch_keys"), st.one_of(st.none(), keys), st.one_of(st.none(), keys), bounds),
        st.tuples(st.just("fetch_all"), bounds),
        st.tuples(st.just("all")),
        st.tuples(st.just("windows_between"), bounds),
    ),
    max_size=40,
)


@define
class WindowModel:
    """All windows ever accepted, in order of their last put; reads filter."""

    is_exact: bool
    retains: bool
    rows: list[tuple[str, int, Any]] = field(factory=list)
    observed_ms: int = -1
    expired: int = 0

    def put(self, key: str, value: Any, start: int) -> None:
        if self.retains and value is None:
            return
        self.observed_ms = max(self.observed_ms, start)
        horizon = self.observed_ms - RETENTION_MS
        if start <= horizon if self.is_exact else start // SEGMENT_MS < max(horizon, 0) // SEGMENT_MS:
            self.expired += 1
            return
        if not self.retains:
            self.rows = [row for row in self.rows if row[:2] != (key, start)]
        if value is not None:
            self.rows.append((key, start, value))

    def rank(self, row: tuple[str, int, Any]) -> Any:
        key, start, _ = row
        if self.is_exact:
            return start, order(key)
        return start // SEGMENT_MS, order(key) + struct.pack(">q", start)

    def read(self, low: str | None, high: str | None, first: int, last: int) -> list[tuple[str, int, Any]]:
        first = max(first, self.observed_ms - RETENTION_MS + 1)
        found = [
            row
            for row in self.rows
            if first <= row[1] <= last
            and (low is None or order(row[0]) >= order(low))
            and (high is None or order(row[0]) <= order(high))
        ]
        return sorted(found, key=self.rank)


def windowed(rows: list[tuple[str, int, Any]]) -> list[Any]:
    return [(Windowed(key, Window(start, start + WINDOW_MS)), value) for key, start, value in rows]


def check_window_op(store: Any, model: WindowModel, op: tuple[Any, ...]) -> None:
    name, *rest = op
    if name == "put":
        # What joins do it by, every other time.
        put = store.append if model.retains and rest[2] % 2 else store.put
        put(*rest)
        model.put(*rest)
    elif name == "fetch":
        if not model.retains:
            found = model.read(rest[0], rest[0], rest[1], rest[1])
            assert store.fetch(*rest) == (found[0][2] if found else None)
    elif name == "fetch_range":
        key, (first, last) = rest
        expected = [row[1:] for row in model.read(key, key, first, last)]
        if isinstance(store, WindowStore):
            assert list(store.rows_in_range(key, first, last)) == expected
        assert list(store.fetch_range(key, first, last)) == expected
        assert list(store.backward_fetch_range(key, first, last)) == expected[::-1]
    elif name == "windows_between":
        first, last = rest[0]
        found = sorted(model.read(None, None, first, last), key=lambda row: (row[1], order(row[0])))
        assert list(store.windows_between(first, last)) == [(start, key, value) for key, start, value in found]
    else:
        low, high = rest[:2] if name == "fetch_keys" else (None, None)
        first, last = rest[-1] if rest else (0, 1 << 40)
        times = (first, last) if rest else ()
        method_args = (*rest[:-1], *times)
        expected_all = windowed(model.read(low, high, first, last))
        assert list(getattr(store, name)(*method_args)) == expected_all
        assert list(getattr(store, f"backward_{name}")(*method_args)) == expected_all[::-1]


def run_windows(spec: StoreSpec, engine: str, ops: list[Any]) -> None:
    model = WindowModel(spec.is_persistent is False, spec.retain_duplicates)
    for harness in harnesses(spec, engine):
        expired = 0
        for op in ops:
            if op[0] in ("drain", "commit", "reopen", "restore"):
                expired += harness.store.expired
                harness.upkeep(op[0])
                expired -= 0 if op[0] in ("reopen", "restore") else harness.store.expired
            else:
                check_window_op(harness.store, model, op)
        assert expired + harness.store.expired == model.expired
        assert list(harness.store.all()) == windowed(model.read(None, None, 0, 1 << 40))


WINDOW_SPEC = StoreSpec("s", kinds.WINDOW, STRING, LONG, retention_ms=RETENTION_MS, window_size_ms=WINDOW_MS)


@pytest.mark.world
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("serde", [LONG, JSON], ids=["immutable", "mutable"])
@settings(max_examples=80, deadline=None)
@given(window_ops)
def test_window_store_goes_by_segment_then_key_then_start(serde: Serde[Any], engine: str, ops: list[Any]) -> None:
    run_windows(evolve(WINDOW_SPEC, value_serde=serde), engine, ops)


@settings(max_examples=80, deadline=None)
@given(window_ops)
def test_window_store_declared_in_memory_goes_by_start_then_key(ops: list[Any]) -> None:
    run_windows(evolve(WINDOW_SPEC, is_persistent=False), "rocksdb", ops)


@pytest.mark.world
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=60, deadline=None)
@given(window_ops)
def test_window_store_that_retains_duplicates_keeps_them_in_order(engine: str, ops: list[Any]) -> None:
    run_windows(evolve(WINDOW_SPEC, retain_duplicates=True), engine, ops)


@pytest.mark.world
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=60, deadline=None)
@given(window_ops)
def test_timestamped_window_store_keeps_the_time_of_each_value(engine: str, ops: list[Any]) -> None:
    model = WindowModel(is_exact=False, retains=False)
    for harness in harnesses(evolve(WINDOW_SPEC, kind=kinds.TIMESTAMPED_WINDOW), engine):
        for time_ms, op in enumerate(ops):
            if op[0] in ("drain", "commit", "reopen", "restore"):
                harness.upkeep(op[0])
            elif op[0] == "put" and op[2] is not None:
                check_window_op(harness.store, model, ("put", op[1], ValueAndTimestamp(op[2], time_ms), op[3]))
            else:
                check_window_op(harness.store, model, op)
        expected = windowed(model.read(None, None, 0, 1 << 40))
        assert list(harness.store.all()) == expected
        if expected and max(row[0].window.start_ms for row in expected) == model.observed_ms:
            assert list(rebuilt(harness).all()) == expected


# Sessions.

spans = st.tuples(starts, st.integers(0, 4).map(lambda step: step * 5_000)).map(lambda s: (s[0], s[0] + s[1]))
session_ops = st.lists(
    st.one_of(
        upkeep,
        st.tuples(st.just("put"), keys, spans, values),
        st.tuples(st.just("put"), keys, spans, values),
        st.tuples(st.just("remove"), keys, spans),
        st.tuples(st.just("fetch_session"), keys, spans),
        st.tuples(st.just("find"), keys, bounds),
        st.tuples(st.just("find_keys"), st.one_of(st.none(), keys), st.one_of(st.none(), keys), bounds),
        st.tuples(st.just("sessions_between"), bounds),
    ),
    max_size=40,
)


@define
class SessionModel:
    """All sessions ever accepted."""

    is_exact: bool
    rows: dict[tuple[str, int, int], Any] = field(factory=dict)
    observed_ms: int = -1

    def live_from_ms(self) -> int:
        horizon = self.observed_ms - RETENTION_MS
        return horizon + 1 if self.is_exact else max(horizon, 0) // SEGMENT_MS * SEGMENT_MS

    def put(self, key: str, span: tuple[int, int], value: Any) -> None:
        self.observed_ms = max(self.observed_ms, span[1])
        if span[1] < self.live_from_ms():
            return
        self.rows.pop((key, *span), None)
        if value is not None:
            self.rows[key, span[0], span[1]] = value

    def rank(self, row: tuple[str, int, int]) -> Any:
        key, start, end = row
        if self.is_exact:
            return end, order(key), -start
        return end // SEGMENT_MS, order(key) + struct.pack(">qq", end, start)

    def read(self, low: str | None, high: str | None, earliest_end: int, latest_start: int) -> list[Any]:
        visible = self.observed_ms - RETENTION_MS + 1
        found = [
            row
            for row in self.rows
            if row[2] >= max(earliest_end, visible)
            and row[1] <= latest_start
            and (low is None or order(row[0]) >= order(low))
            and (high is None or order(row[0]) <= order(high))
        ]
        return self.shown(sorted(found, key=self.rank))

    def shown(self, rows: list[tuple[str, int, int]]) -> list[Any]:
        return [(Windowed(row[0], Window(row[1], row[2])), self.rows[row]) for row in rows]


def check_session_op(store: Any, model: SessionModel, op: tuple[Any, ...]) -> None:
    name, key, *rest = op
    if name == "put":
        store.put(Windowed(key, Window(*rest[0])), rest[1])
        model.put(key, rest[0], rest[1])
    elif name == "remove":
        # The time of a removal counts in one sort of store only; kept out of the comparison.
        if rest[0][1] <= model.observed_ms:
            store.remove(Windowed(key, Window(*rest[0])))
            model.put(key, rest[0], None)
    elif name == "fetch_session":
        found = [row for row in model.read(key, key, rest[0][1], rest[0][0]) if row[0].window == rest[0]]
        assert store.fetch_session(key, *rest[0]) == (found[0][1] if found else None)
    elif name == "find":
        expected = model.read(key, key, *rest[0])
        assert list(store.find_sessions(key, *rest[0])) == expected
        with pytest.raises(StoreError, match="read forwards"):
            store.backward_find_sessions(key, *rest[0])
        by_end = sorted(expected, key=lambda row: row[0].window[::-1])
        assert store.sessions_of(key, *rest[0]) == [(*row[0].window, row[1]) for row in by_end]
    elif name == "find_keys":
        expected = model.read(key, rest[0], *rest[1])
        assert list(store.find_sessions_of_keys(key, rest[0], *rest[1])) == expected
        with pytest.raises(StoreError, match="read forwards"):
            store.backward_find_sessions_of_keys(key, rest[0], *rest[1])
    else:
        first, last = max(key[0], model.live_from_ms()), key[1]
        rows = sorted((row for row in model.rows if first <= row[2] <= last), key=lambda r: (r[2], r[1], order(r[0])))
        assert list(store.sessions_between(first, last)) == model.shown(rows)


def run_sessions(spec: StoreSpec, engine: str, ops: list[Any]) -> None:
    model = SessionModel(spec.is_persistent is False)
    for harness in harnesses(spec, engine):
        for op in ops:
            # Backward reads need a store without a changelog, which cannot be rebuilt.
            if op[0] in ("drain", "commit") or (op[0] == "reopen" and engine == "rocksdb" and not model.is_exact):
                harness.upkeep(op[0])
            elif op[0] not in ("reopen", "restore"):
                check_session_op(harness.store, model, op)
        assert list(harness.store.fetch_keys(None, None)) == model.read(None, None, 0, 1 << 40)
        copy = rebuilt(harness)
        if copy.observed_stream_time_ms == model.observed_ms:
            assert list(copy.fetch_keys(None, None)) == model.read(None, None, 0, 1 << 40)


SESSION_SPEC = StoreSpec("s", kinds.SESSION, STRING, LONG, retention_ms=RETENTION_MS, has_changelog=False)


@pytest.mark.case
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("serde", [LONG, JSON], ids=["immutable", "mutable"])
@settings(max_examples=80, deadline=None)
@given(session_ops)
def test_session_store_goes_by_segment_then_key_then_end(serde: Serde[Any], engine: str, ops: list[Any]) -> None:
    run_sessions(evolve(SESSION_SPEC, value_serde=serde), engine, ops)


@pytest.mark.world
@settings(max_examples=80, deadline=None)
@example([("put", "a", (7000, 7000), 0), ("put", "a\x00", (7000, 7000), 0)])
@example([("put", "a", (0, 7000), 0), ("put", "a", (7000, 7000), 0), ("find", "a", (0, 7000))])
@given(session_ops)
def test_session_store_declared_in_memory_goes_by_end_then_key_then_latest_start(ops: list[Any]) -> None:
    run_sessions(evolve(SESSION_SPEC, is_persistent=False), "rocksdb", ops)


# Versions.

HISTORY_MS = 9_000
times = st.integers(0, 60).map(lambda step: step * 500)
versioned_ops = st.lists(
    st.one_of(
        upkeep,
        st.tuples(st.just("put"), keys, values, times),
        st.tuples(st.just("put"), st.just("a"), values, times),
        st.tuples(st.just("delete"), keys, times),
        st.tuples(st.just("get"), keys),
        st.tuples(st.just("get_as_of"), st.just("a"), times),
        st.tuples(st.just("get_as_of"), keys, times),
    ),
    max_size=50,
)


@define
class VersionedModel:
    """All versions ever accepted, tombstones included."""

    versions: dict[str, dict[int, Any]] = field(factory=dict)
    observed_ms: int = -1

    def put(self, key: str, value: Any, time: int) -> int:
        if time < self.observed_ms - HISTORY_MS:
            return NOT_PUT
        self.observed_ms = max(self.observed_ms, time)
        of_key = self.versions.setdefault(key, {})
        of_key[time] = value
        return min((other for other in of_key if other > time), default=VALID_TO_UNDEFINED)

    def get_as_of(self, key: str, time: int) -> Any:
        of_key = self.versions.get(key, {})
        valid_from = max((other for other in of_key if other <= time), default=None)
        if valid_from is None or of_key[valid_from] is None:
            return None
        valid_to = min((other for other in of_key if other > valid_from), default=None)
        if valid_to is not None and time < self.observed_ms - HISTORY_MS:
            return None
        return of_key[valid_from], valid_from, valid_to


def check_versioned_op(store: Any, model: VersionedModel, op: tuple[Any, ...]) -> None:
    name, key, *rest = op
    if name == "get":
        assert store.get(key) == model.get_as_of(key, 1 << 40)
    elif name == "get_as_of":
        assert store.get_as_of(key, *rest) == model.get_as_of(key, *rest)
    else:
        value, time = (None, rest[0]) if name == "delete" else rest
        of_key = model.versions.get(key, {})
        if value is None and of_key and max(of_key) == time:
            return  # The reference forgets when such a tombstone began.
        if name == "delete":
            existing = model.get_as_of(key, time)
            put = model.put(key, value, time)
            assert store.delete(key, time) == (None if put == NOT_PUT else existing)
        else:
            assert store.put(key, value, time) == model.put(key, value, time)


@pytest.mark.case
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=150, deadline=None)
@given(versioned_ops)
def test_versioned_store_knows_what_was_valid_when(engine: str, ops: list[Any]) -> None:
    spec = StoreSpec("s", kinds.VERSIONED, STRING, LONG, history_ms=HISTORY_MS)
    model = VersionedModel()
    for harness in harnesses(spec, engine):
        for op in ops:
            if op[0] in ("drain", "commit", "reopen", "restore"):
                harness.upkeep(op[0])
            else:
                check_versioned_op(harness.store, model, op)
        copy = rebuilt(harness)
        for key in KEYS:
            assert copy.get(key) == harness.store.get(key)
            for time in range(max(0, model.observed_ms - HISTORY_MS), 31_000, 500):
                assert harness.store.get_as_of(key, time) == model.get_as_of(key, time)
                if copy.observed_stream_time_ms == model.observed_ms:
                    assert copy.get_as_of(key, time) == model.get_as_of(key, time)
