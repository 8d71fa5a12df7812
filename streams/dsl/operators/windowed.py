"""Aggregates over windows that are fixed beforehand: tumbling, hopping, unlimited.

A record updates each of its windows that is still open: whose end lies after stream time less
the grace period.  Results go out with every update, or once when the window closes.  Values of
None are aggregated like any other; a result of None deletes the window (KIP-328, KIP-825).
"""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from streams.core.loops import windowed
from streams.core.records import Headers
from streams.core.windows import FixedWindows, TimeWindows
from streams.dsl.operators.windows import (
    EXPIRED,
    MAX_TIME,
    NULL_KEY,
    WindowMemo,
    counting,
    nothing,
    reducing,
    zero,
)
from streams.topology.operator import NodeContext, Process, StreamTime
from streams.topology.template import Template, filled


@frozen
class WindowAggregate:
    """Values of a key and window folded by ``aggregator(key, value, aggregate)`` from ``initializer()`` on."""

    store: str
    windows: FixedWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    send_old: bool = False
    emit_on_close: bool = False

    def template(self, caches: Callable[[str], bool]) -> Template | None:
        """Return the operator as text, None if it emits on close."""
        return None if self.emit_on_close else _template(self, _Fold("$aggregate({k}, {v}, $old)"), caches)

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        template = self.template(context.caches)
        return _emitting_on_close(context, self) if template is None else template.bind_alone(context)


@frozen
class WindowCount:
    """Number of records per key and window."""

    store: str
    windows: FixedWindows
    send_old: bool = False
    emit_on_close: bool = False

    def template(self, caches: Callable[[str], bool]) -> Template | None:
        """Return the operator as text, None if it emits on close."""
        return None if self.emit_on_close else _template(self._whole, _Fold("$old + 1", ignores_value=True), caches)

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        template = self.template(context.caches)
        return self._whole.bind(context) if template is None else template.bind_alone(context)

    @property
    def _whole(self) -> WindowAggregate:
        return WindowAggregate(self.store, self.windows, zero, counting, self.send_old, self.emit_on_close)


@frozen
class WindowReduce:
    """Values of a key and window combined by ``reducer(old, new)``."""

    store: str
    windows: FixedWindows
    reducer: Callable[[Any, Any], Any]
    send_old: bool = False
    emit_on_close: bool = False

    def template(self, caches: Callable[[str], bool]) -> Template | None:
        """Return the operator as text, None if it emits on close."""
        fold = _Fold("$reduce($old, {v})", {"reduce": self.reducer})
        return None if self.emit_on_close else _template(self._whole, fold, caches)

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        template = self.template(context.caches)
        return self._whole.bind(context) if template is None else template.bind_alone(context)

    @property
    def _whole(self) -> WindowAggregate:
        aggregator = reducing(self.reducer)
        return WindowAggregate(self.store, self.windows, nothing, aggregator, self.send_old, self.emit_on_close)


@frozen
class _Fold:
    """How the aggregate of an open window takes a record, as text, and the names in it."""

    text: str
    names: Mapping[str, Any] = field(factory=dict)
    ignores_value: bool = False


#: The windows of a record: the one of a tumbling window; of others all that are still open.
_TUMBLING = """
if {k} is None:
    $drop($null_key)
else:
    $start = {t} - {t} % SIZE
    if {t} < $time.ms and $start + SIZE <= $time.ms - GRACE:
        $drop($expired)
    else:
        if {t} > $time.ms: $time.ms = {t}
        UPDATE
"""
_OTHERS = """
if {k} is None:
    $drop($null_key)
else:
    if {t} > $time.ms: $time.ms = {t}
    for $start in $starts({t}):
        if $start + SIZE <= $time.ms - GRACE:
            $drop($expired)
            continue
        UPDATE
"""
#: What a window does with a record.  The usual case, an aggregate that has changed since the last commit and is held
#: as it is, is a matter of one dict; ``first`` does all else.
_UPDATE = """
$slot = ({k}, $start)
$dirty = $hot.dirty
if (
    $start >= $bounds.visible_from_ms
    and type({k}) is $hot.in_place_type
    and ($pair := $dirty.get($slot)) is not None
    and ($old := $pair[0]) is not None
):
    $new = FOLD
    $changed = $pair[1]
    if type($new) is $hot.value_type:
        if $changed < {t}: $changed = {t}
        del $dirty[$slot]
        $dirty[$slot] = ($new, $changed)
        QUICKLY
    else:
        $changed = $settle({k}, $new, $changed, {t}, $start)
        SLOWLY
else:
    $new, $old, $changed = $first({k}, {v}, {t}, $start)
    SLOWLY
BEHIND
"""
_SEND = """
$key = $windowed({k}, $memo[$start])
=> $key, $new, OLD, $changed, {h}
"""
#: A count is held back already: it gets another value, in the same place of the same size.
_HOLD = """
$held = $section.entries.pop($slot, None)
if $held is not None and type($new) is int and type($held[1]) is int:
    $section.entries[$slot] = ($held[0], $new, $changed, {h}, $section.origin(), True, $held[6])
else:
    if $held is not None: $section.entries[$slot] = $held
    $section.hold($slot, $new, $old, $changed, {h})
"""


def _template(operator: WindowAggregate, fold: _Fold, caches: Callable[[str], bool]) -> Template:
    """Return the text of an aggregate that emits each update, or holds it back in the record cache."""
    windows, is_cached = operator.windows, caches(operator.store)
    is_tumbling = isinstance(windows, TimeWindows) and windows.advance_ms == windows.size_ms
    words = {
        "UPDATE": _UPDATE,
        "FOLD": fold.text,
        "SIZE": str(windows.size_ms),
        "GRACE": str(windows.grace_ms),
    }
    if is_cached:
        words |= {"QUICKLY": _HOLD, "SLOWLY": "$section.hold($slot, $new, $old, $changed, {h})", "BEHIND": ""}
    else:
        words |= {"QUICKLY": "", "SLOWLY": "", "BEHIND": _SEND, "OLD": "$old" if operator.send_old else "None"}
    text = filled(_TUMBLING if is_tumbling else _OTHERS, words)

    def names(context: NodeContext) -> dict[str, Any]:
        store = context.store(operator.store)
        memo = WindowMemo(windows.size_ms)
        first, settle = _beyond_the_usual(operator, store, is_cached)
        own = {
            **fold.names,
            "aggregate": operator.aggregator,
            "bounds": store.bounds,
            "drop": context.drop,
            "expired": EXPIRED,
            "first": first,
            "hot": store.hot,
            "memo": memo,
            "null_key": NULL_KEY,
            "settle": settle,
            "starts": _starts(windows),
            "time": context.stream_time(),
            "windowed": windowed,
        }
        if is_cached:
            window_of = memo.__getitem__
            own["section"] = context.table_section(operator.store, send_old=operator.send_old, window_of=window_of)
        return own

    return Template(text, names, fold.ignores_value)


def _beyond_the_usual(operator: WindowAggregate, store: Any, is_cached: bool) -> tuple[Callable[..., Any], ...]:
    """Return what updates a window by the methods of its store, and what stores a result that is not held as it is."""
    fetch, put = store.fetch_pair, store.put_pair
    initializer, aggregator = operator.initializer, operator.aggregator

    def first(key: Any, value: Any, timestamp_ms: int, start_ms: int) -> tuple[Any, Any, int]:
        pair = fetch(key, start_ms)
        if pair is not None:
            old = pair[0]
            new = aggregator(key, value, old)
            return new, old, settle(key, new, pair[1], timestamp_ms, start_ms)
        old = initializer()
        new = aggregator(key, value, old)
        put(key, new, timestamp_ms, start_ms)
        return new, None if is_cached else old, timestamp_ms

    def settle(key: Any, new: Any, changed_ms: int, timestamp_ms: int, start_ms: int) -> int:
        if changed_ms < timestamp_ms or (new is None and is_cached):
            changed_ms = timestamp_ms
        put(key, new, changed_ms, start_ms)
        return changed_ms

    return first, settle


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
