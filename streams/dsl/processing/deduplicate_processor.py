"""Deduplication: of the records with the same id in an interval of event time, only the first is forwarded (KIP-655).

The store contains the time of every forwarded record, by id, for the interval plus the grace period of stream time.
Duplicates are not stored, so an interval always starts at a forwarded record.  A record without an id is forwarded.  So
is a record that is older than the retention of the store, unless the store still contains a record with its id within
the interval.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar

from attrs import frozen

from streams.core.blocks.marks import Format, marked
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import Headers
from streams.core.errors import SerializationError
from streams.core.metrics import DropReason
from streams.core.serdes.serdes import BOOLEAN, Serde
from streams.core.user_code import CheckedFunction
from streams.dsl.processing.drops import dropper
from streams.dsl.processing.portable import portable
from streams.state import WINDOW, StoreSpec
from streams.topology import NodeContext, Process, StoreNaming

KEYED_ID = Format("key and id", "D", 1)

_LENGTH = Struct(">i")


@frozen
class Deduplicate:
    """Forwards a record unless a record with the same id, at most ``within_ms`` earlier or later, was forwarded.

    Without ``by``, the id is the key.  For a stream without keys it is ``by(key, value)``; with ``is_per_key``, it is
    the pair of the key and ``by(key, value)``.
    """

    store_naming: ClassVar = StoreNaming("name", ("-store",))

    store: str
    within_ms: int
    by: Callable[[Any, Any], Any] | None = None
    is_per_key: bool = True

    @property
    def periods(self) -> dict[str, int]:
        """The declared interval, in milliseconds."""
        return {"within": self.within_ms}

    def id_of(self, key: Any, value: Any) -> Any:
        """Return the id of a record, or None if the record has no id."""
        if self.by is None:
            return key
        record_id = self.by(key, value)
        if not self.is_per_key or record_id is None:
            return record_id
        return None if key is None else (key, record_id)

    def bind(self, context: NodeContext) -> Process:
        store = context.stores[self.store]
        near = store.rows_in_range
        put = store.put
        bounds = store.bounds
        forward = context.output.forward
        drop = dropper(context)
        within_ms = self.within_ms
        has_by = self.by is not None
        is_per_key = self.is_per_key
        by = _no_id if self.by is None else CheckedFunction(self.by, f"node {context.node!r}")

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            record_id = key
            if has_by and (key is not None or not is_per_key):
                record_id = by(key, value)
                if is_per_key and record_id is not None:
                    record_id = (key, record_id)
            if record_id is not None:
                first_ms = timestamp_ms - within_ms
                if near(record_id, first_ms if first_ms > 0 else 0, timestamp_ms + within_ms):
                    drop(DropReason.DUPLICATE, key, value, timestamp_ms, headers)
                    return
                if timestamp_ms >= bounds.visible_from_ms:
                    put(record_id, True, timestamp_ms)
            forward(key, value, timestamp_ms, headers)

        return process


def _no_id(key: Any, value: Any) -> Any:
    return None


@frozen
class IdPartitioner:
    """Selects the partition of a record without a key by its id, so that one task reads all records with equal ids."""

    by: Callable[[Any, Any], Any]
    #: Returns the serde of the ids; called when the topology is complete.
    id_serde: Callable[[], Serde[Any]]

    def __call__(self, topic: str, key: Any, value: Any, partitions: int) -> int | None:
        """Return the partition for the record's id, or None, which means the default partition, if it has no id."""
        data = self.id_serde().serialize(self.by(key, value))
        return None if data is None else partition_for(data, partitions)


def deduplication_store(
    name: str,
    id_serde: Serde[Any],
    *,
    kept_ms: int,
    is_persistent: bool | None = None,
    has_changelog: bool = True,
) -> StoreSpec:
    """Return the spec of a deduplication store, which keeps ids for ``kept_ms`` of stream time."""
    return StoreSpec(
        name,
        WINDOW,
        id_serde,
        BOOLEAN,
        is_persistent=is_persistent,
        has_caching=False,
        has_changelog=has_changelog,
        retention_ms=kept_ms + 1,
        window_size_ms=1,
        is_logged_last=True,
    )


def keyed_id_serde(key_serde: Serde[Any], id_serde: Serde[Any]) -> Serde[Any]:
    """Return the serde for (key, id): a format mark, the length of the key, the key and the id."""
    (write_key, read_key), (write_id, read_id) = portable(key_serde), portable(id_serde)

    def write(pair: tuple[Any, Any]) -> bytes:
        key = write_key(pair[0])
        record_id = write_id(pair[1])
        if key is None or record_id is None:
            raise SerializationError(f"serde {(key_serde if key is None else id_serde).name!r} made no bytes of an id")
        return _LENGTH.pack(len(key)) + key + record_id

    def read(data: bytes, start: int) -> tuple[Any, Any]:
        (length,) = _LENGTH.unpack_from(data, start)
        start += _LENGTH.size
        return read_key(data[start : start + length]), read_id(data[start + length :])

    is_immutable = key_serde.is_immutable and id_serde.is_immutable
    return marked(KEYED_ID, f"{key_serde.name}:{id_serde.name}", write, read, is_immutable=is_immutable)
