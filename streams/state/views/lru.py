"""The LRU view: a key-value store that evicts the least recently used entries when it exceeds its maximum size.

As in Kafka Streams, the store is always in memory and is restored from its changelog, to which evictions are
written as tombstones.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from typing import Any, TypeVar

from streams.core.blocks.records import Block
from streams.core.errors import StoreClosedError, StoreError
from streams.state.lifecycle import Store
from streams.state.specs import Family, StoreKind
from streams.state.views.entries import Columns
from streams.state.views.keyvalue import KEY_QUERIES, KeyAccess

K = TypeVar("K")
V = TypeVar("V")

#: Snapshot metadata entry for the order of use.
USE = "use"


class LruStore(Store, KeyAccess[K, V]):
    """A store of the ``max_entries`` most recently used entries.

    Range reads do not count as use.
    """

    __slots__ = ("_changed", "_entries")

    #: In-memory values by slot, least recently used first.
    _entries: "OrderedDict[Any, Any]"
    #: Slots that have changed since the last push, in the order of their last changes.
    _changed: dict[Any, Any]

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        if self.spec.max_entries < 1:
            raise StoreError(f"store {self.spec.name!r}: max_entries is {self.spec.max_entries}; give at least 1")
        self._entries = OrderedDict()
        self._changed = {}

    def get(self, key: K) -> V | None:
        """Return the value of ``key``, or None if there is none; the read counts as use."""
        self._check_open()
        slot = self._keys.slot(key)
        entries = self._entries
        if slot not in entries:
            return None
        entries.move_to_end(slot)
        return self._values.to_value(entries[slot])  # type: ignore[no-any-return]

    def put(self, key: K, value: V | None) -> None:
        """Set the value of ``key``, evicting the least recently used entry if full; None deletes the key."""
        self._check_open()
        slot = self._keys.slot(key)
        held = self._values.hold(value)
        self._set(slot, held)
        self._change(slot, held)
        self._evict(is_logged=True)

    def approximate_num_entries(self) -> int:
        return len(self._entries)

    @property
    def is_empty(self) -> bool:
        return not len(self._entries)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"store {self.spec.name!r} was closed with its task; get it again")

    def _scan(self, low: bytes | None, high: bytes | None, *, reverse: bool) -> Iterator[tuple[K, V]]:
        self._check_open()
        rows = sorted(zip(self._key_bytes(), self._entries.items(), strict=True), key=itemgetter(0), reverse=reverse)
        to_key = self._keys.to_key
        to_value = self._values.to_value
        return iter(
            [
                (to_key(slot), to_value(held))
                for key, (slot, held) in rows
                if (low is None or key >= low) and (high is None or key < high)
            ]
        )

    def _set(self, slot: Any, held: Any) -> None:
        entries = self._entries
        if held is None:
            entries.pop(slot, None)
        else:
            entries[slot] = held
            entries.move_to_end(slot)

    def _change(self, slot: Any, held: Any) -> None:
        self._changed.pop(slot, None)
        self._changed[slot] = held
        self.hot.note_time(slot)

    def _evict(self, *, is_logged: bool) -> None:
        while len(self._entries) > self.spec.max_entries:
            eldest, _ = self._entries.popitem(last=False)
            if is_logged:
                self._change(eldest, None)

    def _push(self) -> None:
        if not self._changed:
            return
        changed = self._changed
        self._changed = {}
        slots = list(changed)
        keys = self._keys.all_to_bytes(slots)
        times = self.hot.times_of(slots, [0] * len(slots))
        values = self._values.all_to_bytes(list(changed.values()))
        self._note(keys, values, times)

    def _forget(self) -> None:
        self._entries.clear()

    def _restore_rows(self, block: Block) -> None:
        for key, value in zip(block.keys, block.values, strict=True):
            if key is not None:
                self._set(self._keys.from_bytes(key), self._values.from_bytes(value))
                self._evict(is_logged=False)

    def _snapshot_rows(self) -> Iterator[tuple[bytes, bytes]]:
        values = self._values.all_to_bytes(list(self._entries.values()))
        return iter(sorted(zip(self._key_bytes(), values, strict=True)))  # type: ignore[arg-type]

    def _snapshot_columns(self, rows: Sequence[tuple[bytes, bytes]]) -> Columns:
        keys, values = zip(*rows, strict=True)
        return keys, values, [0] * len(rows)

    def _key_bytes(self) -> Sequence[bytes]:
        """Return the key bytes of all entries, least recently used first."""
        return self._keys.all_to_bytes(list(self._entries))

    def carried(self) -> dict[str, bytes]:
        """Return the metadata that a snapshot includes, with the order of use as indexes of keys."""
        keys = self._key_bytes()
        place = {key: number for number, key in enumerate(sorted(keys))}
        return {**super().carried(), USE: Struct(f">{len(keys)}I").pack(*map(place.__getitem__, keys))}

    def _restore_own(self, carried: Mapping[str, bytes]) -> None:
        data = carried.get(USE)
        if data is None:
            return
        slots = [slot for _, slot in sorted(zip(self._key_bytes(), self._entries, strict=True), key=lambda row: row[0])]
        if len(data) != len(slots) * 4:
            raise StoreError(
                f"store {self.spec.name!r} holds {len(slots)} entries, its order of use {len(data) // 4}: "
                "they belong to different snapshots; restore the blocks of the same one before"
            )
        for place in Struct(f">{len(slots)}I").unpack(data):
            self._entries.move_to_end(slots[place])


def _by_use(content: Block, carried: Mapping[str, bytes]) -> Sequence[int] | None:
    """Return the indexes of a snapshot's entries, least recently used first, or None if the order is not known."""
    data = carried.get(USE)
    return None if data is None else Struct(f">{len(content)}I").unpack(data)


LRU = StoreKind(
    "lru", Family.KEYS, LruStore, KEY_QUERIES, type_suffix="-lru", is_in_memory=True, changelog_order=_by_use
)
