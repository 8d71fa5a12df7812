"""Spark's Python daemon for sessions that a replay makes: it has loaded what all its workers need.

Workers are forks of the daemon; each would otherwise take a second to load pyarrow and the project,
in memory of its own.  The threads of what is loaded here (OpenBLAS, Arrow) know of forks.
"""

import gc

import pandas  # noqa: F401 - Spark's own worker asks for it
import pyarrow.parquet  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import streams.replay.spark.worker  # noqa: F401

if __name__ == "__main__":
    # Workers collect garbage after each task: what was loaded here is none, and stays shared unless touched.
    gc.freeze()
    manager()
