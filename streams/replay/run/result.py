"""The result of a replay: outputs, contents of stores, counters, and the snapshot."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import field, frozen

from streams.core.config import StreamsConfig
from streams.core.errors import StreamsError
from streams.core.metrics import Dropped, Tally, dropped, dropped_by_node
from streams.core.records import Block, Record
from streams.core.topic import Topic, TopicLike, topic_name
from streams.files import arrow_column
from streams.replay.calls.outputs import counts, output_topics, read_topic
from streams.replay.calls.stores import open_contents
from streams.replay.handover.snapshot import Snapshot
from streams.replay.run.session import ReplaySession
from streams.replay.storage.places import Place
from streams.replay.storage.segments import headers_array, schema
from streams.runtime import Late, late_of
from streams.topology import SinkNode, Topology


def output_topic(topology: Topology, name: str) -> Topic[Any, Any] | None:
    """Return an output topic with its serdes, which are None if they are not known."""
    declared = topology.topics.get(name)
    if declared is not None:
        return declared
    for sink in topology.sinks():
        if isinstance(sink, SinkNode) and sink.topic == name:
            return Topic(name, key=sink.key_serde, value=sink.value_serde)
    return None


@frozen(eq=False)
class Outputs(Mapping[TopicLike, Any]):
    """The output topics, by ``Topic`` or name.

    Each topic is a table with the columns key, value, timestamp, headers, partition and offset: a Spark
    DataFrame with executor "spark", otherwise a ``pyarrow.Table``.
    """

    _session: ReplaySession
    _table: Callable[[str], Any]

    def __getitem__(self, topic: TopicLike) -> Any:
        name = topic_name(topic, "outputs of a replay")
        if name not in set(self):
            raise StreamsError(f"the replay has no output topic {name!r}; it has {', '.join(map(str, self)) or 'none'}")
        return self._table(name)

    def __iter__(self) -> Iterator[str]:
        sinks = {sink.topic for sink in self._session.topology.sinks() if sink.topic is not None}
        return iter(
            sorted((sinks - set(self._session.topology.internal_topics)) | set(output_topics(self._session.outputs)))
        )

    def __len__(self) -> int:
        return len(list(iter(self)))


@frozen(eq=False)
class StoreContents(Mapping[Any, Any]):
    """The final contents of one store over all partitions, as a mapping that is read on first access."""

    name: str
    _session: ReplaySession
    _entries: dict[Any, Any] = field(factory=dict, init=False)
    _is_read: list[bool] = field(factory=list, init=False)

    def blocks(self) -> Iterator[tuple[int, Block]]:
        """Yield the contents as (partition, changelog records), sorted by key."""
        yield from ((number, block) for number, blocks in self._parts() for block in blocks)

    def __getitem__(self, key: Any) -> Any:
        return self._all()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"StoreContents({self.name!r}, {len(self):,} entries)"

    def _parts(self) -> Iterator[tuple[int, Iterator[Block]]]:
        state = self._session.state
        from streams.replay.storage.segments import ExtentReader

        for task, refs in sorted(state.stores.items()):
            if self.name in refs:
                yield task.partition, ExtentReader(self._session.root).blocks(refs[self.name].extents)
        if self.name in state.global_stores:
            yield 0, ExtentReader(self._session.root).blocks(state.global_stores[self.name].extents)

    def _all(self) -> dict[Any, Any]:
        if not self._is_read:
            self._is_read.append(True)
            state = self._session.state
            topology = self._session.topology
            refs = [found[self.name] for _, found in sorted(state.stores.items()) if self.name in found]
            spec = topology.stores.get(self.name)
            if spec is None:
                spec = topology.global_stores[self.name].spec
                refs = [state.global_stores[self.name]]
            for ref in refs:
                self._entries.update(open_contents(spec, ref, self._session.root))
        return self._entries


@frozen(eq=False)
class Stores(Mapping[str, StoreContents]):
    """The state stores by name."""

    _session: ReplaySession

    def __getitem__(self, name: str) -> StoreContents:
        if name not in set(self):
            raise StreamsError(f"the topology has no store {name!r}; it has {', '.join(self) or 'none'}")
        return StoreContents(name, self._session)

    def __iter__(self) -> Iterator[str]:
        topology = self._session.topology
        return iter(sorted({*topology.stores, *topology.global_stores}))

    def __len__(self) -> int:
        return len(list(iter(self)))


@frozen(eq=False)
class ReplayResult:
    """The result of a replay.

    ``outputs`` maps topics to tables, ``stores`` maps names to contents.  The result is a context manager: a
    temporary folder is removed when the result is closed, or when the process exits.
    """

    session: ReplaySession = field(repr=False)
    outputs: Outputs = field(repr=False)
    stores: Stores = field(repr=False)
    _close: Callable[[], None] = field(repr=False, default=lambda: None)

    @property
    def config(self) -> StreamsConfig:
        """The settings of the application."""
        return self.session.config

    @property
    def slices(self) -> int:
        """Number of slices, including slices of earlier runs; 1 without slices."""
        return max(1, self.session.slices_done)

    @property
    def slices_skipped(self) -> int:
        """Number of slices that earlier runs had finished."""
        return self.session.slices_skipped

    @property
    def records(self) -> Mapping[str, int]:
        """Number of records of each output topic."""
        found = counts(self.session.outputs)
        return {name: found.get(name, 0) for name in self.outputs}

    @property
    def records_in(self) -> int:
        """Number of records that tasks read in this run, including repartition topics."""
        return sum(report.records_in for _, _, report in self.session.reports)

    @property
    def dropped(self) -> dict[str, int]:
        """Number of dropped records, by node."""
        return dropped_by_node(self.drops())

    def drops(self) -> list[Dropped]:
        """Return dropped records by node and reason: their count and the first such record."""
        return dropped(self._tallies, self.session.state.examples)

    @property
    def late(self) -> list[Late]:
        """The dropped late records by node, with their share and how far history is out of order."""
        return late_of(self.session.topology, self._tallies)

    @property
    def _tallies(self) -> Mapping[Tally, int]:
        session = self.session
        return {**session.state.counters, **session.global_counters}

    def read(self, topic: TopicLike) -> Iterator[tuple[int, Block]]:
        """Yield the records of an output topic as (partition, block), partition by partition, by offset."""
        return read_topic(self.session.root, self.session.outputs, topic_name(topic, "read()"))

    def rows(self, topic: TopicLike) -> list[Record[Any, Any]]:
        """Return the records of an output topic as objects, partition by partition.

        Raises:
            StreamsError: the serdes of the topic are not known.
        """
        name = topic_name(topic, "read()")
        declared = topic if isinstance(topic, Topic) else output_topic(self.session.topology, name)
        if declared is None:
            raise StreamsError(f"topic {name!r} is not declared; pass the Topic")
        result: list[Record[Any, Any]] = []
        for _, block in self.read(name):
            keys = declared.key_serde.deserialize_all(block.keys)
            values = declared.value_serde.deserialize_all(block.values)
            headers = block.headers or [()] * len(block)
            result += map(Record, keys, values, block.timestamps, headers)
        return result

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the final state, which its ``save`` method writes to a folder.

        Raises:
            ReplayError: open windows were flushed at the end.
        """
        return self.session.snapshot()

    def save(self, folder: str | os.PathLike[str], *, with_outputs: bool = True) -> Snapshot:
        """Save a snapshot in a folder, from which ``streams run --from-snapshot`` continues live.

        Raises:
            ReplayError: open windows were flushed at the end, or the folder cannot be written.
        """
        return self.session.snapshot().save(Place(os.fspath(folder)), with_outputs=with_outputs)

    def __repr__(self) -> str:
        written = ", ".join(f"{count:,} records of {name}" for name, count in self.records.items())
        return f"ReplayResult({self.config.application_id}: {written or 'no outputs'})"

    def close(self) -> None:
        """Remove the temporary folder."""
        self._close()

    def __enter__(self) -> "ReplayResult":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def arrow_table(session: ReplaySession, name: str) -> Any:
    """Return an output topic as a ``pyarrow.Table``."""
    import pyarrow as pa

    batches = [
        record_batch(output_topic(session.topology, name), number, block)
        for number, block in read_topic(session.root, session.outputs, name)
    ]
    return pa.Table.from_batches(batches, schema=output_schema(output_topic(session.topology, name)))


def output_schema(topic: Topic[Any, Any] | None) -> Any:
    """Return the columns of an output table."""
    import pyarrow as pa

    return pa.schema(
        {
            "key": arrow_column(topic.key_serde if topic else None).type,
            "value": arrow_column(topic.value_serde if topic else None).type,
            "timestamp": pa.int64(),
            "headers": schema().field("headers").type,
            "partition": pa.int32(),
            "offset": pa.int64(),
        }
    )


def record_batch(topic: Topic[Any, Any] | None, number: int, block: Block) -> Any:
    """Return a block of an output topic as rows of the output table."""
    import pyarrow as pa

    columns = output_schema(topic)
    key = arrow_column(topic.key_serde if topic else None)
    value = arrow_column(topic.value_serde if topic else None)
    size = len(block)
    return pa.record_batch(
        [
            pa.array(key.values(block.keys), key.type),
            pa.array(value.values(block.values), value.type),
            pa.array(list(block.timestamps), pa.int64()),
            headers_array(block.headers if block.headers is not None else [()] * size, size),
            pa.array([number] * size, pa.int32()),
            pa.array(list(block.offsets), pa.int64()),
        ],
        schema=columns,
    )
