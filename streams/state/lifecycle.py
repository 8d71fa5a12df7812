"""The lifecycle of all stores: restoring, writing changelog records, committing and closing.

A view consists of a key layout, the hot state and a staged engine. This module connects these parts and
implements what all kinds of stores share. It is the only place in the package that uses inheritance: views
override the hooks of ``Store``. This module does not depend on topics or tasks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from streams.core.blocks.loops import bytes_in
from streams.core.blocks.records import Block, Headers
from streams.core.errors import SerializationError
from streams.core.migrations import FIRST_VERSION, VERSION_HEADER, version_of
from streams.core.serdes.serdes import PinnedSerde
from streams.state.engine.budget import MemoryBudget
from streams.state.engine.engines import Statistic
from streams.state.engine.staging import StagedEngine
from streams.state.formats import StoreFormat
from streams.state.forms import KeyForm, ValueForm, pinned_name
from streams.state.hot import HotState
from streams.state.migrating import at_last_version
from streams.state.specs import StoreSpec
from streams.state.views.entries import Columns
from streams.state.views.headers import headed, joined, split

#: Names of the metadata entries and changelog headers that hold pinned types.
KEY_TYPE = "key_type"
VALUE_TYPE = "value_type"
#: Prefix of the names of the metadata entries of a snapshot that hold headers of the changelog.
HEADER_PREFIX = "header:"
#: Headers of changelog records that are not those of an entry: types and versions of this library, and what Kafka
#: Streams adds: version, position, and the headers of values of ``suppress`` that no result has.
_OWN_HEADERS = frozenset((KEY_TYPE, VALUE_TYPE, VERSION_HEADER, "v", "c", "vh.old", "vh.prior"))
#: Metadata entry for a store's observed stream time (8 bytes).
STREAM_TIME = "observed_stream_time_ms"
#: Metadata entry for the format of a store.
FORMAT = "note"

#: Maximum number of rows in a snapshot block, number of rows in the first block, and target size of a block's
#: values in bytes.
SNAPSHOT_ROWS = 10_000
_FIRST_SNAPSHOT_ROWS = 1_000
_SNAPSHOT_BYTES = 4 * 1024 * 1024
#: Estimated overhead of a dirty entry in bytes, excluding its value: of the entry alone, and including its copies
#: for the engine and the changelog.
_HELD_ENTRY_BYTES = 350
_WAITING_ENTRY_BYTES = 650
#: Number of copies of a value's bytes in memory: the in-memory value, and copies for the engine and the changelog.
_HELD_BYTES = 1
_WAITING_BYTES = 3
#: The same number for values that are held as objects.
_HELD_OBJECTS = 3
_WAITING_OBJECTS = 5
#: Estimated overhead of an undrained change in bytes, excluding its key and value.
CHANGE_BYTES = 200
#: Superseded changes are removed only above this number of changes.
_FEW_CHANGES = 10_000
#: Value sizes are sampled once per 2 ** ``_WEIGHED_EACH`` written entries.
_WEIGHED_EACH = 8

#: One changelog record: key, value, timestamp_ms.
ChangelogRow = tuple[bytes, bytes | None, int]


class Layout:
    """The mapping between the entries of a store and its staged engine; this base class has no entries."""

    __slots__ = ()

    def write(self, slots: Sequence[Any], entries: Sequence[Any]) -> Columns:
        """Stage dirty entries for the next commit; return them as changelog records."""
        raise NotImplementedError

    def restore(self, block: Block) -> None:
        """Stage the changelog records in a block for the next commit."""
        raise NotImplementedError

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, engine value) of all entries except dirty ones, sorted by key bytes."""
        raise NotImplementedError

    def logged(self, rows: Sequence[tuple[bytes, bytes]]) -> Columns:
        """Return rows, which are (key, engine value), as changelog records; rows without a time get 0."""
        raise NotImplementedError

    def value_of(self, entry: Any) -> Any:
        """Return the in-memory value of an entry, or None if the entry is deleted."""
        return entry

    def metadata(self) -> dict[str, bytes]:
        """Return the metadata that the engine and snapshots store in addition to the entries."""
        return {}

    def restore_metadata(self, carried: Mapping[str, bytes]) -> None:
        """Apply the metadata that ``metadata`` has returned."""

    def check_restored(self) -> None:
        """Check what was restored from a changelog, once all of it is.

        Raises:
            StoreError: it does not fit.
        """

    def resize(self, entries: int) -> int:
        """Reserve part of the read-cache entries for the layout's own caches; return the remainder."""
        return entries

    def forget(self) -> None:
        """Drop all data that is derived from the entries."""


class Store:
    """The common base of all stores, which consist of a layout, the hot state and a staged engine.

    A task restores, commits and closes its stores through these methods; each kind adds the methods of its view.
    """

    __slots__ = (
        "_change_count",
        "_changes",
        "_distinct_count",
        "_is_closed",
        "_is_logged",
        "_keys",
        "_layout",
        "_memory",
        "_metadata",
        "_staged",
        "_value_bytes",
        "_values",
        "_view",
        "_weighed_at",
        "expired",
        "found_format",
        "hot",
        "on_expired",
        "spec",
    )

    _layout: Layout

    def __init__(self, spec: StoreSpec, staged: StagedEngine, memory: MemoryBudget) -> None:
        self.spec = spec
        self._layout = Layout()
        self._view: Any = None
        #: Number of records dropped as too old since the store was opened.
        self.expired = 0
        #: Called for each record dropped as too old, which is also counted in ``expired``.
        self.on_expired: Callable[[], None] | None = None
        self._staged = staged
        # Retained duplicates are not read individually: joins read chains.
        self.hot = HotState(0 if spec.retain_duplicates else memory.read_entries(2 * _HELD_ENTRY_BYTES))
        self._memory = memory
        #: Estimated size of a value in bytes, and the number of dirty entries >> ``_WEIGHED_EACH`` at the last sample.
        self._value_bytes = 0
        self._weighed_at = 0
        self._metadata = staged.engine.metadata()
        #: The stored format found when the store was opened, or None if there was none.
        self.found_format = StoreFormat.read(self._metadata.get(FORMAT))
        self._is_logged = spec.has_changelog and self._has_whole_changelog()
        self._is_closed = False
        #: Changes for the changelog, one item per push; a later change of a key supersedes the earlier changes.
        self._changes: list[Columns] = []
        self._change_count = 0
        #: Number of changes when superseded changes were last removed.
        self._distinct_count = 0
        self._pin(self._metadata.get(KEY_TYPE), self._metadata.get(VALUE_TYPE))
        self._keys = KeyForm(spec.name, spec.key_serde, self.hot)
        value_serde = headed(spec.value_serde) if spec.kind.keeps_headers else spec.value_serde
        self._values = ValueForm(spec.name, value_serde, self.hot)

    def _has_whole_changelog(self) -> bool:
        """Whether all entries that were found have been logged: writes without a changelog are never logged later."""
        return self.found_format is None or self.found_format.is_logged or not self._staged.has_entries()

    # Hooks: a view sets ``_layout``, or overrides these methods.

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.spec.name!r}>"

    def _push(self) -> None:
        """Stage the dirty entries, and add them to the changes for the changelog."""
        if not self.hot.dirty:
            return
        slots, entries = self.hot.take_dirty()
        try:
            columns = self._layout.write(slots, entries)
        except Exception as error:
            error.add_note(f"while writing store {self.spec.name!r}")
            raise
        self._note(*columns)

    def _restore_rows(self, block: Block) -> None:
        """Stage the changelog records in a block for the next commit."""
        self._layout.restore(block)

    def _snapshot_rows(self) -> Iterator[Any]:
        """Yield all entries as rows for ``_snapshot_columns``, usually (key, engine value), sorted by changelog key."""
        return self._layout.rows()

    def _snapshot_columns(self, rows: Sequence[Any]) -> Columns:
        """Return rows of ``_snapshot_rows`` as changelog records."""
        return self._layout.logged(rows)

    def _size_of(self, entry: Any) -> int:
        """Return the size in bytes of the value in an in-memory entry."""
        data = self._values.all_to_bytes([self._layout.value_of(entry)])[0]
        return 0 if data is None else len(data)

    def _own_metadata(self) -> dict[str, bytes]:
        """Return the metadata that this kind of store saves in addition to the entries."""
        return self._layout.metadata()

    def _restore_own(self, carried: Mapping[str, bytes]) -> None:
        """Apply the metadata that ``_own_metadata`` has returned."""
        self._layout.restore_metadata(carried)

    def _forget(self) -> None:
        """Drop all data that is derived from the entries."""
        self._layout.forget()

    # Methods common to all kinds.

    def _refuse(self) -> None:
        """Count a record that is dropped as too old."""
        self.expired += 1
        if self.on_expired is not None:
            self.on_expired()

    @property
    def view(self) -> Any:
        """The object that processors and queries use: the store itself, or a view of it."""
        return self if self._view is None else self._view

    @view.setter
    def view(self, view: Any) -> None:
        self._view = view

    @property
    def type_name(self) -> str:
        """The type of the store in the tags of metrics, as in Kafka Streams, such as ``rocksdb-window``."""
        return f"{self._staged.engine.type_name}{self.spec.kind.type_suffix}"

    def properties(self) -> dict[str, int]:
        """Return current property values of the engine by metric name; may be called from any thread."""
        return self._staged.engine.properties()

    def statistics(self) -> Mapping[str, Statistic]:
        return self._staged.engine.statistics()

    def slot_of(self, key: Any) -> Any:
        """Return the slot of ``key``: a hashable value that is equal only for keys with equal bytes."""
        return self._keys.slot(key)

    def key_of(self, slot: Any) -> Any:
        """Return the key for a slot, which is the in-memory form of the key."""
        return self._keys.to_key(slot)

    def restore(self, block: Block, version: int = FIRST_VERSION) -> None:
        """Apply the changelog records in a block, without logging them again.

        Values of an earlier version of the topology are converted; ``version`` is that of records without a header.

        Raises:
            StoreError: a value cannot be converted.
        """
        if not len(block):
            return
        block = at_last_version(self.spec, block, version)
        self._push()
        self._repin(block)
        if self.spec.kind.keeps_headers:
            block = joined(block, self._pinned().keys() | self._version().keys())
        self.hot.forget_clean()
        self._restore_rows(block)

    def set_restoring(self, is_restoring: bool) -> None:
        """Enter or leave restore mode, in which reads are slow. Uncommitted writes are kept."""
        self._staged.engine.set_bulk(is_restoring)

    def drain_changes(self) -> Block | None:
        """Return the changelog records since the last call, or None if there are none or the store has no changelog."""
        self._push()
        columns = self._take_changes()
        if not columns[0] or not self.spec.has_changelog:
            return None
        return self._block(columns)

    def _take_changes(self) -> Columns:
        """Return and clear the changes for the changelog, as columns: keys, values and times."""
        changes = self._changes
        self._changes = []
        self._change_count = self._distinct_count = 0
        if not changes:
            return (), (), ()
        if len(changes) == 1:
            return changes[0]
        # Duplicates do not supersede each other if they are retained.
        return _joined(changes) if self.spec.retain_duplicates else _latest(changes)

    def _note(self, keys: Sequence[bytes], values: Sequence[bytes | None], times: Sequence[int]) -> None:
        """Add changes for the changelog; each key occurs at most once in ``keys``."""
        if not self.spec.has_changelog:
            return
        self._changes.append((keys, values, times))
        self._change_count += len(keys)
        may_shrink = len(self._changes) > 1 and not self.spec.retain_duplicates
        if may_shrink and self._change_count > 2 * self._distinct_count + _FEW_CHANGES:
            self._changes = [_latest(self._changes)]
            self._change_count = self._distinct_count = len(self._changes[0][0])

    def commit(self, metadata: Mapping[str, bytes]) -> None:
        """Write all changes since the last commit in one engine batch, and merge ``metadata`` into the metadata."""
        self._push()
        written = {FORMAT: self.own_format().encode(), **self._pinned(), **self._own_metadata(), **metadata}
        changed = {name: data for name, data in written.items() if self._metadata.get(name) != data}
        if not self._staged.has_writes and not changed:
            return
        self._staged.commit(changed)
        self._metadata.update(changed)
        self._weigh(self.hot.clean)
        self._resize_caches()

    def metadata(self) -> dict[str, bytes]:
        """Return the metadata as of the last commit, which is empty if the store is new."""
        return dict(self._metadata)

    def own_format(self) -> StoreFormat:
        """Return the store format that the spec declares; each commit saves it."""
        return StoreFormat.of(self.spec, is_logged=self._is_logged)

    @property
    def is_empty(self) -> bool:
        """Whether the store has no entries."""
        self._push()
        return not self._staged.has_entries()

    def approximate_num_entries(self) -> int:
        """Return the estimated number of entries, which is exact for in-memory stores."""
        self._push()
        return self._staged.count()

    @property
    def approximate_uncommitted_bytes(self) -> int:
        """The estimated size of uncommitted writes in bytes."""
        count = len(self.hot.dirty)
        if count >> _WEIGHED_EACH != self._weighed_at or (count and not self._value_bytes):
            self._weigh(self.hot.dirty)
            self._weighed_at = count >> _WEIGHED_EACH
        times = _WAITING_OBJECTS if self.hot.holds_objects else _WAITING_BYTES
        waiting = count * (_WAITING_ENTRY_BYTES + times * self._value_bytes)
        return self._staged.staged_bytes() + self._change_count * CHANGE_BYTES + waiting

    def memory_bytes(self) -> int:
        """Return the estimated memory use of the store in bytes, excluding memory shared with other stores."""
        read = len(self.hot.clean) * self._memory_entry_bytes
        return self._staged.engine.memory_bytes() + self.approximate_uncommitted_bytes + read

    @property
    def _memory_entry_bytes(self) -> int:
        times = _HELD_OBJECTS if self.hot.holds_objects else _HELD_BYTES
        return _HELD_ENTRY_BYTES + times * self._value_bytes

    def _weigh(self, entries: dict[Any, Any]) -> None:
        """Update the estimated value size from the value that was written last."""
        entry = next(reversed(entries.values()), None)
        if entry is None:
            return
        try:
            size = self._size_of(entry)
        except SerializationError:
            return  # Reported when the value is written.
        before = self._value_bytes
        self._value_bytes = size if not before else before + (size - before) // 4

    def _resize_caches(self) -> None:
        """Size the read cache, which has two generations, by the store's current share of the memory budget."""
        left = self._layout.resize(self._memory.read_entries(2 * self._memory_entry_bytes))
        if self.hot.max_clean:
            self.hot.max_clean = left

    def snapshot_blocks(self) -> Iterator[Block]:
        """Yield the whole content as changelog records, sorted by key bytes; versions of a key are sorted by time.

        Uncommitted writes are included. The content is read lazily, so the store must not be written to during
        the iteration.
        """
        self._push()
        rows = self._snapshot_rows()
        count = _FIRST_SNAPSHOT_ROWS
        while some := list(islice(rows, count)):
            columns = self._snapshot_columns(some)
            yield self._block(columns)
            size = bytes_in(columns[1])
            count = max(1, min(SNAPSHOT_ROWS, _SNAPSHOT_BYTES * len(some) // max(size, 1)))

    def carried(self) -> dict[str, bytes]:
        """Return the metadata that a snapshot includes: pinned types, headers, stream time, and order of use."""
        headers = {HEADER_PREFIX + name: content or b"" for name, content in self.spec.changelog_headers}
        return {**self._pinned(), **self._version(), **headers, **self._own_metadata()}

    def restore_carried(self, carried: Mapping[str, bytes]) -> None:
        """Apply the result of ``carried`` after the blocks of the same snapshot; the next commit saves it."""
        self._push()
        self._pin(carried.get(KEY_TYPE), carried.get(VALUE_TYPE))
        self._resolve()
        self._restore_own(carried)

    def close(self) -> None:
        """Close the engine. Uncommitted writes are lost."""
        if self._is_closed:
            return
        self._is_closed = True
        self.hot.close(self.spec.name)
        self._forget()
        self._memory.dismiss()
        self._staged.engine.close()

    # Pinned types.

    def _pin(self, key_type: bytes | None, value_type: bytes | None) -> None:
        for serde, name in ((self.spec.key_serde, key_type), (self.spec.value_serde, value_type)):
            if name is not None and isinstance(serde, PinnedSerde):
                serde.pin(name.decode())

    def _pinned(self) -> dict[str, bytes]:
        names = ((KEY_TYPE, self.spec.key_serde), (VALUE_TYPE, self.spec.value_serde))
        return {entry: name.encode() for entry, serde in names if (name := pinned_name(serde)) is not None}

    def _version(self) -> dict[str, bytes]:
        version = version_of(self.spec.migrations)
        return {} if version == FIRST_VERSION else {VERSION_HEADER: str(version).encode()}

    def _repin(self, block: Block) -> None:
        if block.headers is None:
            return
        key_type = value_type = None
        for headers in block.headers:
            for name, content in headers:
                if name == KEY_TYPE:
                    key_type = content
                elif name == VALUE_TYPE:
                    value_type = content
        self._pin(key_type, value_type)
        self._resolve()

    def _resolve(self) -> None:
        self._keys.resolve()
        self._values.resolve()

    def _block(self, columns: Columns) -> Block:
        keys, values, times = columns
        pinned: Headers = tuple({**self._pinned(), **self._version()}.items())
        headers = [pinned] * len(keys) if pinned else None
        if self.spec.kind.keeps_headers:
            values, of_values = split(values)
            headers = [headers_of_value + pinned for headers_of_value in of_values]
        if own := self.spec.changelog_headers:
            headers = [pinned if value is None else own + pinned for value in values]
        return Block(keys, values, times, headers, range(len(keys)))


def entries_with_headers(block: Block) -> int:
    """Return how many changelog records with a value have headers of their entries (KIP-1271).

    Kafka Streams gives a deletion the headers of the record that caused it, which no store keeps.
    """
    rows = zip(block.values, block.headers or (), strict=False)
    return sum(value is not None and any(name not in _OWN_HEADERS for name, _ in headers) for value, headers in rows)


def _joined(changes: Sequence[Columns]) -> Columns:
    """Return several columns of changes, joined into one."""
    keys, values, times = ([item for column in columns for item in column] for columns in zip(*changes, strict=True))
    return keys, values, times


def _latest(changes: Sequence[Columns]) -> Columns:
    """Return only the latest change of each key, in the order of these changes."""
    latest: dict[bytes, tuple[bytes | None, int]] = {}
    for keys, values, times in changes:
        if latest:
            for key in keys:
                latest.pop(key, None)
        latest.update(zip(keys, zip(values, times, strict=True), strict=True))
    kept_values, kept_times = zip(*latest.values(), strict=True)
    return tuple(latest), kept_values, kept_times


def time_bytes(time_ms: int) -> bytes:
    """Return a time as a signed 64-bit big-endian integer."""
    return time_ms.to_bytes(8, "big", signed=True)


def time_of(data: bytes) -> int:
    """Return the time that was encoded by ``time_bytes``."""
    return int.from_bytes(data, "big", signed=True)


def check_restored(store: Store) -> None:
    """Check what was restored from a changelog, before it is committed.

    Raises:
        StoreError: a window does not exist in the calendar of the store.
    """
    store._layout.check_restored()
