"""Aggregates over user-defined windows, which a ``Windower`` assigns, merges and closes.

The windows of each key are in a session store.  A record is added to each window that the windower assigns; windows
that were merged into another one are deleted.  A record is late for a window if stream time has reached the closing
time of the window.  The timestamp of an update is that of its record.  The timestamp of the result of a closed window
is the end of the window, or its closing time if that is earlier, so that it is not ahead of stream time.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

from attrs import define, field, frozen

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.loops import session_windowed
from streams.core.blocks.records import Headers, Window
from streams.core.errors import StreamsError
from streams.core.event_time.windower import Windower
from streams.core.metrics import DropReason
from streams.dsl.processing.drops import dropper
from streams.dsl.processing.emission import emit_nothing, table_emit
from streams.dsl.processing.finals import measured
from streams.dsl.processing.folds import Fold
from streams.topology import NodeContext, Process, StreamTime

#: A stored window with its aggregate.
_Part: TypeAlias = tuple[Window, Any]


@frozen
class WindowerAggregate:
    """The operator that folds the values of each window of a windower; ``fold`` must have a merger."""

    store: str
    windower: Windower[Any, Any]
    #: The retention of the store, in milliseconds.
    retention_ms: int
    fold: Fold
    send_old: bool = False
    emit_on_close: bool = False

    @property
    def keeps_back_ms(self) -> int:
        """The maximum time in milliseconds by which the timestamp of a result may lag stream time."""
        return self.retention_ms if self.emit_on_close else 0

    @property
    def ignores_values(self) -> bool:
        """Whether the aggregate is independent of the values of records: False, since a windower may read them."""
        return False

    def bind(self, context: NodeContext) -> Process:
        find = context.stores[self.store].sessions_of
        time = context.clock.stream_time()
        close = self._closing(context.node)
        drop = dropper(context)
        windows_of = self._windows_of(context.node)
        closer = _Closer(context, self, time, close) if self.emit_on_close else None
        update = self._updater(context, time, closer)

        def advance(stream_time_ms: int) -> bool:
            time.ms = max(time.ms, stream_time_ms)
            return closer is not None and closer.emit_closed(None)

        context.clock.on_idle(advance)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None:
                drop(DropReason.NULL_KEY, key, value, timestamp_ms, headers)
                return
            if timestamp_ms > time.ms:
                time.ms = timestamp_ms
                if closer is not None:
                    closer.emit_closed(headers)
            stored = [(Window(first_ms, last_ms), part) for first_ms, last_ms, part in find(key, 0, MAX_TIME_MS)]
            open_parts = sorted((part for part in stored if close(part[0]) > time.ms), key=_window_of)
            targets, assigned = windows_of(key, value, timestamp_ms, open_parts)
            if not assigned:
                drop(DropReason.NO_WINDOW, key, value, timestamp_ms, headers)
            for window, parts in targets.items():
                if window in assigned or len(parts) > 1:
                    update(key, value, timestamp_ms, headers, window, parts, window in assigned)

        return process

    def _updater(
        self, context: NodeContext, time: StreamTime, closer: "_Closer | None"
    ) -> Callable[[Any, Any, int, Headers | None, Window, list[_Part], bool], None]:
        """Return the function that merges stored windows into one, and adds the record if the window is assigned to it.

        The function takes (key, value, timestamp_ms, headers, window, stored windows to merge into it, adds_record).
        """
        store = context.stores[self.store]
        drop = dropper(context)
        close = self._closing(context.node)
        put = store.put_at
        remove = store.remove_at
        bounds = store.bounds
        initializer, aggregator, merger = self.fold.initializer, self.fold.aggregator, self.fold.merger
        assert merger is not None, "the fold of a windower merges"
        on_close = self.emit_on_close
        emit, is_cached = (emit_nothing, False) if on_close else table_emit(context, self.store, self.send_old)
        send_old = self.send_old or is_cached

        def replace(key: Any, window: Window, parts: list[_Part], timestamp_ms: int, headers: Headers | None) -> Any:
            """Delete the merged windows except ``window`` itself; return the old aggregate of ``window``, or None."""
            old = None
            for before, part in parts:
                if before == window:
                    old = part
                    continue
                remove(key, *before)
                if closer is not None:
                    closer.remove(key, before)
                gone = session_windowed(key, *before)
                emit(gone, None, part if send_old else None, timestamp_ms, headers, True)
            return old

        def update(
            key: Any,
            value: Any,
            timestamp_ms: int,
            headers: Headers | None,
            window: Window,
            parts: list[_Part],
            is_added: bool,
        ) -> None:
            closes_ms = close(window)
            if closes_ms <= time.ms or window[1] < bounds.visible_from_ms:
                reason = DropReason.LATE if closes_ms <= time.ms else DropReason.EXPIRED
                if is_added:
                    drop(reason, key, value, timestamp_ms, headers, window, closes_ms, time.ms)
                return
            new = parts[0][1] if parts else initializer()
            for _, part in parts[1:]:
                new = merger(key, new, part)
            old = replace(key, window, parts, timestamp_ms, headers)
            if is_added:
                new = aggregator(key, value, new)
            put(key, *window, new)
            if closer is not None:
                closer.put(key, window, closes_ms)
            emit(session_windowed(key, *window), new, old if send_old else None, timestamp_ms, headers, True)

        return update

    def _closing(self, node: str) -> Callable[[Window], int]:
        """Return ``Windower.close`` as a function that checks its result."""
        close = self.windower.close

        def closes_ms(window: Window) -> int:
            close_ms = close(window)
            if type(close_ms) is not int:
                raise StreamsError(
                    f"node {node!r}: {self._named}.close returned {close_ms!r:.60} for {window!r}; it must return the "
                    "stream time from which the window is final, as a whole number of ms"
                )
            return close_ms

        return closes_ms

    @property
    def _named(self) -> str:
        return type(self.windower).__qualname__

    def _windows_of(
        self, node: str
    ) -> Callable[[Any, Any, int, list[_Part]], tuple[dict[Window, list[_Part]], set[Window]]]:
        """Return the function that assigns and merges windows.

        The function takes (key, value, timestamp_ms, stored open windows).  It returns the windows after merging,
        each with the stored windows merged into it, and the set of windows to which the record is added.
        """
        assign, merge = self.windower.assign, self.windower.merge

        def checked(windows: Any, method: str) -> Sequence[Window]:
            if not isinstance(windows, Iterable) or isinstance(windows, Window):
                raise StreamsError(
                    f"node {node!r}: {self._named}.{method} returned {windows!r:.60}; it must return a list of windows"
                )
            assigned = list(windows)
            for window in assigned:
                is_window = isinstance(window, tuple) and len(window) == 2 and type(window[0]) is type(window[1]) is int
                if not is_window or not 0 <= window[0] <= window[1]:
                    raise StreamsError(
                        f"node {node!r}: {self._named}.{method} returned {window!r}; it must return windows "
                        "Window(start_ms, end_ms) with 0 <= start_ms <= end_ms"
                    )
            return sorted({Window(*window) for window in assigned})

        def windows_of(
            key: Any, value: Any, timestamp_ms: int, parts: list[_Part]
        ) -> tuple[dict[Window, list[_Part]], set[Window]]:
            open_windows = [window for window, _ in parts]
            own = checked(assign(key, value, timestamp_ms, open_windows), "assign")
            remaining = checked(merge(sorted({*open_windows, *own})), "merge") if own else open_windows
            targets: dict[Window, list[_Part]] = {window: [] for window in remaining}

            def target(window: Window) -> Window:
                if window in targets:
                    return window
                containing = [session for session in remaining if session[0] <= window[0] and window[1] <= session[1]]
                if len(containing) != 1:
                    raise StreamsError(
                        f"node {node!r}: {self._named}.merge returned {len(containing)} windows that contain "
                        f"{window!r}, which it left out; it must return the window itself or one that contains it"
                    )
                return containing[0]

            for part in parts:
                targets[target(part[0])].append(part)
            return targets, {target(window) for window in own}

        return windows_of


def _window_of(part: _Part) -> Window:
    return part[0]


@define(eq=False)
class _Closer:
    """Emits windows when they close: in the order of closing times, windows and key bytes."""

    context: NodeContext
    operator: WindowerAggregate
    time: StreamTime
    close: Callable[[Window], int]
    #: Windows that close at this time or earlier have been emitted; restored after a restart.
    emitted: StreamTime = field(init=False)
    #: (closing time, window, key bytes) of open windows as a heap; entries of removed windows stay until they close.
    _places: list[tuple[int, Window, bytes]] = field(factory=list)
    #: Closing times and keys of the open windows, by window and key bytes.
    _open: dict[tuple[Window, bytes], Any] = field(factory=dict)
    _emit_until: Callable[[int, Headers | None], bool] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.emitted = self.context.clock.emitted_time(self.operator.store)
        self._emit_until = measured(self.context.metrics, self._emit_places)
        self.context.on_init(self.load)
        self.context.output.on_final_flush(self.emit_open)

    def load(self) -> None:
        """Load the open windows from the store."""
        self._places.clear()
        self._open.clear()
        for (key, window), _ in self.context.stores[self.operator.store].fetch_keys(None, None):
            closes_ms = self.close(window)
            if closes_ms > self.emitted.ms:
                self.put(key, window, closes_ms)
        heapify(self._places)

    def _bytes(self, key: Any) -> bytes:
        data: bytes = self.context.stores[self.operator.store].spec.key_serde.serialize(key)
        return data

    def put(self, key: Any, window: Window, closes_ms: int) -> None:
        """Add an open window, unless it was added before."""
        place = window, self._bytes(key)
        if place not in self._open:
            heappush(self._places, (closes_ms, *place))
            self._open[place] = key

    def remove(self, key: Any, window: Window) -> None:
        """Remove a window that was merged into another one."""
        self._open.pop((window, self._bytes(key)), None)

    def emit_closed(self, headers: Headers | None) -> bool:
        """Emit the windows that have closed, and return whether there were any."""
        has_emitted = self._emit_until(self.time.ms, headers)
        self.emitted.ms = max(self.emitted.ms, self.time.ms)
        return has_emitted

    def _emit_places(self, last_ms: int, headers: Headers | None) -> int:
        count = len(self._open)
        while self._places and self._places[0][0] <= last_ms:
            closes_ms, window, key_bytes = self._places[0]
            self._emit(closes_ms, window, key_bytes, headers)
            heappop(self._places)
            self._open.pop((window, key_bytes), None)
        return count - len(self._open)

    def emit_open(self) -> None:
        """Emit all open windows.  If the application continues, they are emitted again when they close."""
        for place in sorted(set(self._places)):
            self._emit(*place, None)

    def _emit(self, closes_ms: int, window: Window, key_bytes: bytes, headers: Headers | None) -> None:
        key = self._open.get((window, key_bytes))
        if key is None:
            return
        store = self.context.stores[self.operator.store]
        value = store.fetch_session(key, *window)
        if value is not None:
            forward = self.context.output.forward
            forward(session_windowed(key, *window), (value, None, True), min(window[1], closes_ms), headers)
        elif window[1] < store.bounds.visible_from_ms:
            raise StreamsError(
                f"node {self.context.node!r}: {window!r} of key {key!r} was forgotten before it closed at {closes_ms}; "
                f"give a retention longer than {self.operator.retention_ms} ms in "
                f"{type(self.operator.windower).__qualname__}"
            )
