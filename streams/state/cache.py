"""The record cache: buffers updates so that only the last update of each key is forwarded (KIP-63).

The record cache sits between table operators and their downstream nodes and does not cache the stores themselves.
Each cache belongs to a task or a thread. It has one section per store of a task, and its size limit in bytes
applies to all sections together. An entry keeps the value before the first and the value after the last update
since the entry was last emitted. Updates are emitted in the same order as in Kafka Streams: a flush emits keys in
the order of their last updates, and an eviction emits the least recently updated key, followed by the rest of its
section.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from attrs import define, field

from streams.core.blocks.records import Headers
from streams.core.errors import StoreError
from streams.core.inlining import inlined
from streams.core.metrics import Amounts

#: Estimated overhead of an entry in bytes, excluding its key and value.
_ENTRY_BYTES = 120
#: Estimated size in bytes of an object of unknown size.
_OBJECT_BYTES = 64


#: A buffered update: the value before the first change, the value after the last change, timestamp, headers,
#: origin, whether the update is the latest for its key, and the size in bytes.
CacheEntry: TypeAlias = tuple[Any, Any, int, Headers | None, Any, bool, int]

#: Called with (slot, new, old, timestamp_ms, headers, origin, is_latest).
Emit = Callable[[Any, Any, Any, int, Headers | None, Any, bool], None]
#: Buffers an update: (key, new, old, timestamp_ms, headers, is_latest). ``old`` is used only if no update of the
#: key is buffered yet. A disabled cache emits the update immediately.
Hold = Callable[..., None]


@define(eq=False)
class Section:
    """The buffered updates of one store; ``hold`` buffers an update by key, ``hold_slot`` by slot."""

    name: str
    emit: Emit
    hold: Hold = field(init=False)
    hold_slot: Hold = field(init=False)
    #: Updates by slot, least recently updated first.
    entries: dict[Any, CacheEntry] = field(factory=dict)
    size_bytes: int = 0
    #: Updates since the last flush, if the hit ratio is recorded, in millionths.
    updates: int = 0
    hit_ratio: Amounts | None = None


@inlined
def _itself(key: Any) -> Any:
    return key


@define(eq=False)
class RecordCache:
    """A record cache of several sections that share ``max_bytes``; 0 disables the cache."""

    max_bytes: int
    size_bytes: int = 0
    _sections: dict[str, Section] = field(factory=dict)

    def register(
        self,
        section: str,
        emit: Emit,
        slot_of: Callable[[Any], Any] = _itself,
        origin: Callable[[], Any] = lambda: None,
        hit_ratio: Amounts | None = None,
    ) -> Section:
        """Return the named section, whose updates are passed to ``emit`` at a flush or eviction.

        Registering the same section again keeps its updates and replaces ``emit``. Updates are stored by
        ``slot_of(key)``, together with the ``origin`` of the key's last update. ``hit_ratio`` records, by flush, the
        share of updates whose key was already buffered, in millionths.
        """
        into = self._sections.setdefault(section, Section(section, emit))
        into.emit = emit
        into.hit_ratio = hit_ratio
        is_counted = hit_ratio is not None

        @inlined
        def hold_slot(
            slot: Any, new: Any, old: Any, timestamp_ms: int, headers: Headers | None, is_latest: bool = True
        ) -> None:
            if is_counted:
                into.updates += 1
            entries = into.entries
            held = entries.pop(slot, None)
            if held is not None and type(new) is int and type(held[1]) is int:
                # Fast path for counts, the most frequent values, which all have the same size.
                where = origin()
                entries[slot] = (held[0], new, timestamp_ms, headers, where, is_latest, held[6])
            else:
                grow(slot, held, new, old, timestamp_ms, headers, is_latest)

        @inlined
        def hold(
            key: Any, new: Any, old: Any, timestamp_ms: int, headers: Headers | None, is_latest: bool = True
        ) -> None:
            slot = slot_of(key)
            hold_slot(slot, new, old, timestamp_ms, headers, is_latest)

        def grow(
            slot: Any,
            held: CacheEntry | None,
            new: Any,
            old: Any,
            timestamp_ms: int,
            headers: Headers | None,
            is_latest: bool,
        ) -> None:
            """Buffer an update that may change the size of its entry; ``held`` is the previous entry of the key."""
            if held is None:
                size = grown = _ENTRY_BYTES + _weight(slot) + _weight(new) + _weight(old)
            else:
                grown = _weight(new) - _weight(held[1])
                old = held[0]
                size = held[6] + grown
            into.entries[slot] = (old, new, timestamp_ms, headers, origin(), is_latest, size)
            into.size_bytes += grown
            self.size_bytes += grown
            while self.size_bytes > self.max_bytes and into.entries:
                self._flush(into)

        into.hold = hold
        into.hold_slot = hold_slot
        return into

    def flush(self, section: str) -> None:
        """Emit all updates of ``section``, in the order of each key's last update."""
        self._flush(self._section(section))

    def resize(self, max_bytes: int) -> None:
        """Change the size limit in bytes; sections are flushed one after the other until the updates fit."""
        self.max_bytes = max_bytes
        for section in list(self._sections.values()):
            if self.size_bytes <= max_bytes:
                return
            self._flush(section)

    def clear(self, section: str) -> None:
        """Drop the updates of ``section`` without emitting them."""
        into = self._section(section)
        self._shrink(into, into.size_bytes)
        into.entries.clear()
        into.updates = 0

    def _section(self, name: str) -> Section:
        try:
            return self._sections[name]
        except KeyError:
            raise StoreError(f"record cache has no section {name!r}; register it first") from None

    def _shrink(self, section: Section, size: int) -> None:
        section.size_bytes -= size
        self.size_bytes -= size

    def _flush(self, section: Section) -> None:
        """Emit all buffered updates; updates that arrive during the flush are buffered until the next flush."""
        if not section.entries:
            return
        held = section.entries
        section.entries = {}
        if section.hit_ratio is not None:
            section.hit_ratio.record(1_000_000 * (section.updates - len(held)) // section.updates)
            section.updates = 0
        self._shrink(section, section.size_bytes)
        emit = section.emit
        for key, (old, new, timestamp_ms, headers, context, is_latest, _) in held.items():
            # A row that was created and deleted between two flushes is no change for downstream nodes.
            if old is not None or new is not None:
                emit(key, new, old, timestamp_ms, headers, context, is_latest)


def _weight(value: Any) -> int:
    """Return the estimated size of a value in bytes."""
    if type(value) in (str, bytes):
        return 40 + len(value)
    return _OBJECT_BYTES if value is not None else 0
