"""The record cache: first old and last new value of a key, in order of its last update."""

from typing import Any

import pytest

from streams.core.errors import StoreError
from streams.core.metrics import Amounts
from streams.state import RecordCache
from streams.state.cache import Hold


class Emitted(list[Any]):
    """Collects what a section emits."""

    def __call__(self, key: Any, new: Any, old: Any, timestamp_ms: int, *_: Any) -> None:
        self.append((key, new, old, timestamp_ms))


class Cache(RecordCache):
    """A cache whose sections are named with each update."""

    holds: dict[str, Hold]

    def put(self, section: str, key: Any, old: Any, new: Any, timestamp_ms: int) -> None:
        self.holds[section](key, new, old, timestamp_ms, None)


def cache_of(max_bytes: int, *sections: str) -> tuple[Cache, dict[str, Emitted]]:
    cache = Cache(max_bytes)
    emitted = {section: Emitted() for section in sections}
    cache.holds = {section: cache.register(section, emit).hold for section, emit in emitted.items()}
    return cache, emitted


def test_hit_ratio_is_the_share_of_updates_that_found_their_key() -> None:
    cache, ratio = RecordCache(10_000), Amounts.since(0, has_percentiles=False)
    hold = cache.register("s", Emitted(), hit_ratio=ratio).hold
    for key in "aaabx":
        hold(key, 1, None, 10, None)
    cache.flush("s")
    hold("a", 1, None, 10, None)
    cache.clear("s")
    for key in "aa":
        hold(key, 1, None, 10, None)
    cache.flush("s")
    cache.flush("s")

    assert (ratio.count, ratio.total) == (2, 400_000 + 500_000)


def test_flush_emits_first_old_and_last_new_by_last_update() -> None:
    cache, emitted = cache_of(10_000, "s")
    cache.put("s", "a", None, 1, 10)
    cache.put("s", "b", 5, 6, 11)
    cache.put("s", "a", 1, 2, 12)
    assert emitted["s"] == []

    cache.flush("s")

    assert emitted["s"] == [("b", 6, 5, 11), ("a", 2, None, 12)]
    cache.flush("s")
    assert len(emitted["s"]) == 2
    assert cache.size_bytes == 0


def test_what_came_and_went_between_flushes_is_not_emitted() -> None:
    cache, emitted = cache_of(10_000, "s")
    cache.put("s", "a", None, 1, 10)
    cache.put("s", "a", 1, None, 11)
    cache.put("s", "b", 1, None, 12)
    cache.flush("s")

    assert emitted["s"] == [("b", None, 1, 12)]


def test_cache_of_no_size_emits_at_once() -> None:
    cache, emitted = cache_of(0, "s")
    cache.put("s", "a", None, 1, 10)

    assert emitted["s"] == [("a", 1, None, 10)]


def test_full_cache_lets_the_section_that_grows_go() -> None:
    cache, emitted = cache_of(2_000, "s", "t")
    cache.put("t", "x", None, 1, 0)
    for number in range(20):
        cache.put("s", number, None, number, number)

    assert emitted["t"] == []
    assert [row[0] for row in emitted["s"]] == list(range(len(emitted["s"])))
    assert 0 < len(emitted["s"]) < 20
    assert cache.size_bytes <= 2_000


def test_updates_made_while_flushing_are_held_for_the_next_flush() -> None:
    cache = Cache(10_000)
    seen: list[Any] = []

    def emit(key: Any, new: Any, *_: Any) -> None:
        seen.append((key, new))
        if new == 1:
            cache.put("s", key, 1, 2, 0)

    cache.holds = {"s": cache.register("s", emit).hold}
    cache.put("s", "a", None, 1, 0)
    cache.flush("s")
    assert seen == [("a", 1)]
    cache.flush("s")
    assert seen == [("a", 1), ("a", 2)]


def test_smaller_bound_emits_and_clear_forgets() -> None:
    cache, emitted = cache_of(10_000, "s", "t")
    cache.put("s", "a", None, 1, 0)
    cache.put("t", "a", None, 1, 0)
    cache.clear("t")
    cache.resize(10)

    assert emitted["s"] == [("a", 1, None, 0)]
    assert emitted["t"] == []
    with pytest.raises(StoreError, match="'u'"):
        cache.flush("u")
