"""Running a replay: the session plans the calls, tasks process them, and the result is read."""

from streams.replay.run.drive import run_work
from streams.replay.run.local import LocalExecutor
from streams.replay.run.result import (
    Outputs,
    ReplayResult,
    Stores,
    arrow_table,
    output_schema,
    output_topic,
    record_batch,
)
from streams.replay.run.session import ReplaySession, Request
from streams.replay.run.through_spark import (
    SPARK_CALLS,
    FoundFile,
    ListFiles,
    ReadFiles,
    ReadTopic,
    SparkCall,
    SparkReport,
)

__all__ = [
    "FoundFile",
    "ListFiles",
    "LocalExecutor",
    "Outputs",
    "ReadFiles",
    "ReadTopic",
    "ReplayResult",
    "ReplaySession",
    "Request",
    "SPARK_CALLS",
    "SparkCall",
    "SparkReport",
    "Stores",
    "arrow_table",
    "output_schema",
    "output_topic",
    "record_batch",
    "run_work",
]
