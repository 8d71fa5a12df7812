"""Columns of output topics: records as rows of Arrow tables, in two forms.

The record form is that of a record: a windowed key is a struct, and times are epoch milliseconds, as in files and
inputs, so a reader needs no time zone.  The table form is for data lakes: a windowed key is three columns, and times
are timestamps in UTC.
"""

from typing import Any

from attrs import frozen

from streams.core.records import Block
from streams.core.serdes import WindowedSerde
from streams.core.topic import Topic
from streams.files import arrow_column
from streams.replay.storage.segments import headers_array, schema
from streams.topology import SinkNode, Topology

#: The last millisecond of the year 9999, the limit of timestamps of most tables.
_LAST_MS = 253_402_300_799_999


def output_topic(topology: Topology, name: str) -> Topic[Any, Any] | None:
    """Return an output topic of the topology with its serdes, None if they are not known."""
    declared = topology.topics.get(name)
    if declared is not None:
        return declared
    for sink in topology.sinks():
        if isinstance(sink, SinkNode) and sink.topic == name:
            return Topic(name, key=sink.key_serde, value=sink.value_serde)
    return None


@frozen
class OutputColumns:
    """The columns of an output topic: ``key``, ``value``, ``timestamp``, ``headers``, ``partition`` and ``offset``.

    ``as_table`` selects the table form, in which a windowed key is ``key``, ``window_start`` and ``window_end``.
    """

    topic: Topic[Any, Any] | None
    as_table: bool = False

    @property
    def schema(self) -> Any:
        """The Arrow schema."""
        import pyarrow as pa

        key = arrow_column(self.topic.key_serde if self.topic else None).type
        value = arrow_column(self.topic.value_serde if self.topic else None).type
        at = pa.timestamp("us", "UTC")
        keys = {"key": key}
        if self._splits_windows:
            keys = {"key": key.field("key").type, "window_start": at, "window_end": at}
        rest = {"headers": schema().field("headers").type, "partition": pa.int32(), "offset": pa.int64()}
        return pa.schema({**keys, "value": value, "timestamp": at if self.as_table else pa.int64(), **rest})

    @property
    def _splits_windows(self) -> bool:
        return self.as_table and self.topic is not None and isinstance(self.topic.key_serde, WindowedSerde)

    def batch(self, number: int, block: Block) -> Any:
        """Return records of partition ``number`` as an Arrow batch."""
        import pyarrow as pa

        columns = self.schema
        key = arrow_column(self.topic.key_serde if self.topic else None)
        value = arrow_column(self.topic.value_serde if self.topic else None)
        size = len(block)
        keys = [pa.array(key.values(block.keys), key.type)]
        if self._splits_windows:
            plain, start, end = keys[0].flatten()
            keys = [plain, _timestamps(start), _timestamps(end)]
        times = pa.array(list(block.timestamps), pa.int64())
        arrays = [
            *keys,
            pa.array(value.values(block.values), value.type),
            _timestamps(times) if self.as_table else times,
            headers_array(block.headers if block.headers is not None else [()] * size, size),
            pa.array([number] * size, pa.int32()),
            pa.array(list(block.offsets), pa.int64()),
        ]
        return pa.record_batch(arrays, schema=columns)


def _timestamps(milliseconds: Any) -> Any:
    """Convert epoch milliseconds to timestamps in microseconds; an unlimited window has no end."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pc.if_else(pc.less_equal(milliseconds, _LAST_MS), milliseconds, pa.scalar(None, pa.int64()))
    return known.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
