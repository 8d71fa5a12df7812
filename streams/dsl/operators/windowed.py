"""Aggregates over windows that are fixed beforehand: tumbling, hopping, unlimited.

A record updates each of its windows that is still open: whose end lies after stream time less
the grace period.  Results go out with every update, or once when the window closes.  Values of
None are aggregated like any other; a result of None deletes the window (KIP-328, KIP-825).
"""

from collections.abc import Callable
from typing import Any

from attrs import frozen

from streams.core.records import Headers
from streams.core.windows import FixedWindows, TimeWindows
from streams.dsl.operators.emission import table_emit
from streams.dsl.operators.windows import (
    EXPIRED,
    MAX_TIME,
    NULL_KEY,
    WindowMemo,
    counting,
    nothing,
    reducing,
    windowed,
    zero,
)
from streams.topology.operator import NodeContext, Process, StreamTime


@frozen
class WindowAggregate:
    """Values of a key and window folded by ``aggregator(key, value, aggregate)`` from ``initializer()`` on."""

    store: str
    windows: FixedWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        windows = self.windows
        if self.emit_on_close:
            return _emitting_on_close(context, self)
        if isinstance(windows, TimeWindows) and windows.advance_ms == windows.size_ms:
            return _tumbling(context, self, windows)
        return _overlapping(context, self)


@frozen
class WindowCount:
    """Number of records per key and window."""

    store: str
    windows: FixedWindows
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        windows = self.windows
        is_tumbling = isinstance(windows, TimeWindows) and windows.advance_ms == windows.size_ms
        if is_tumbling and not self.emit_on_close and not self.send_old:
            return _tumbling_count(context, self.store, windows)
        full = WindowAggregate(self.store, windows, zero, counting, self.send_old, self.emit_on_close)
        return full.bind(context)


@frozen
class WindowReduce:
    """Values of a key and window combined by ``reducer(old, new)``."""

    store: str
    windows: FixedWindows
    reducer: Callable[[Any, Any], Any]
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        aggregator = reducing(self.reducer)
        full = WindowAggregate(self.store, self.windows, nothing, aggregator, self.send_old, self.emit_on_close)
        return full.bind(context)


def _tumbling_count(context: NodeContext, store_name: str, windows: FixedWindows) -> Process:
    """The most frequent of all windowed operators, spelled out."""
    store = context.store(store_name)
    fetch, put = store.fetch_pair, store.put_pair
    emit, is_cached = table_emit(context, store_name, send_old=False)
    drop, time = context.drop, context.stream_time()
    size_ms, grace_ms = windows.size_ms, windows.grace_ms
    memo = WindowMemo(size_ms)

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        if key is None:
            drop(NULL_KEY)
            return
        start_ms = timestamp_ms - timestamp_ms % size_ms
        if timestamp_ms >= time.ms:
            time.ms = timestamp_ms
        elif start_ms + size_ms <= time.ms - grace_ms:
            drop(EXPIRED)
            return
        pair = fetch(key, start_ms)
        if pair is None:
            count = 1
        else:
            count = pair[0] + 1
            if pair[1] > timestamp_ms:
                timestamp_ms = pair[1]
        put(key, count, timestamp_ms, start_ms)
        old = count - 1 or None if is_cached else None
        emit(windowed(key, memo[start_ms]), count, old, timestamp_ms, headers, True)

    return process


def _tumbling(context: NodeContext, operator: WindowAggregate, windows: TimeWindows) -> Process:
    store = context.store(operator.store)
    fetch, put = store.fetch_pair, store.put_pair
    emit, is_cached = table_emit(context, operator.store, operator.send_old)
    drop, time = context.drop, context.stream_time()
    size_ms, grace_ms = windows.size_ms, windows.grace_ms
    memo = WindowMemo(size_ms)
    initializer, aggregator = operator.initializer, operator.aggregator
    send_old = operator.send_old or is_cached

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        if key is None:
            drop(NULL_KEY)
            return
        start_ms = timestamp_ms - timestamp_ms % size_ms
        if timestamp_ms >= time.ms:
            time.ms = timestamp_ms
        elif start_ms + size_ms <= time.ms - grace_ms:
            drop(EXPIRED)
            return
        pair = fetch(key, start_ms)
        if pair is None:
            old = initializer()
            new = aggregator(key, value, old)
            if is_cached:
                old = None
        else:
            old = pair[0]
            new = aggregator(key, value, old)
            if pair[1] > timestamp_ms and not (new is None and is_cached):
                timestamp_ms = pair[1]
        put(key, new, timestamp_ms, start_ms)
        emit(windowed(key, memo[start_ms]), new, old if send_old else None, timestamp_ms, headers, True)

    return process


def _overlapping(context: NodeContext, operator: WindowAggregate) -> Process:
    windows = operator.windows
    store = context.store(operator.store)
    fetch, put = store.fetch_pair, store.put_pair
    emit, is_cached = table_emit(context, operator.store, operator.send_old)
    drop, time = context.drop, context.stream_time()
    size_ms, grace_ms, starts_of = windows.size_ms, windows.grace_ms, _starts(windows)
    memo = WindowMemo(size_ms)
    initializer, aggregator = operator.initializer, operator.aggregator
    send_old = operator.send_old or is_cached

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        if key is None:
            drop(NULL_KEY)
            return
        if timestamp_ms > time.ms:
            time.ms = timestamp_ms
        last_closed_ms = time.ms - grace_ms - size_ms
        for start_ms in starts_of(timestamp_ms):
            if start_ms <= last_closed_ms:
                drop(EXPIRED)
                continue
            pair = fetch(key, start_ms)
            changed_ms = timestamp_ms
            if pair is None:
                old = initializer()
                new = aggregator(key, value, old)
                if is_cached:
                    old = None
            else:
                old = pair[0]
                new = aggregator(key, value, old)
                if pair[1] > timestamp_ms and not (new is None and is_cached):
                    changed_ms = pair[1]
            put(key, new, changed_ms, start_ms)
            emit(windowed(key, memo[start_ms]), new, old if send_old else None, changed_ms, headers, True)

    return process


def _starts(windows: FixedWindows) -> Callable[[int], Any]:
    """Return the function from a time to the starts of its windows, ascending."""
    if not isinstance(windows, TimeWindows):
        return windows.windows_for
    advance_ms = windows.advance_ms
    reach_ms = advance_ms - windows.size_ms

    def starts(timestamp_ms: int) -> range:
        first_ms = timestamp_ms + reach_ms
        first_ms = first_ms - first_ms % advance_ms if first_ms > 0 else 0
        return range(first_ms, timestamp_ms + 1, advance_ms)

    return starts


def _emitting_on_close(context: NodeContext, operator: WindowAggregate) -> Process:
    """Update silently and emit each window once, when stream time passes its end and the grace period."""
    windows = operator.windows
    store = context.store(operator.store)
    fetch, put = store.fetch_pair, store.put_pair
    drop, time = context.drop, context.stream_time()
    size_ms, grace_ms, starts_of = windows.size_ms, windows.grace_ms, _starts(windows)
    initializer, aggregator = operator.initializer, operator.aggregator
    emit_closed, emitted = _closer(context, store, windows)
    retention_ms = store.spec.retention_ms

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        if key is None:
            drop(NULL_KEY)
            return
        if timestamp_ms > time.ms:
            time.ms = timestamp_ms
        last_closed_ms = time.ms - grace_ms - size_ms
        if timestamp_ms - retention_ms >= emitted.ms and last_closed_ms >= 0:
            # So far ahead that the store would forget windows that are still to be emitted.
            emit_closed(last_closed_ms, headers)
        for start_ms in starts_of(timestamp_ms):
            if start_ms <= last_closed_ms:
                drop(EXPIRED)
                continue
            pair = fetch(key, start_ms)
            changed_ms = timestamp_ms
            if pair is None:
                new = aggregator(key, value, initializer())
            else:
                new = aggregator(key, value, pair[0])
                if pair[1] > timestamp_ms:
                    changed_ms = pair[1]
            put(key, new, changed_ms, start_ms)
        if last_closed_ms >= 0:
            emit_closed(last_closed_ms, headers)

    return process


def _closer(
    context: NodeContext, store: Any, windows: FixedWindows
) -> tuple[Callable[[int, Headers | None], None], StreamTime]:
    """Return a function that emits the windows that closed since it was last called, and how far it is."""
    forward = context.forward
    # Start of the last window that may have been emitted; outlives a restart.
    emitted = context.stream_time("emitted")
    advance_ms = windows.advance_ms if isinstance(windows, TimeWindows) else windows.size_ms
    memo = WindowMemo(windows.size_ms)

    def emit_closed(last_closed_ms: int, headers: Headers | None) -> None:
        if last_closed_ms // advance_ms <= emitted.ms // advance_ms:
            return
        for start_ms, key, pair in store.windows_between(emitted.ms + 1, last_closed_ms):
            forward(windowed(key, memo[start_ms]), (pair[0], None, True), pair[1], headers)
        emitted.ms = last_closed_ms

    def flush() -> None:
        # What is open still goes out again when it closes, should the program go on.
        for start_ms, key, pair in store.windows_between(emitted.ms + 1, MAX_TIME):
            forward(windowed(key, memo[start_ms]), (pair[0], None, True), pair[1], None)

    context.on_final_flush(flush)
    return emit_closed, emitted
