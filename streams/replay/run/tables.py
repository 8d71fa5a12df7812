"""Tables of a replay's result, which are read on demand: Arrow, Polars, pandas, Spark, and streams of Arrow batches."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attrs import frozen

from streams.core.errors import ConfigError
from streams.files import ArrowRecords
from streams.replay.calls.columns import output_topic
from streams.replay.calls.outputs import OutputPart, read_output
from streams.replay.run.session import ReplaySession


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
            for block in read_output(session.root, part):
                yield columns.batch(part.partition, block)

    return ResultTable(columns.schema, batches, frame)
