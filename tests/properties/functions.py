"""The functions of generated topologies: small, total and deterministic.

Keys are texts or None, values small whole numbers or None; a function takes whatever it gets.  In a
generated topology a function is its name, so that a failing example can be read.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from attrs import frozen

from streams import Processor, PunctuationType, Record, Window, Windowed, Windower, key_value_store
from streams.topology.processors import StoreBuilder
from tests.conformance.windower import touching_merged

Key: TypeAlias = str | None
Value: TypeAlias = int | None

#: Values stay below it, however deep the topology.
_MODULUS = 997
#: What one member adds to the aggregate ``members``, so that it is 0 only without members.
_MEMBER = 1_000_000


def even(key: Key, value: Value) -> bool:
    return value is not None and value % 2 == 0


def not_small(key: Key, value: Value) -> bool:
    return value is None or value > 3


def key_is_a(key: Key, value: Value) -> bool:
    return key is not None and key.startswith("a")


def has_key(key: Key, value: Value) -> bool:
    return key is not None


def plus_one(value: Value) -> Value:
    return None if value is None else (value + 1) % _MODULUS


def scrambled(value: Value) -> Value:
    return None if value is None else (value * 31 + 7) % _MODULUS


def none_of_threes(value: Value) -> Value:
    return None if value is None or value % 3 == 0 else value


def by_value(key: Key, value: Value) -> str:
    return f"v{(value or 0) % 3}"


def by_both(key: Key, value: Value) -> str:
    return f"{key}{(value or 0) % 2}"


def only_one(key: Key, value: Value) -> str:
    return "one"


def none_for_evens(key: Key, value: Value) -> Key:
    return None if even(key, value) else key


def pair_by_value(key: Key, value: Value) -> tuple[str, Value]:
    return by_value(key, value), scrambled(value)


def pair_same_key(key: Key, value: Value) -> tuple[Key, Value]:
    return key, plus_one(value)


async def scrambled_later(key: Key, value: Value) -> Value:
    """Take the longer the smaller the value."""
    await asyncio.sleep((9 - (value or 0) % 10) / 1000)
    return scrambled(value)


async def both_keys_later(key: Key, value: Value) -> Iterable[tuple[str, Value]]:
    await asyncio.sleep((value or 0) % 3 / 1000)
    return both_keys(key, value)


async def weight_of(key: str) -> Value:
    """Return something for each key but those of one kind."""
    await asyncio.sleep(len(key) / 1000)
    return None if key.startswith("b") else sum(key.encode()) % _MODULUS


def all_scrambled(values: Sequence[Value]) -> list[Value]:
    return [scrambled(value) for value in values]


def twice(value: Value) -> list[Value]:
    return [value, plus_one(value)]


def as_often_as_it_says(value: Value) -> list[Value]:
    return [value] * ((value or 0) % 3)


def both_keys(key: Key, value: Value) -> Iterable[tuple[str, Value]]:
    return [(by_value(key, value), value), (by_both(key, value), plus_one(value))]


def joined(left: Value, right: Value) -> int:
    return ((left if left is not None else 500) * 37 + (right if right is not None else 700) * 3) % _MODULUS


def chained(left: Value, right: Value) -> int:
    """A reducer that tells the order of what it got; sessions bring it None too."""
    return ((left or 0) * 31 + (right or 0)) % _MODULUS


def highest(left: Value, right: Value) -> int:
    return max(left or 0, right or 0)


def followed(key: Key, value: Value, aggregate: int) -> int:
    """An aggregator that tells the order of what it got."""
    return (aggregate * 31 + (value or 0) + 1) % _MODULUS


def followed_merger(key: Key, left: Value, right: Value) -> int:
    return ((left or 0) * 17 + (right or 0)) % _MODULUS


def member_added(key: Key, value: Value, aggregate: int | None) -> int:
    return (aggregate or 0) + _MEMBER + (value or 0)


def member_removed(key: Key, value: Value, aggregate: int | None) -> int | None:
    """Takes a member out; the row goes with its last member."""
    left = (aggregate or 0) - _MEMBER - (value or 0)
    return left if left else None


def summed(left: int, right: int) -> int:
    return left + right


def subtracted(left: int, right: int) -> int:
    return left - right


def zero() -> int:
    return 0


def key_and_window(key: Windowed[str], value: Value) -> str:
    return f"{key.key}@{key.window.start_ms}-{key.window.end_ms}"


def key_of_window(key: Windowed[str], value: Value) -> str:
    return key.key


def table_row(key: Any, value: Value) -> tuple[str, Value]:
    """Group rows of any table by their value."""
    return by_value(None, value), value


def foreign_key(key: Key, value: Value) -> Key:
    """Refer to one of the keys that inputs have."""
    return None if value is None else "abcdef"[value % 6]


def global_key(key: Key, value: Value) -> Key:
    return foreign_key(key, value)


def running_total(name: str) -> Callable[[], Processor[Any, Any, Any, Any]]:
    """Return a processor that adds up the values of each key, and forgets a key at None."""

    class RunningTotal(Processor[Any, Any, Any, Any]):
        totals: StoreBuilder[Any] = key_value_store(str, int, name)

        def process(self, record: Record[Any, Any]) -> None:
            if record.key is None:
                return
            if record.value is None:
                self.totals.delete(record.key)
            else:
                self.totals.put(record.key, ((self.totals.get(record.key) or 0) + record.value) % _MODULUS)
            self.context.forward(record.key, self.totals.get(record.key))

    return RunningTotal


def tick_counter(name: str) -> Callable[[], Processor[Any, Any, Any, Any]]:
    """Return a processor that forwards what it holds of each key every 20 ms of stream time."""

    class TickCounter(Processor[Any, Any, Any, Any]):
        held: StoreBuilder[Any] = key_value_store(str, int, name)

        def init(self, context: Any) -> None:
            context.schedule(timedelta(milliseconds=20), PunctuationType.STREAM_TIME, self.tick)

        def process(self, record: Record[Any, Any]) -> None:
            if record.key is not None:
                self.held.put(record.key, record.value)

        def tick(self, now_ms: int) -> None:
            for key, value in list(self.held.all()):
                self.context.forward(key, value)
                self.held.delete(key)

    return TickCounter


@frozen
class Gaps(Windower[str, Any]):
    """Windows like sessions, of which the gap of records with an odd value is half as long."""

    gap_ms: int
    grace_ms: int

    @property
    def retention(self) -> timedelta:
        return timedelta(milliseconds=1000)

    def assign(self, key: str, value: Any, timestamp_ms: int, windows: Sequence[Window]) -> list[Window]:
        gap_ms = self.gap_ms // 2 if type(value) is int and value % 2 else self.gap_ms
        return [Window(timestamp_ms, timestamp_ms + gap_ms)]

    def merge(self, windows: Sequence[Window]) -> list[Window]:
        return touching_merged(windows)

    def close(self, window: Window) -> int:
        return window.end_ms + 1 + self.grace_ms
