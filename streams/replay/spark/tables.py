"""DataFrames of output topics, which are read on demand, and of numbers, to run one Spark task for each.

Each worker reads one partition of an output topic.  Every action on the DataFrame of a topic reads the files of
the replay again; nothing else is recomputed.
"""

import pickle
from collections.abc import Sequence
from typing import Any

from streams.files import ArrowRecords
from streams.replay.calls.columns import output_topic
from streams.replay.calls.outputs import OutputPart
from streams.replay.run.session import ReplaySession
from streams.replay.spark.tasks import worker_task
from streams.replay.spark.worker import Items, read_parts

#: The folder, below that of the replay, of the partitions that DataFrames read.
_FRAMES = "frames"


def task_frame(session: Any, count: int) -> Any:
    """Return a DataFrame with the numbers from 0 to ``count`` - 1, one in each partition."""
    return session.range(0, count, 1, count)


def output_frame(
    spark: Any, session: ReplaySession, name: str, parts: Sequence[OutputPart], *, as_table: bool = False
) -> Any:
    """Return partitions of an output topic as a DataFrame, with the columns of records or of a data lake table.

    Each partition of the topic is one partition of the DataFrame, with the rows ordered by offset.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(ArrowRecords(output_topic(session.topology, name), as_table).schema)
    if not parts:
        return spark.createDataFrame([], schema)
    assert session.plan is not None
    items = Items.write(session.root.child(_FRAMES), list(map(pickle.dumps, parts)))
    # The user's own jobs read the frame, so errors are shown as they are.
    reading = worker_task(None, read_parts, items, session.root, session.plan.application, name, as_table)
    return task_frame(spark, len(items)).mapInArrow(reading, schema)
