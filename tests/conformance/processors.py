"""The processor catalogue of the conformance language, on the public Processor API.

One class per entry; a spec ``[name, args...]`` becomes a function that makes the processor.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from streams import Headers, Processor, ProcessorContext, PunctuationType, Record
from streams.topology.operator import Cancellable
from tests.conformance.functions import CatalogueError, Spec, last_header, number, predicate, text, value_function
from tests.conformance.store_commands import run_command
from tests.conformance.values import milliseconds

AnyRecord: TypeAlias = Record[Any, Any]
AnyContext: TypeAlias = ProcessorContext[Any, Any]


class Catalogued(Processor[Any, Any, Any, Any]):
    """What the processors share: passing a record on, changed in part."""

    def pass_on(self, record: AnyRecord) -> None:
        """Forward the record itself, its headers included."""
        self.context.forward(record.key, record.value, timestamp_ms=record.timestamp_ms)

    def forward_value(self, record: AnyRecord, value: Any) -> None:
        """Forward a copy of the record with another value."""
        self.context.forward(record.key, value, timestamp_ms=record.timestamp_ms, headers=record.headers)

    def process(self, record: AnyRecord) -> None:
        """Forward the record as it is."""
        self.pass_on(record)


class Swallow(Catalogued):
    """Forwards nothing."""

    def process(self, record: AnyRecord) -> None:
        """Do nothing."""


class Map(Catalogued):
    """Forwards with another value."""

    def __init__(self, spec: Spec) -> None:
        self._function = value_function(spec)

    def process(self, record: AnyRecord) -> None:
        """Forward with the function's result as value."""
        self.forward_value(record, self._function(record.key, record.value))


class MapKey(Catalogued):
    """Forwards with another key."""

    def __init__(self, spec: Spec) -> None:
        self._function = value_function(spec)

    def process(self, record: AnyRecord) -> None:
        """Forward with the function's result as key."""
        key = self._function(record.key, record.value)
        self.context.forward(key, record.value, timestamp_ms=record.timestamp_ms, headers=record.headers)


class Filter(Catalogued):
    """Forwards what a predicate holds for."""

    def __init__(self, spec: Spec) -> None:
        self._predicate = predicate(spec)

    def process(self, record: AnyRecord) -> None:
        """Forward if the predicate holds."""
        if self._predicate(record.key, record.value):
            self.pass_on(record)


class ChangeHeaders(Catalogued):
    """Forwards with other headers."""

    def __init__(self, change: Callable[[Headers], Headers]) -> None:
        self._change = change

    def process(self, record: AnyRecord) -> None:
        """Forward the record itself, whose own headers are changed: whoever shares them sees it."""
        record.headers = self._change(record.headers)
        self.pass_on(record)


def _adds(name: str, value: str) -> ChangeHeaders:
    return ChangeHeaders(lambda headers: (*headers, (name, value.encode())))


def _removes(name: str) -> ChangeHeaders:
    return ChangeHeaders(lambda headers: tuple(header for header in headers if header[0] != name))


class ClearHeaders(Catalogued):
    """Forwards without headers."""

    def process(self, record: AnyRecord) -> None:
        """Forward a new record; this one keeps its headers."""
        self.context.forward(record.key, record.value, timestamp_ms=record.timestamp_ms, headers=())


class HeaderToValue(Catalogued):
    """Forwards with a header's text as value."""

    def __init__(self, name: str) -> None:
        self._name = name

    def process(self, record: AnyRecord) -> None:
        """Forward with the last such header."""
        self.forward_value(record, last_header(record.headers, self._name))


class AddTime(Catalogued):
    """Forwards with another time."""

    def __init__(self, by_ms: int) -> None:
        self._by_ms = by_ms

    def process(self, record: AnyRecord) -> None:
        """Forward later or earlier."""
        self.context.forward(
            record.key, record.value, timestamp_ms=record.timestamp_ms + self._by_ms, headers=record.headers
        )


def _facts(context: AnyContext, timestamp_ms: int, value: Any) -> dict[str, Any]:
    metadata = context.record_metadata
    return {
        "topic": None if metadata is None else metadata.topic,
        "partition": -1 if metadata is None else metadata.partition,
        "offset": -1 if metadata is None else metadata.offset,
        "ts": timestamp_ms,
        "stream_time": context.stream_time_ms,
        "wall": context.wall_clock_ms,
        "v": value,
    }


class Facts(Catalogued):
    """Forwards what the context says."""

    def process(self, record: AnyRecord) -> None:
        """Forward metadata and times as value."""
        self.forward_value(record, _facts(self.context, record.timestamp_ms, record.value))


class Duplicate(Catalogued):
    """Forwards several times."""

    def __init__(self, times: int) -> None:
        self._times = times

    def process(self, record: AnyRecord) -> None:
        """Forward so many copies."""
        for _ in range(self._times):
            self.forward_value(record, record.value)


class Route(Catalogued):
    """Forwards to the child that the value names."""

    def process(self, record: AnyRecord) -> None:
        """Forward to one child, or to all."""
        child, colon, rest = ("", "", "") if record.value is None else text(record.value).partition(":")
        if child and colon:
            self.context.forward(record.key, rest, timestamp_ms=record.timestamp_ms, headers=record.headers, to=child)
        else:
            self.pass_on(record)


class ThrowIfContains(Catalogued):
    """Raises on some values."""

    def __init__(self, part: str) -> None:
        self._part = part

    def process(self, record: AnyRecord) -> None:
        """Raise, or forward."""
        if record.value is not None and self._part in text(record.value):
            raise CatalogueError(f"value {text(record.value)!r} contains {self._part!r}")
        self.pass_on(record)


class WithStore(Catalogued):
    """Works on a store."""

    def __init__(self, store: str, *_: Any) -> None:
        self._name = store
        self._store: Any = None

    def init(self, context: AnyContext) -> None:
        """Take the store."""
        self._store = context.store(self._name)


class StoreCount(WithStore):
    """Counts by key."""

    def process(self, record: AnyRecord) -> None:
        """Forward with the new count."""
        count = number(self._store.get(record.key)) + 1
        self._store.put(record.key, count)
        self.forward_value(record, count)


class StorePut(WithStore):
    """Keeps the last value."""

    def process(self, record: AnyRecord) -> None:
        """Put and forward."""
        self._store.put(record.key, record.value)
        self.pass_on(record)


class StorePrevious(WithStore):
    """Forwards the value before."""

    def process(self, record: AnyRecord) -> None:
        """Put and forward the old value."""
        old = self._store.get(record.key)
        self._store.put(record.key, record.value)
        self.forward_value(record, old)


class TableLookup(WithStore):
    """Looks into a table's store."""

    def process(self, record: AnyRecord) -> None:
        """Forward with what the store has for the key."""
        found = self._store.get(record.key)
        shown = "null" if found is None else f"{text(found.value)}@{found.timestamp_ms}"
        self.forward_value(record, f"{text(record.value)}/{shown}")


class Deduplicate(WithStore):
    """Forwards a key once within a time."""

    def __init__(self, store: str, within_ms: int) -> None:
        super().__init__(store)
        self._within_ms = within_ms

    def process(self, record: AnyRecord) -> None:
        """Forward if the key was not seen."""
        time = record.timestamp_ms
        first_ms, last_ms = max(0, time - self._within_ms), time + self._within_ms
        seen = bool(list(self._store.fetch_range(record.key, first_ms, last_ms)))
        self._store.put(record.key, record.value, time)
        if not seen:
            self.pass_on(record)


class StoreCommand(WithStore):
    """Runs the command that the value is."""

    def __init__(self, store: str, kind: str) -> None:
        super().__init__(store)
        self._kind = kind

    def process(self, record: AnyRecord) -> None:
        """Forward with the command's result."""
        result = run_command(self._store, self._kind, record.value)
        self.forward_value(record, {"cmd": record.value[0], "r": result})


_CLOCKS = {"stream": PunctuationType.STREAM_TIME, "wall": PunctuationType.WALL_CLOCK_TIME}


class Tick(Catalogued):
    """Forwards a record with each tick."""

    def __init__(self, clock: str, interval_ms: int, start_ms: int | None = None) -> None:
        self._clock = _CLOCKS[clock]
        self._interval = milliseconds(interval_ms)
        self._start_ms = start_ms
        self._scheduled: Cancellable | None = None

    def init(self, context: AnyContext) -> None:
        """Schedule the ticks."""
        self.start()

    def start(self) -> None:
        """Schedule the ticks."""
        self._scheduled = self.context.schedule(self._interval, self._clock, self.tick, start_ms=self._start_ms)

    def stop(self) -> None:
        """Cancel the ticks."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None

    def tick(self, now_ms: int) -> None:
        """Forward a record."""
        self.forward_tick(str(now_ms), now_ms)

    def forward_tick(self, value: Any, now_ms: int) -> None:
        """Forward a record of the tick's time."""
        self.context.forward("tick", value, timestamp_ms=now_ms, headers=())


class TickCancel(Tick):
    """Cancels itself after some ticks."""

    def __init__(self, clock: str, interval_ms: int, last: int) -> None:
        super().__init__(clock, interval_ms)
        self._left = last

    def tick(self, now_ms: int) -> None:
        """Forward a record; the last time, cancel."""
        super().tick(now_ms)
        self._left -= 1
        if self._left == 0:
            self.stop()


class TickMeta(Tick):
    """Forwards what the context says within a tick."""

    def tick(self, now_ms: int) -> None:
        """Forward metadata and times as value."""
        self.forward_tick(_facts(self.context, now_ms, None), now_ms)


class TickThrow(Tick):
    """Raises in its ticks."""

    def tick(self, now_ms: int) -> None:
        """Raise."""
        raise CatalogueError(f"tick at {now_ms}")


class Toggle(Tick):
    """Starts and stops ticking by the values."""

    def init(self, context: AnyContext) -> None:
        """Schedule nothing yet."""

    def process(self, record: AnyRecord) -> None:
        """Start or stop; forward nothing."""
        if record.value == "start" and self._scheduled is None:
            self.start()
        elif record.value == "stop":
            self.stop()


class Buffer(Tick):
    """Keeps records in a store until the next tick."""

    def __init__(self, clock: str, interval_ms: int, store: str) -> None:
        super().__init__(clock, interval_ms)
        self._name = store
        self._store: Any = None

    def init(self, context: AnyContext) -> None:
        """Take the store and schedule the ticks."""
        self._store = context.store(self._name)
        self.start()

    def process(self, record: AnyRecord) -> None:
        """Keep the record."""
        self._store.put(record.key, record.value)

    def tick(self, now_ms: int) -> None:
        """Forward all that is kept."""
        for key, value in list(self._store.all()):
            self.context.forward(key, value, timestamp_ms=now_ms, headers=())
            self._store.delete(key)


class TickCounter(Tick):
    """Counts its ticks and tells the count with each record."""

    def __init__(self, clock: str, interval_ms: int) -> None:
        super().__init__(clock, interval_ms)
        self._ticks = 0

    def tick(self, now_ms: int) -> None:
        """Count."""
        self._ticks += 1

    def process(self, record: AnyRecord) -> None:
        """Forward with the count."""
        self.forward_value(record, f"{text(record.value)}#{self._ticks}")


#: Processors by name: arguments -> processor.
_PROCESSORS: dict[str, Callable[..., Processor[Any, Any, Any, Any]]] = {
    "pass": Catalogued,
    "swallow": Swallow,
    "map": Map,
    "map_key": MapKey,
    "filter": Filter,
    "add_header": _adds,
    "remove_header": _removes,
    "clear_headers": ClearHeaders,
    "header_to_value": HeaderToValue,
    "ts_add": AddTime,
    "ctx": Facts,
    "dup": Duplicate,
    "route": Route,
    "throw_if_contains": ThrowIfContains,
    "store_count": StoreCount,
    "store_put": StorePut,
    "store_prev": StorePrevious,
    "table_lookup": TableLookup,
    "dedup": Deduplicate,
    "store_cmd": StoreCommand,
    "tick": Tick,
    "tick_at": Tick,
    "tick_cancel": TickCancel,
    "tick_meta": TickMeta,
    "tick_throw": TickThrow,
    "toggle": Toggle,
    "buffer": Buffer,
    "tick_counter": TickCounter,
}


def processor(spec: Spec) -> Callable[[], Processor[Any, Any, Any, Any]]:
    """Return a function that makes the processor of a spec, a new one at each call."""
    name, *arguments = spec
    make = _PROCESSORS[name]

    def supply() -> Processor[Any, Any, Any, Any]:
        return make(*arguments)

    return supply
