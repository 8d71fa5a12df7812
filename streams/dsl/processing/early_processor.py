"""Early results of windows: the current result at intervals, and the final one when the window closes.

The operator is downstream of a windowed aggregation that forwards each update.  For each open window it keeps the
latest result, the result that was forwarded last, and the number of updates since then.  It forwards a result after a
number of updates of the window, or, for all windows that have changed, when stream time reaches a multiple of an
interval, like Flink's ``ContinuousEventTimeTrigger``.  The old value of a change is the result that was forwarded
last, so that an aggregation downstream replaces early results.  Results that are due at the same stream time are
forwarded in the order of closing times and key bytes.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar, TypeAlias

from attrs import define, field, frozen

from streams.core.blocks.marks import Format
from streams.core.blocks.records import Headers, Window
from streams.core.event_time.result_timing import ResultTiming
from streams.core.serdes.serdes import Serde
from streams.dsl.processing.buffered import HEADERS, ORIGIN, PLACE, TIME, VALUES, Buffered
from streams.dsl.processing.emission import release
from streams.topology import NodeContext, Process, StoreNaming

EARLY_RESULT = Format("early result", "E", 1)

#: Position of the number of updates since a result was forwarded, which replaces the time that orders a buffer.
_SINCE = PLACE
#: Positions of the results: the one that was forwarded last, and the latest one.
_PRIOR = VALUES
_LATEST = VALUES + 1

#: Forwards a row's latest result, with its timing.
_Emit: TypeAlias = Callable[[bytes, Buffered, ResultTiming], None]


@frozen
class EarlyEvery:
    """The interval of early results: ``ms`` of stream time, or a number of ``records`` of a window."""

    ms: int | None = None
    records: int | None = None


@frozen
class EarlyResults:
    """Forwards results of open windows at intervals, and the final result when a window closes.

    ``closes_ms`` returns the stream time at which a window closes.  It is None for count windows, which close with
    their last record; ``numbers`` is then the store of record counts by key.
    """

    store_naming: ClassVar = StoreNaming("name", ("-early-store",))

    store: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    every: EarlyEvery
    closes_ms: Callable[[Window], int] | None
    #: The maximum time in milliseconds by which the timestamp of a final result may lag stream time.
    final_behind_ms: int
    numbers: str | None = None
    #: Whether a record may merge windows of its key; the number of updates is then carried over to the merged window.
    has_merges: bool = False

    @property
    def keeps_back_ms(self) -> int:
        """The maximum time in milliseconds by which the timestamp of a result may lag stream time."""
        return max(self.final_behind_ms, self.every.ms or 0)

    @property
    def periods(self) -> dict[str, int]:
        """The declared interval of stream time, in milliseconds."""
        return {} if self.every.ms is None else {"early_every": self.every.ms}

    @property
    def options(self) -> dict[str, int | str]:
        """The declared number of records after which a result is emitted early."""
        return {} if self.every.records is None else {"early_every": self.every.records}

    def bind(self, context: NodeContext) -> Process:
        time = context.clock.stream_time()
        ticked = context.clock.stream_time("ticked")
        windows = _Windows(context.stores[self.store], self.key_serde.deserialize, self.closes_ms)
        read = windows.store.get
        put = windows.put
        remove = windows.remove
        to_bytes = self.key_serde.serialize
        origin_of = context.output.current.metadata
        forward = context.output.forward
        emit = self._emit(context)
        every_ms = self.every.ms
        every_records = self.every.records
        has_merges = self.has_merges
        number_of = None if self.numbers is None else context.stores[self.numbers].get
        carried: _Carried = (None, None, 0)

        def pass_time(stream_time_ms: int) -> bool:
            """Forward the results that are due, and return whether there were any."""
            time.ms = stream_time_ms
            has_emitted = False
            while windows.places and windows.places[0][0] <= stream_time_ms:
                has_emitted |= windows.close(emit)
            if every_ms is not None and stream_time_ms // every_ms > ticked.ms // every_ms:
                ticked.ms = stream_time_ms
                has_emitted |= windows.emit_changed(emit)
            return has_emitted

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            nonlocal carried
            if timestamp_ms > time.ms:
                pass_time(timestamp_ms)
            latest = change[0]
            key_bytes = to_bytes(key)
            assert key_bytes is not None
            held = read(key_bytes)
            origin = origin_of()
            if latest is None:
                if held is not None:
                    if has_merges:
                        # This window was merged; the next change of this key from the same record is the merged window.
                        count = held[_SINCE] + (carried[2] if carried[:2] == (origin, key[0]) else 0)
                        carried = (origin, key[0], count)
                    remove(key_bytes)
                    if held[_PRIOR] is not None:
                        forward(key, (None, held[_PRIOR], True), timestamp_ms, headers)
                return
            since, prior = (0, None) if held is None else (held[_SINCE], held[_PRIOR])
            if carried[2]:
                since += carried[2] if carried[:2] == (origin, key[0]) else 0
                carried = (None, None, 0)
            row = (origin, since + 1, timestamp_ms, headers, prior, latest)
            if number_of is not None and number_of(key[0]) == key[1][1]:
                emit(key_bytes, row, ResultTiming.FINAL)
                remove(key_bytes)
                return
            if every_records is not None and since + 1 >= every_records:
                emit(key_bytes, row, ResultTiming.EARLY)
                row = (origin, 0, timestamp_ms, headers, latest, latest)
            put(key, key_bytes, row)

        context.clock.on_idle(lambda stream_time_ms: stream_time_ms > time.ms and pass_time(stream_time_ms))
        context.on_init(windows.load)
        # Open windows stay in the store: if the application continues, later results replace these.
        context.output.on_final_flush(lambda: windows.emit_all(emit))
        return process

    def _emit(self, context: NodeContext) -> _Emit:
        """Return the function that forwards the latest result of a window."""
        send = release(context.output, context.output.forward)
        to_key = self.key_serde.deserialize

        def emit(key_bytes: bytes, row: Buffered, timing: ResultTiming) -> None:
            change = (row[_LATEST], row[_PRIOR], True)
            send(row[ORIGIN], to_key(key_bytes), change, row[TIME], timing.marked(row[HEADERS]))

        return emit


#: Of windows that were merged into another window: the record that merged them, their key and number of updates.
_Carried: TypeAlias = tuple[Any, Any, int]


@define(eq=False)
class _Windows:
    """The open windows of one task: their rows are in a store, their closing times in a heap."""

    store: Any
    to_key: Callable[[bytes], Any]
    closes_ms: Callable[[Window], int] | None
    #: (closing time, key bytes) of open windows, as a heap; the entry of a removed window stays until its closing time.
    places: list[tuple[int, bytes]] = field(factory=list)
    #: Closing times of the windows that have changed since a result was forwarded, by key bytes.
    changed: dict[bytes, int] = field(factory=dict)

    def load(self) -> None:
        """Load the open windows from the store."""
        self.places.clear()
        self.changed.clear()
        for key_bytes, row in self.store.all():
            place = self._place(self.to_key(key_bytes), key_bytes)
            if row[_SINCE]:
                self.changed[key_bytes] = place[0]
            if self.closes_ms is not None:
                self.places.append(place)
        heapify(self.places)

    def put(self, key: Any, key_bytes: bytes, row: Buffered) -> None:
        if row[_SINCE] > 1 and key_bytes in self.changed:
            self.store.put(key_bytes, row)
            return
        place = self._place(key, key_bytes)
        if self.closes_ms is not None and self.store.get(key_bytes) is None:
            heappush(self.places, place)
        self.store.put(key_bytes, row)
        if row[_SINCE]:
            self.changed[key_bytes] = place[0]
        else:
            self.changed.pop(key_bytes, None)

    def remove(self, key_bytes: bytes) -> None:
        self.store.put(key_bytes, None)
        self.changed.pop(key_bytes, None)

    def close(self, emit: _Emit) -> bool:
        """Forward the final result of the first window to close, unless it was removed before, and remove it."""
        key_bytes = self.places[0][1]
        row = self.store.get(key_bytes)
        if row is not None:
            emit(key_bytes, row, ResultTiming.FINAL)
            self.remove(key_bytes)
        heappop(self.places)
        return row is not None

    def emit_changed(self, emit: _Emit) -> bool:
        """Forward early results of the windows that have changed, and return whether there were any."""
        due = sorted((closes_ms, key_bytes) for key_bytes, closes_ms in self.changed.items())
        for _, key_bytes in due:
            self._emit(emit, key_bytes, ResultTiming.EARLY)
        return bool(due)

    def emit_all(self, emit: _Emit) -> None:
        """Forward the results of all open windows as final ones, without closing the windows."""
        for _, key_bytes in sorted(
            [self._place(self.to_key(key_bytes), key_bytes) for key_bytes, _ in self.store.all()]
        ):
            self._emit(emit, key_bytes, ResultTiming.FINAL)

    def _place(self, key: Any, key_bytes: bytes) -> tuple[int, bytes]:
        """Return (closing time, key bytes), by which results are ordered; the closing time of count windows is 0."""
        return 0 if self.closes_ms is None else self.closes_ms(key.window), key_bytes

    def _emit(self, emit: _Emit, key_bytes: bytes, timing: ResultTiming) -> None:
        row = self.store.get(key_bytes)
        emit(key_bytes, row, timing)
        self.store.put(key_bytes, (row[ORIGIN], 0, row[TIME], row[HEADERS], row[_LATEST], row[_LATEST]))
        self.changed.pop(key_bytes, None)
