"""Comparison of the contents of stores after two replays.

The entries of both versions are sorted by key and merged as they are read; only entries that differ are decoded.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice
from typing import Any, TypeAlias

from attrs import define, field

from streams.comparison.differences import (
    KINDS,
    LAST,
    ONLY_NEW,
    ONLY_OLD,
    RETYPED,
    TIMES,
    EntryDifference,
    StoreComparison,
)
from streams.comparison.takeover import Evidence
from streams.comparison.versions import Version
from streams.core.errors import StreamsError
from streams.core.migrations import converted, version_of
from streams.core.serdes.display import plain, reader
from streams.replay.calls.shown import store_key_reader
from streams.replay.calls.work import StoreRef
from streams.replay.run.result import ReplayResult
from streams.state import StoreSpec

#: Number of store entries that are deserialized with the type of the other version, as a test.
_TRIED = 10_000


def compare_stores(old: Version, new: Version, pairs: Mapping[str, str], limit: int) -> Iterator[StoreComparison]:
    """Yield the comparison of each store of two versions, which must have been replayed.

    ``pairs`` maps the stores of the old version to their counterparts; ``limit`` is the maximum number of examples for
    each store.

    Raises:
        ReplayError: a file of a replay is missing or damaged.
    """
    assert old.result is not None
    assert new.result is not None
    back = {two: one for one, two in pairs.items()}
    for two in new.topology.stores:
        one = back.get(two)
        if one is None:
            yield StoreComparison(None, two, (None, _entries(new.result, two)))
        else:
            yield _compare_store(old, new, one, two, limit)
    for one in old.topology.stores:
        if one not in pairs:
            yield StoreComparison(one, None, (_entries(old.result, one), None))
    for name in sorted(old.topology.global_stores.keys() & new.topology.global_stores.keys()):
        yield _compare_store(old, new, name, name, limit)


def _entries(result: ReplayResult, name: str) -> int:
    state = result.session.state
    refs = [refs_of[name] for refs_of in state.stores.values() if name in refs_of]
    refs += [state.global_stores[name]] if name in state.global_stores else []
    return sum(ref.rows for ref in refs)


def _spec(version: Version, name: str) -> StoreSpec:
    spec = version.topology.stores.get(name)
    return spec if spec is not None else version.topology.global_stores[name].spec


def _compare_store(old: Version, new: Version, one: str, two: str, limit: int) -> StoreComparison:
    assert old.result is not None
    assert new.result is not None
    counts = _entries(old.result, one), _entries(new.result, two)
    specs = _spec(old, one), _spec(new, two)
    is_global = one in old.topology.global_stores
    forms = [] if is_global else list(zip(old.forms(one), new.forms(two), strict=True))
    notes = [
        f"{what}: {was.name} -> {now.name}" if was.name != now.name else f"{what}: {now.name}: other fields"
        for what, (was, now) in zip(("keys", "values"), forms, strict=False)
        if was.is_read_as(now) is not True
    ]
    finder = _EntryFinder(specs, limit, bool(notes))
    for left, right in _merged(_rows(old.result, one), _rows(new.result, two)):
        if left != right:
            finder.take(left, right)
    tried = (0, 0, "")
    if version_of(specs[0].migrations) < version_of(specs[1].migrations):
        tried = _migrated(old.result, one, specs)
        notes.append(f"migrations convert {tried[0]:,} of {tried[0] + tried[1]:,} entries of OLD")
        if tried[1]:
            notes.append(f"{tried[1]:,} entries fail, the first one: {tried[2]}")
    elif notes and one == two:
        tried = _tried(old.result, one, specs[1])
    differing = sum(count for kind, count in finder.counts.items() if kind != RETYPED)
    evidence = Evidence(*tried, differing, counts[0] + finder.counts[ONLY_NEW])
    return StoreComparison(
        one,
        two,
        counts,
        {kind: finder.counts[kind] for kind in KINDS if finder.counts[kind]},
        tuple(finder.chosen()),
        tuple(notes),
        evidence,
    )


#: An entry: raw key, time (-1 unless the store is versioned), value, time.  The first two identify the entry.
_Entry: TypeAlias = tuple[bytes, int, bytes | None, int]


def _rows(result: ReplayResult, name: str) -> Iterator[_Entry]:
    """Yield the entries of a store over all its partitions, sorted by raw key."""
    session = result.session
    spec = session.topology.stores.get(name)
    is_versioned = spec is not None and spec.kind.has_versions
    refs = [refs_of[name] for _, refs_of in sorted(session.state.stores.items()) if name in refs_of]
    if name in session.state.global_stores:
        refs = [session.state.global_stores[name]]

    def part(ref: StoreRef) -> Iterator[_Entry]:
        for block in session.segments.blocks(ref.extents):
            for key, value, time in zip(block.keys, block.values, block.timestamps, strict=True):
                assert key is not None
                yield key, (time if is_versioned else -1), value, time

    return merge(*map(part, refs), key=lambda entry: entry[:2])


def _merged(left: Iterator[_Entry], right: Iterator[_Entry]) -> Iterator[tuple[_Entry | None, _Entry | None]]:
    """Yield pairs of entries with the same key, with None for a missing entry; both inputs are sorted by key."""
    one = next(left, None)
    two = next(right, None)
    while one is not None or two is not None:
        if two is None or (one is not None and one[:2] < two[:2]):
            yield one, None
            one = next(left, None)
        elif one is None or two[:2] < one[:2]:
            yield None, two
            two = next(right, None)
        else:
            yield one, two
            one = next(left, None)
            two = next(right, None)


def _tried(result: ReplayResult, name: str, spec: StoreSpec) -> tuple[int, int, str]:
    """Deserialize values with the other version's serde; return the numbers of successes and failures, and an error."""
    read = failed = 0
    first = ""
    for _, _, value, _ in islice(_rows(result, name), _TRIED):
        try:
            spec.value_serde.deserialize(value)
            read += 1
        except StreamsError as error:
            failed += 1
            first = first or str(error)
    return read, failed, first


def _migrated(result: ReplayResult, name: str, specs: tuple[StoreSpec, StoreSpec]) -> tuple[int, int, str]:
    """Convert all entries of the old version; return the numbers of successes and failures, and the first error."""
    read = failed = 0
    first = ""
    version = version_of(specs[0].migrations)
    new = specs[1]
    for key, _, value, _ in _rows(result, name):
        if value is None:
            continue
        try:
            new.value_serde.deserialize(converted(new.migrations, value, version, new.value_serde))
            read += 1
        except StreamsError as error:
            failed += 1
            first = first or f"key {store_key_reader(specs[0])(key)}: {error}"
    return read, failed, first


@define(eq=False)
class _EntryFinder:
    """Finds the differing entries of a store, and keeps the first examples of each kind of difference."""

    specs: tuple[StoreSpec, StoreSpec]
    limit: int
    reads_values: bool
    counts: Counter[str] = field(factory=Counter)
    _examples: dict[str, list[EntryDifference]] = field(factory=dict)
    _keys: Any = field(init=False)
    _values: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._keys = [store_key_reader(spec) for spec in self.specs]
        self._values = [reader(spec.value_serde) for spec in self.specs]

    def take(self, left: _Entry | None, right: _Entry | None) -> None:
        """Add a pair of differing entries."""
        values = self._value(0, left), self._value(1, right)
        if left is None or right is None:
            kind = ONLY_NEW if left is None else ONLY_OLD
        elif left[2] == right[2]:
            kind = TIMES
        elif self.reads_values and values[0] == values[1]:
            kind = RETYPED if left[3] == right[3] else TIMES
        else:
            kind = LAST
        self.counts[kind] += 1
        examples = self._examples.setdefault(kind, [])
        if len(examples) < self.limit:
            texts = [self._keys[side](row[0]) for side, row in enumerate((left, right)) if row is not None]
            times = (None if left is None else left[3], None if right is None else right[3])
            examples.append(EntryDifference(" / ".join(dict.fromkeys(texts)), kind, *values, times))

    def chosen(self) -> list[EntryDifference]:
        """Return the examples, the most severe kind first."""
        return [item for kind in KINDS for item in self._examples.get(kind, ())][: self.limit]

    def _value(self, side: int, row: _Entry | None) -> Any:
        return None if row is None else plain(self._values[side](row[2]))
