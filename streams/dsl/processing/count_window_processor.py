"""Aggregates over count windows: tumbling and hopping windows by the number of records of a key.

The records of a key are numbered from 0, in the order in which the operator receives them.  A window contains the
records with numbers from its start up to its end (exclusive), and closes with the last of these, so no record is late.
One store contains the number of records by key.  The aggregate store contains the open windows of each key and the last
closed one; earlier closed windows are deleted from the store without a result downstream.
"""

from typing import Any, ClassVar

from attrs import frozen

from streams.core.blocks.loops import windowed
from streams.core.blocks.records import Headers
from streams.core.event_time.windows import CountWindows
from streams.core.metrics import Counter, DropReason, table
from streams.core.serdes.serdes import LONG, Serde
from streams.dsl.processing.drops import dropper
from streams.dsl.processing.emission import emit_nothing, table_emit
from streams.dsl.processing.folds import Fold
from streams.dsl.processing.joins.getters import open_rows
from streams.dsl.processing.window_objects import WindowMemo
from streams.state import KEY_VALUE, StoreSpec
from streams.topology import NodeContext, Process, StoreNaming


@frozen
class CountWindowAggregate:
    """Folds the values of each key and count window; ``numbers`` is the store of record counts by key."""

    store_naming: ClassVar = StoreNaming("store", ("", "-numbers"))
    #: A result is forwarded with the last record of its window, so it never lags stream time.
    keeps_back_ms: ClassVar = 0

    store: str
    numbers: str
    windows: CountWindows
    fold: Fold
    send_old: bool = False
    emit_on_close: bool = False

    @property
    def options(self) -> dict[str, int | str]:
        """The declared size and advance of a window, as numbers of records."""
        return {"size": self.windows.size, "advance": self.windows.advance}

    @property
    def ignores_values(self) -> bool:
        """Whether the aggregate is independent of the values of records, as for ``count``."""
        return self.fold.ignores_values

    def bind(self, context: NodeContext) -> Process:
        numbers = context.stores[self.numbers]
        number_of = numbers.get
        put_number = numbers.put
        starts_of = self.windows.windows_for
        get, put = open_rows(context.stores, self.store)
        size = self.windows.size
        advance = self.windows.advance
        on_close = self.emit_on_close
        initializer, aggregator = self.fold.initializer, self.fold.aggregator
        emit, is_cached = (emit_nothing, False) if on_close else table_emit(context, self.store, self.send_old)
        finals = context.metrics.counter(table.FINAL_EMITTED) if on_close else Counter()
        drop = dropper(context)
        forward = context.output.forward
        send_old = self.send_old or is_cached
        memo = WindowMemo(size.__add__)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None:
                drop(DropReason.NULL_KEY, key, value, timestamp_ms, headers)
                return
            number = number_of(key) or 0
            put_number(key, number + 1)
            for start in starts_of(number):
                window_key = windowed(key, memo[start])
                row = get(window_key)
                old = None if row is None else row[0]
                changed_ms = timestamp_ms if row is None or row[1] < timestamp_ms else row[1]
                new = aggregator(key, value, initializer() if row is None else old)
                put(window_key, new, changed_ms)
                if not on_close:
                    emit(window_key, new, old if send_old else None, changed_ms, headers, True)
                if number + 1 == start + size:
                    if on_close and new is not None:
                        finals.value += 1
                        forward(window_key, (new, None, True), changed_ms, headers)
                    if start >= advance:
                        put(windowed(key, memo[start - advance]), None, timestamp_ms)

        def flush() -> None:
            """Forward the results of the open windows, in the order of the store."""
            for window_key, row in list(context.stores[self.store].all()):
                if window_key.window.end_ms > (number_of(window_key.key) or 0):
                    forward(window_key, (row.value, None, True), row.timestamp_ms, None)

        if on_close:
            # The store is unchanged: if the application continues, these windows are emitted again when they close.
            context.output.on_final_flush(flush)
        return process


def numbers_spec(store: StoreSpec, key_serde: Serde[Any]) -> StoreSpec:
    """Return the spec of the store of record counts by key, given the spec of the aggregate store and the key serde."""
    return StoreSpec(
        f"{store.name}-numbers",
        KEY_VALUE,
        key_serde,
        LONG,
        is_persistent=store.is_persistent,
        has_caching=False,
        has_changelog=store.has_changelog,
        changelog_config=store.changelog_config,
    )
