"""The result of a replay: outputs, contents of stores, counters, and the snapshot."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from attrs import evolve, field, frozen

from streams.core.bars import Charts
from streams.core.blocks.records import Block, Record, TaskId
from streams.core.closeable import Closeable
from streams.core.errors import ConfigError, InputError, StreamsError
from streams.core.http.html import ROWS, table
from streams.core.metrics import Dropped, Misplaced, Tally, dropped, dropped_by_node, misplaced
from streams.core.settings.config import StreamsConfig
from streams.core.topic import Topic, TopicLike, topic_name
from streams.replay.calls.failures import explained_failure
from streams.replay.calls.outputs import OutputPart, check_kept, counts, output_parts, output_topics, read_topic
from streams.replay.calls.stores import open_contents, open_entries
from streams.replay.calls.work import StoreRef, output_schema, output_topic
from streams.replay.handover.snapshot import Snapshot
from streams.replay.history.late_rows import LateRows
from streams.replay.run.commits import SliceWriter
from streams.replay.run.lake import FolderLog, lake_log
from streams.replay.run.local import LocalExecutor
from streams.replay.run.queries import check_expectations, queried
from streams.replay.run.repair import Repair
from streams.replay.run.session import ReplaySession
from streams.replay.storage.places import Place
from streams.runtime import Late, charts_of, late_of, table_of
from streams.state import StoreSpec
from streams.values import ArrowRecords, partition_columns


@frozen(eq=False)
class ResultTable:
    """An output topic or a store as a table; each method reads the files of the replay again.

    The table is an Arrow stream (``__arrow_c_stream__``), which DuckDB, Polars, pandas and pyarrow can read directly.
    """

    #: The Arrow schema.
    schema: Any
    _batches: Callable[[], Iterator[Any]]
    _frame: Callable[[], Any] | None = None

    def reader(self) -> Any:
        """Return a ``pyarrow.RecordBatchReader``: only one batch is in memory at a time.

        Raises:
            ReplayError: a file of the replay is missing or damaged.
        """
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table``."""
        return self.reader().read_all()

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``.

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise ConfigError(f"to_pandas() needs pandas ({error}); install it with: pip install pandas") from None
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return a ``polars.DataFrame``.

        Raises:
            ConfigError: Polars is not installed.
        """
        try:
            import polars
        except ImportError as error:
            raise ConfigError(f"to_polars() needs Polars ({error}); install it with: pip install polars") from None
        return polars.from_arrow(self.to_arrow())

    def to_spark(self) -> Any:
        """Return a Spark ``DataFrame``, whose rows are read by Spark's tasks.

        Raises:
            ConfigError: the replay did not run on Spark, or this is the table of a store.
        """
        if self._frame is None:
            raise ConfigError(
                "to_spark() is for the outputs of a replay with executor 'spark'; for a store, or without Spark, give "
                "to_arrow() to spark.createDataFrame()"
            )
        return self._frame()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader().__arrow_c_stream__(requested_schema)


def output_table(
    session: ReplaySession,
    name: str,
    parts: Sequence[OutputPart],
    *,
    as_table: bool = False,
    frame: Callable[[], Any] | None = None,
) -> ResultTable:
    """Return partitions of an output topic as a table, with the columns of records or of a data lake table."""
    columns = ArrowRecords(output_topic(session.topology, name), as_table)

    def batches() -> Iterator[Any]:
        for part in parts:
            for block in session.segments.merged(part.lanes, part.first):
                yield columns.batch(part.partition, block)

    return ResultTable(columns.schema, batches, frame)


@frozen(eq=False, repr=False)
class Outputs(Mapping[TopicLike, Any]):
    """The output topics, by ``Topic`` or name.

    Each topic is a table with the columns key, value, timestamp, headers, partition and offset: a Spark
    DataFrame with executor "spark", otherwise a ``pyarrow.Table``.  A windowed key is a struct of key, start and end;
    timestamps, start and end are epoch milliseconds.  ``ReplayResult.table`` has other forms.
    """

    _session: ReplaySession
    _executor: Any

    def __repr__(self) -> str:
        return f"<Outputs {', '.join(map(str, self))}>"

    def __getitem__(self, topic: TopicLike) -> Any:
        name = self.name_of(topic)
        parts = output_parts(self._session.outputs, name)
        if hasattr(self._executor, "frame"):
            return self._executor.frame(self._session, name, parts)
        return output_table(self._session, name, parts).to_arrow()

    def name_of(self, topic: TopicLike) -> str:
        """Return the name of an output topic.

        Raises:
            StreamsError: the replay has no such output.
            ReplayError: the temporary folder of the replay was deleted.
        """
        name = topic_name(topic, "outputs of a replay")
        if name not in set(self):
            raise StreamsError(f"the replay has no output topic {name!r}; it has {', '.join(map(str, self)) or 'none'}")
        check_kept(self._session.root)
        return name

    def __iter__(self) -> Iterator[str]:
        sinks = {sink.topic for sink in self._session.topology.sinks() if sink.topic is not None}
        return iter(
            sorted((sinks - set(self._session.topology.internal_topics)) | set(output_topics(self._session.outputs)))
        )

    def __len__(self) -> int:
        return len(list(iter(self)))


@frozen(eq=False)
class StoreContents(Mapping[Any, Any]):
    """The final contents of one store in all partitions, as a mapping that is read on first access."""

    name: str
    _session: ReplaySession
    _entries: dict[Any, Any] = field(factory=dict, init=False)
    _is_read: list[bool] = field(factory=list, init=False)

    def table(self) -> ResultTable:
        """Return the contents as a table: key, value, and the columns that the kind of store has.

        These are ``window_start`` and ``window_end``, ``timestamp``, or ``valid_from`` and ``valid_to``, in UTC.
        """
        spec, refs = self._spec_and_refs()

        def batches() -> Iterator[Any]:
            for ref in refs:
                yield from table_of(spec, open_entries(spec, ref, self._session.segments)).to_batches()

        return ResultTable(table_of(spec, []).schema, batches)

    def blocks(self) -> Iterator[tuple[int, Block]]:
        """Yield the contents of each partition as (partition, changelog records), sorted by key."""
        yield from ((number, block) for number, blocks in self._parts() for block in blocks)

    def __getitem__(self, key: Any) -> Any:
        return self._all()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"StoreContents({self.name!r}, {len(self):,} entries)"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: a table of the first entries."""
        table_of_store = self.table().to_arrow()
        rows = [list(row.values()) for row in table_of_store.slice(0, ROWS).to_pylist()]
        return table(f"Store {self.name}", table_of_store.column_names, rows, max(0, table_of_store.num_rows - ROWS))

    def _parts(self) -> Iterator[tuple[int, Iterator[Block]]]:
        state = self._session.state
        for task, refs in sorted(state.stores.items()):
            if self.name in refs:
                yield task.partition, self._session.segments.blocks(refs[self.name].extents)
        if self.name in state.global_stores:
            yield 0, self._session.segments.blocks(state.global_stores[self.name].extents)

    def _spec_and_refs(self) -> tuple[StoreSpec, list[StoreRef]]:
        """Return the declaration of the store, and its contents in each partition."""
        check_kept(self._session.root)
        state = self._session.state
        topology = self._session.topology
        spec = topology.stores.get(self.name)
        if spec is None:
            return topology.global_stores[self.name].spec, [state.global_stores[self.name]]
        return spec, [stores[self.name] for _, stores in sorted(state.stores.items()) if self.name in stores]

    def _all(self) -> dict[Any, Any]:
        if not self._is_read:
            spec, refs = self._spec_and_refs()
            for ref in refs:
                self._entries.update(open_contents(spec, ref, self._session.segments))
            self._is_read.append(True)
        return self._entries


@frozen(eq=False, repr=False)
class Stores(Mapping[str, StoreContents]):
    """The final contents of the state stores by name."""

    _session: ReplaySession

    def __repr__(self) -> str:
        return f"<Stores {', '.join(self)}>"

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
class ReplayResult(Closeable):
    """The result of a replay.

    ``outputs`` maps topics to tables, and ``stores`` maps the names of stores to their contents.  The result is a
    context manager: a temporary folder is removed when the result is closed, or when the process exits.
    """

    session: ReplaySession = field(repr=False)
    outputs: Outputs = field(repr=False)
    stores: Stores = field(repr=False)
    _executor: Any = field(repr=False, factory=LocalExecutor)
    _close: Callable[[], None] = field(repr=False, default=lambda: None)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: tables of outputs, stores, and dropped records."""
        outputs = [(name, count) for name, count in self.records.items()]
        parts = [
            table(f"Replay {self.config.application_id}: outputs", ["topic", "records"], outputs),
            table("Stores", ["store", "entries"], [(name, len(self.stores[name])) for name in self.stores]),
        ]
        if self.drops():
            drops = [(dropped.node, dropped.reason, dropped.count) for dropped in self.drops()]
            parts.append(table("Dropped records", ["node", "reason", "count"], drops))
        return "".join(parts)

    @property
    def config(self) -> StreamsConfig:
        """The settings of the application."""
        return self.session.config

    @property
    def slices(self) -> int:
        """The number of slices, including slices of earlier runs; 1 if history is not divided."""
        return max(1, self.session.slices_done)

    @property
    def slices_skipped(self) -> int:
        """The number of slices that earlier runs had finished."""
        return self.session.slices_skipped

    @property
    def records(self) -> Mapping[str, int]:
        """The number of records of each output topic."""
        totals = counts(self.session.outputs)
        return {name: totals.get(name, 0) for name in self.outputs}

    @property
    def records_in(self) -> int:
        """The number of records that tasks read in this run, including records of repartition topics."""
        return sum(report.records_in for _, _, report in self.session.reports)

    @property
    def source_records(self) -> int:
        """The number of records that tasks read in this run from topics other than repartition topics."""
        return sum(task.source_records for _, _, report in self.session.reports for task in report.tasks)

    @property
    def dropped(self) -> dict[str, int]:
        """The number of dropped records, by node."""
        return dropped_by_node(self.drops())

    def drops(self) -> list[Dropped]:
        """Return the dropped records by node and reason, each with the count and a description of the first record."""
        return dropped(self._tallies, self.session.state.examples)

    @property
    def late_rows(self) -> list[LateRows]:
        """The rows of sorted inputs that are older than rows of earlier runs, and not yet sorted in by a repair."""
        return self.session.inputs.late_rows()

    @property
    def repaired(self) -> Repair | None:
        """The repair by this run; None without ``repair``, or without late rows."""
        return self.session.repaired

    @property
    def late(self) -> list[Late]:
        """The dropped late records by node, with their share and how far history is out of order."""
        orders = {topic: history.order for topic, history in self.session.inputs.histories.items()}
        late = late_of(self.session.topology, self._tallies)
        return [evolve(one, is_sorted=orders.get(one.topic) == "event_time") for one in late]

    @property
    def processed(self) -> dict[TaskId, int]:
        """The number of records that each task has processed, with those of earlier runs of the history."""
        counters = self.session.state.counters
        return {task: sum(count for tally, count in of.items() if tally.is_read) for task, of in counters.items()}

    def charts(self) -> Charts:
        """Return how late records were, and how many records each partition had, as bars for a notebook."""
        return charts_of(self.late, self.processed)

    @property
    def misplaced(self) -> list[Misplaced]:
        """The sampled keys that are not in their partition, by topic; the keys of files are always in theirs."""
        return misplaced(self._tallies, self.session.state.examples)

    @property
    def _tallies(self) -> Mapping[Tally, int]:
        session = self.session
        return {**session.state.tallies(), **session.global_counters}

    def to_json(self) -> dict[str, Any]:
        """Return a summary of the replay as JSON-compatible values; times are ISO 8601 text in UTC."""
        repaired = self.repaired
        return {
            "application_id": self.config.application_id,
            "slices": self.slices,
            "slices_skipped": self.slices_skipped,
            "records_in": self.records_in,
            "records": dict(self.records),
            "late_rows": [rows.to_json() for rows in self.late_rows],
            "repaired": None if repaired is None else repaired.to_json(),
            "dropped": [
                {"node": dropped.node, "reason": dropped.reason, "count": dropped.count} for dropped in self.drops()
            ],
        }

    def table(self, topic: TopicLike) -> ResultTable:
        """Return an output topic as a table for a data lake, which is read on demand.

        The columns are those of ``outputs``, but with times as timestamps in UTC, and with a windowed key as the
        columns ``key``, ``window_start`` and ``window_end``.

        Raises:
            StreamsError: the replay has no such output.
        """
        name = self.outputs.name_of(topic)
        parts = output_parts(self.session.outputs, name)
        frame = getattr(self._executor, "frame", None)
        return output_table(
            self.session,
            name,
            parts,
            as_table=True,
            frame=frame and partial(frame, self.session, name, parts, as_table=True),
        )

    def sql(self, query: str) -> Any:
        """Return the result of a DuckDB query over outputs and stores as a ``pyarrow.Table``.

        An output topic is a table with the columns of ``table``; the store ``totals`` is the table ``stores.totals``.

        Raises:
            ConfigError: DuckDB is not installed.
            InputError: the query is invalid.
        """
        return queried(query, *self._tables())

    def expect(self, *queries: str) -> None:
        """Check the results before they are written: each query selects what must not be there.

        Raises:
            ExpectationError: a query returns rows.
            ConfigError, InputError: the conditions are those of ``sql``.
        """
        check_expectations(queries, *self._tables())

    def _tables(self) -> tuple[dict[str, ResultTable], dict[str, ResultTable]]:
        return (
            {str(name): self.table(name) for name in self.outputs},
            {name: self.stores[name].table() for name in self.stores},
        )

    def write(
        self,
        topic: TopicLike,
        target: str | os.PathLike[str],
        *,
        partition_by: str | Sequence[str] = (),
        mode: Literal["append", "overwrite", "last"] = "append",
    ) -> int:
        """Write an output topic to a folder of Parquet files or a table; return the number of records written.

        ``target`` is a folder, also as ``parquet:FOLDER``, on any file system of a replay; ``delta:FOLDER``;
        ``iceberg:[CATALOG.]NAMESPACE.TABLE``; or ``table:NAME``, a table of the Spark session.  The columns are those
        of ``table``.  The calls of the executor write each slice exactly once: a write after a killed one replaces its
        files, and a repeated write adds nothing.  ``partition_by`` has names of columns or fields such as
        ``value.country``; ``day`` is the UTC day of the event time.  ``mode`` "append" keeps other rows of the target;
        "overwrite" deletes them in partitions that get rows.  "last" writes the last record of each key, without
        tombstones, in the place of what this replay has written before: in a table with one commit.

        Raises:
            InputError: a column or the target is invalid.
            ReplayError: the target cannot be written.
        """
        name = self.outputs.name_of(topic)
        if mode not in ("append", "overwrite", "last"):
            raise InputError(f"mode {mode!r}: give 'append', 'overwrite' or 'last'")
        columns = partition_columns(output_schema(self.session.topology, name), partition_by)
        kind, _, rest = os.fspath(target).partition(":")
        if kind == "table":
            if not hasattr(self._executor, "write_table"):
                raise InputError(f"{target}: a table needs executor 'spark'; give a folder, as parquet:FOLDER")
            return int(self._executor.write_table(self.session, name, rest, columns, mode, self._run))
        if kind in ("delta", "iceberg"):
            log = lake_log(os.fspath(target), self.session, name, columns)
        else:
            place = Place(rest if kind == "parquet" else os.fspath(target)).absolute()
            log = FolderLog.opened(place, self.session, name, columns, mode)
        return SliceWriter(self.session, name, log, mode).write(self._run)

    def _run(self, works: list[Any]) -> list[Any]:
        """Execute calls on the executor, and return their reports.

        Raises:
            StreamsError: a call failed.
        """
        try:
            if hasattr(self._executor, "title"):
                self._executor.title = f"{self.config.application_id}: writing {works[0].topic}"
            return list(self._executor.run(works))
        except Exception as error:  # noqa: BLE001 - raised again with its context
            explained = explained_failure(self.session, error)
            raise explained from explained.__cause__

    def read(self, topic: TopicLike) -> Iterator[tuple[int, Block]]:
        """Yield the records of an output topic as (partition, block of records), by partition and offset.

        Raises:
            ReplayError: the temporary folder of the replay was deleted.
        """
        check_kept(self.session.root)
        return read_topic(self.session.segments, self.session.outputs, topic_name(topic, "read()"))

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
        """Remove the temporary folder of the replay, if it has one."""
        self._close()
