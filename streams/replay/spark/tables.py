"""DataFrames of work items, one partition each, and of output topics, read on demand.

Each worker reads one partition of an output topic.  Every action on the DataFrame of a topic reads the files of
the replay again; nothing else is recomputed.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from streams.core.records import TopicPartition
from streams.replay.calls.outputs import lanes_of, output_partitions
from streams.replay.run.result import output_schema, output_topic
from streams.replay.spark.worker import OutputPart, Task


def numbered_items(items: Iterable[Any], pack: Callable[[Any], bytes] = pickle.dumps) -> Iterator[tuple[int, bytes]]:
    """Yield each item as (index, pickled item)."""
    return ((index, pack(item)) for index, item in enumerate(items))


def item_frame(session: Any, items: Sequence[tuple[int, bytes]]) -> Any:
    """Return a DataFrame (index, pickled item) with one partition per item; the indexes are consecutive."""
    import pyarrow as pa

    columns = [
        pa.array([index for index, _ in items], pa.int32()),
        pa.array([item for _, item in items], pa.binary()),
    ]
    table = pa.table(columns, ["index", "item"])
    return session.createDataFrame(table).repartitionById(len(items), "index")


def output_frame(spark: Any, session: Any, name: str) -> Any:
    """Return an output topic as a DataFrame: key, value, timestamp, headers, partition and offset.

    Each partition of the topic is one partition of the DataFrame, with the rows ordered by offset.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(output_schema(output_topic(session.topology, name)))
    parts = [
        OutputPart(number, lanes_of(session.outputs, TopicPartition(name, number)))
        for number in output_partitions(session.outputs, name)
    ]
    if not parts:
        return spark.createDataFrame([], schema)
    return item_frame(spark, list(numbered_items(parts))).mapInArrow(_reading(session, name), schema)


def _reading(session: Any, name: str) -> Task:
    root, application = session.root, session.plan.application

    def read(batches: Any) -> Any:
        from streams.replay.spark.worker import read_parts

        return read_parts(batches, root, application, name)

    return read
