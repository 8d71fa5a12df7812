"""Spark's Python daemon for sessions that a replay starts, with the imports of all its workers preloaded.

Workers are forks of the daemon.  Otherwise each worker would take a second to load pyarrow and the project
into its own memory.  The thread pools of these libraries (OpenBLAS, Arrow) are safe to fork.
"""

import gc

import pandas  # noqa: F401 - imported by Spark's worker
import pyarrow.parquet  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import streams.replay.spark.worker  # noqa: F401

if __name__ == "__main__":
    # Workers collect garbage after each task; frozen objects are skipped, and their pages stay shared.
    gc.freeze()
    manager()
