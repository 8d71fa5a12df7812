"""The RocksDB engine: one database per store directory.  Only this module uses rocksdict.

Batches, including their metadata, are written to one column family without a write-ahead log: the changelog
replaces it. Memtables are flushed as a whole and in order, so after a crash the database contains a consistent prefix
of the batches. The changelog positions in the database determine where restoring starts (KIP-1035).
"""

import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from attrs import define, field

from streams.core.errors import StoreError
from streams.core.folders import full_disk
from streams.state.engine.engines import EngineBatch, Statistic
from streams.state.loops import prefixed

#: Exhausts an iterator without a Python frame per item.
_exhaust = deque[Any](maxlen=0).extend
#: Namespaces are stored as 8 bytes with the sign bit flipped, so that byte order is their order.
_SIGN = 1 << 63
#: A prefix that sorts after all namespaces.
_METADATA_PREFIX = b"\xff" * 8
_PREFIX_LENGTH = 8

#: RocksDB properties that are reported as metrics of the same names.
_PROPERTIES = (
    *("num-entries-active-mem-table", "num-deletes-active-mem-table", "num-entries-imm-mem-tables"),
    *("num-deletes-imm-mem-tables", "num-immutable-mem-table", "cur-size-active-mem-table"),
    *("cur-size-all-mem-tables", "size-all-mem-tables", "mem-table-flush-pending", "num-running-flushes"),
    *("compaction-pending", "num-running-compactions", "estimate-pending-compaction-bytes"),
    *("total-sst-files-size", "live-sst-files-size", "num-live-versions", "block-cache-capacity"),
    *("block-cache-usage", "block-cache-pinned-usage", "estimate-num-keys", "estimate-table-readers-mem"),
    "background-errors",
)

#: A line of RocksDB's statistics: a counter, or a histogram with its largest value, count and sum.
_STATISTIC = re.compile(r"^rocksdb\.(\S+)(?: P50 .* P100 : (\S+))? COUNT : (\d+)(?: SUM : (\d+))?$", re.MULTILINE)

#: Number of entries that the first seek and each later seek of a scan reads.
_FIRST_CHUNK = 64
_LATER_CHUNK = 1024

#: Memory in bytes of a database that is opened without a shared budget.
_ALONE_BYTES = 64 * 1024 * 1024
#: Bounds in bytes on the memory that all databases share, and on the memtable of one database.
_LEAST_BYTES = 1024 * 1024
_LEAST_WRITE_BUFFER_BYTES = 64 * 1024
_MOST_WRITE_BUFFER_BYTES = 16 * 1024 * 1024
_BULK_WRITE_BUFFER_BYTES = 4 * 1024 * 1024
#: One part in this many of the shared memory is for memtables.
_WRITE_BUFFER_SHARE = 3
_WRITE_BUFFERS = 3
#: Allocation unit of a memtable. It is small because there may be a thousand memtables with one entry each.
_ARENA_BLOCK_BYTES = 16 * 1024
_BLOCK_BYTES = 4096


@define(eq=False)
class RocksMemory:
    """A block cache that several databases share, and that also accounts for their memtables.

    If the memtables exceed their share of the cache, the active memtable is flushed.
    """

    write_buffer_bytes: int
    cache: Any
    write_buffer_manager: Any
    #: Whether databases collect statistics, which slows reads and writes.
    has_statistics: bool = False

    @classmethod
    def of(cls, max_bytes: int, *, has_statistics: bool = False) -> "RocksMemory":
        """Create shared memory of the given size in bytes, at least 1 MiB."""
        import rocksdict

        size = max(max_bytes, _LEAST_BYTES)
        cache: Any = rocksdict.Cache(size)
        write_bytes = size // _WRITE_BUFFER_SHARE
        # Stalls are off: a writer would wait forever for the memtables of other databases, which are never flushed.
        manager = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(write_bytes, False, cache)
        of_one = min(max(write_bytes // _WRITE_BUFFERS, _LEAST_WRITE_BUFFER_BYTES), _MOST_WRITE_BUFFER_BYTES)
        return cls(of_one, cache, manager, has_statistics)

    @property
    def is_short(self) -> bool:
        """Whether the memtables exceed their share of the memory because flushes are slower than writes."""
        return bool(self.write_buffer_manager.get_usage() > self.write_buffer_manager.get_buffer_size())


def _options(rocksdict: Any, memory: RocksMemory, *, is_bulk: bool) -> Any:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    if memory.has_statistics:
        options.enable_statistics()
    options.set_write_buffer_size(memory.write_buffer_bytes)
    options.set_max_write_buffer_number(_WRITE_BUFFERS)
    options.set_write_buffer_manager(memory.write_buffer_manager)
    options.set_arena_block_size(_ARENA_BLOCK_BYTES)
    if is_bulk:
        # Memtables are sorted only at the flush, by another thread, so that a write takes a quarter of the time.
        # Memtables are small, to shorten the wait for the last flush.
        options.set_write_buffer_size(min(memory.write_buffer_bytes, _BULK_WRITE_BUFFER_BYTES))
        options.set_memtable_factory(rocksdict.MemtableFactory.vector())
        options.set_allow_concurrent_memtable_write(False)
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    options.set_compression_type(rocksdict.DBCompressionType.none())
    options.set_keep_log_file_num(1)
    options.set_max_open_files(256)
    options.set_manifest_preallocation_size(64 * 1024)
    # An application may open a thousand databases at startup, and each should open within milliseconds: no
    # threads for opening files, and no persisted statistics.
    options.set_max_file_opening_threads(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    table = rocksdict.BlockBasedOptions()
    table.set_block_size(_BLOCK_BYTES)
    table.set_bloom_filter(10, False)
    table.set_block_cache(memory.cache)
    # Indexes and filters are cached in partitions: the whole filter of a large file exceeds a shard of the cache
    # and would be read again for each key.
    table.set_cache_index_and_filter_blocks(True)
    table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(_BLOCK_BYTES)
    table.set_pin_top_level_index_and_filter(True)
    options.set_block_based_table_factory(table)
    return options


def _opened(rocksdict: Any, path: Path, memory: RocksMemory, *, is_bulk: bool) -> tuple[Any, Any]:
    """Open the database at ``path``; return it, and the options from which its statistics are read."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = _options(rocksdict, memory, is_bulk=is_bulk)
        # The options are also set for the column family: an existing column family would otherwise keep the
        # options with which it was created, including a cache of its own.
        return rocksdict.Rdict(str(path), options=options, column_families={"default": options}), options
    except Exception as error:  # rocksdict raises plain Exception
        raise StoreError(
            f"state store directory {path} cannot be opened: {error}; "
            "if it is damaged, delete it: the store is restored from its changelog"
        ) from error


def _prefix(namespace: int) -> bytes:
    return (namespace + _SIGN).to_bytes(_PREFIX_LENGTH, "big")


@define(eq=False)
class RocksEngine:
    """An on-disk engine with one RocksDB database."""

    type_name = "rocksdb"

    path: Path
    _rocksdict: Any
    _db: Any
    _options: Any
    _write_options: Any
    _memory: RocksMemory
    _is_bulk: bool = False
    _namespaces: set[int] = field(factory=set)
    #: The write batch of the ``load`` calls since the last ``apply``, or None if there were none.
    _loaded: Any = None

    @classmethod
    def open(cls, path: Path, memory: RocksMemory | None = None) -> "RocksEngine":
        """Open the database at ``path``, creating it if it does not exist.

        Raises:
            StoreError: the directory is corrupted or locked, or cannot be created.
        """
        import rocksdict

        memory = memory or RocksMemory.of(_ALONE_BYTES)
        database, options = _opened(rocksdict, path, memory, is_bulk=False)
        write_options: Any = rocksdict.WriteOptions()
        write_options.disable_wal = True  # The changelog replaces it.
        engine = cls(path, rocksdict, database, options, write_options, memory)
        engine._namespaces = set(engine._find_namespaces())
        return engine

    def _find_namespaces(self) -> Iterator[int]:
        cursor = self._db.iter()
        cursor.seek_to_first()
        while cursor.valid():
            prefix = cursor.key()[:_PREFIX_LENGTH]
            if prefix == _METADATA_PREFIX:
                return
            namespace = int.from_bytes(prefix, "big") - _SIGN
            yield namespace
            cursor.seek(_prefix(namespace + 1))

    def get(self, namespace: int, key: bytes) -> bytes | None:
        if namespace not in self._namespaces:
            return None
        try:
            value: bytes | None = self._db.get(_prefix(namespace) + key)
        except Exception as error:
            raise self._failed("read", error) from error
        return value

    def scan(
        self, namespace: int, low: bytes | None, high: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a range, which are read in chunks; the first chunk is read immediately.

        No database iterator stays open between chunks, because it would keep the directory locked.
        """
        if namespace not in self._namespaces:
            return iter(())
        prefix = _prefix(namespace)
        first = prefix + (low or b"")
        last = _prefix(namespace + 1) if high is None else prefix + high
        if first >= last:
            return iter(())
        chunk = self._chunk(first, last, reverse, _FIRST_CHUNK)
        if len(chunk) < _FIRST_CHUNK:
            return iter([(key[_PREFIX_LENGTH:], value) for key, value in chunk])
        return self._chunks(chunk, first, last, reverse)

    def _chunks(
        self, chunk: list[tuple[bytes, bytes]], first: bytes, last: bytes, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        size = _FIRST_CHUNK
        while True:
            for key, value in chunk:
                yield key[_PREFIX_LENGTH:], value
            if len(chunk) < size:
                return
            if reverse:
                last = chunk[-1][0]
            else:
                first = chunk[-1][0] + b"\x00"
            size = _LATER_CHUNK
            chunk = self._chunk(first, last, reverse, size)

    def _chunk(self, first: bytes, last: bytes, reverse: bool, size: int) -> list[tuple[bytes, bytes]]:
        """Read up to ``size`` entries with ``first <= key < last``."""
        try:
            items = self._db.items(backwards=reverse, from_key=last if reverse else first)
            if not reverse:
                rows = list(islice(items, size))
                if rows and rows[-1][0] >= last:
                    rows = [row for row in rows if row[0] < last]
                return rows
            # A backward scan starts at the upper bound itself, which is exclusive.
            rows = list(islice(items, size + 1))
            return [row for row in rows if first <= row[0] < last][:size]
        except Exception as error:
            raise self._failed("read", error) from error

    def apply(self, batch: EngineBatch) -> None:
        """Write ``batch`` as one RocksDB write batch."""
        rows = self._loaded or self._rocksdict.WriteBatch(raw_mode=True)
        self._loaded = None
        for namespace in batch.dropped:
            rows.delete_range(_prefix(namespace), _prefix(namespace + 1))
            self._namespaces.discard(namespace)
        for namespace, writes in batch.writes.items():
            self._write(rows, namespace, writes, writes.values())
        for name, content in batch.metadata.items():
            rows.put(_METADATA_PREFIX + name.encode(), content)
        try:
            self._db.write(rows, self._write_options)
            if self._memory.is_short:
                self._db.flush()
        except Exception as error:
            raise self._failed("write", error) from error

    def load(self, namespace: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> int | None:
        """Add writes directly to the next write batch in bulk mode; return their size, or None in normal mode."""
        if not self._is_bulk:
            return None
        if self._loaded is None:
            self._loaded = self._rocksdict.WriteBatch(raw_mode=True)
        before: int = self._loaded.size_in_bytes()
        self._write(self._loaded, namespace, keys, values)
        return int(self._loaded.size_in_bytes()) - before

    def _write(self, rows: Any, namespace: int, keys: Collection[bytes], values: Collection[bytes | None]) -> None:
        put = rows.put
        delete = rows.delete
        stored = prefixed(_prefix(namespace), keys)
        self._namespaces.add(namespace)
        if None not in values:
            _exhaust(map(put, stored, values))
            return
        for key, value in zip(stored, values, strict=True):
            if value is None:
                delete(key)
            else:
                put(key, value)

    def metadata(self) -> dict[str, bytes]:
        """Return the metadata in the database, merged from all applied batches."""
        try:
            rows = list(self._db.items(from_key=_METADATA_PREFIX))
        except Exception as error:
            raise self._failed("read", error) from error
        return {key[_PREFIX_LENGTH:].decode(): value for key, value in rows}

    def namespaces(self) -> list[int]:
        return sorted(self._namespaces)

    def approximate_count(self) -> int:
        """Return RocksDB's estimate of the number of entries, excluding metadata."""
        estimate = int(self._db.property_int_value("rocksdb.estimate-num-keys") or 0)
        return max(0, estimate - len(self.metadata()))

    def properties(self) -> dict[str, int]:
        """Return RocksDB's properties by metric name, or nothing if the database is closed."""
        try:
            numbers = {name: self._db.property_int_value(f"rocksdb.{name}") for name in _PROPERTIES}
        except self._rocksdict.DbClosedError:
            return {}
        return {name: value for name, value in numbers.items() if value is not None}

    def statistics(self) -> Mapping[str, Statistic]:
        """Return RocksDB's statistics since the database was opened; empty if none are collected."""
        if not self._memory.has_statistics:
            return {}
        return {
            name: Statistic(int(count), int(total or 0), float(highest or 0))
            for name, highest, count, total in _STATISTIC.findall(self._options.get_statistics())
        }

    def memory_bytes(self) -> int:
        """Return the memory use of memtables, table readers and block cache in bytes."""
        names = ("rocksdb.cur-size-all-mem-tables", "rocksdb.estimate-table-readers-mem", "rocksdb.block-cache-usage")
        return sum(int(self._db.property_int_value(name) or 0) for name in names)

    def set_bulk(self, is_bulk: bool) -> None:
        """Reopen the database with the memtables of the other mode; reads are slow in bulk mode."""
        if is_bulk is not self._is_bulk:
            self.close()
            self._db, self._options = _opened(self._rocksdict, self.path, self._memory, is_bulk=is_bulk)
            self._is_bulk = is_bulk

    def flush(self) -> None:
        """Make all applied writes durable."""
        self._db.flush()

    def close(self) -> None:
        """Flush and close the database; its directory can be opened again immediately."""
        try:
            self._db.flush()
            self._db.close()
        except self._rocksdict.DbClosedError:
            pass
        except Exception as error:
            raise self._failed("close", error) from error

    def _failed(self, action: str, error: Exception) -> StoreError:
        return StoreError(f"state store directory {self.path}: {action} failed: {full_disk(error, self.path) or error}")
