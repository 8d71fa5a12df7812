"""Store entries as Arrow tables.

The module imports only ``core``, ``files`` and ``state`` from outside ``runtime``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streams.core.serdes.serdes import PinnedSerde, Serde
from streams.runtime.stores.store_queries import StoreEntry
from streams.state import Family, StoreSpec

if TYPE_CHECKING:
    import pyarrow as pa


def table_of(spec: StoreSpec, entries: Sequence[StoreEntry]) -> "pa.Table":
    """Convert entries of a store to an Arrow table.

    Depending on the kind of store, the columns are: key; window_start and window_end; value; timestamp, or valid_from
    and valid_to.  Times are UTC timestamps in milliseconds.
    """
    import pyarrow as pa

    at = pa.timestamp("ms", "UTC")
    columns: dict[str, pa.Array] = {"key": _column(spec.key_serde, [entry.key for entry in entries])}
    if spec.kind.family is not Family.KEYS:
        columns["window_start"] = pa.array([entry.start_ms for entry in entries], at)
        # The end of an unlimited window is after the year 9999, the limit of ``datetime``, so it becomes null.
        columns["window_end"] = pa.array([_within(entry.end_ms) for entry in entries], at)
    columns["value"] = _column(spec.shown_serde, [entry.value for entry in entries])
    times = [entry.timestamp_ms for entry in entries]
    if spec.kind.has_versions:
        columns["valid_from"] = pa.array(times, at)
        columns["valid_to"] = pa.array([entry.valid_to_ms for entry in entries], at)
    elif spec.kind.has_timestamps:
        columns["timestamp"] = pa.array(times, at)
    return pa.table(columns)


def arrow_stream(table: "pa.Table") -> bytes:
    """Serialize a table in the Arrow IPC streaming format."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _column(serde: Serde[Any], values: Sequence[Any]) -> "pa.Array":

    from streams.values import arrow_array, arrow_column

    data = serde.serialize_all(values)
    if isinstance(serde, PinnedSerde):
        serde = serde.settled or serde
    column = arrow_column(serde)
    return arrow_array(column.values(data), column.type, "value")


#: The last millisecond of the year 9999.
_LAST_MS = 253_402_300_799_999


def _within(time_ms: int | None) -> int | None:
    return None if time_ms is None or time_ms > _LAST_MS else time_ms
