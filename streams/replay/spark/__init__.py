"""Replay on Spark: the only door to pyspark of the project.

Calls become tasks of a Spark job, output topics DataFrames; in a classic session and through Spark
Connect.  Importing this package imports no pyspark: that happens where a session is asked for.
"""

from streams.replay.spark.executor import SparkExecutor

__all__ = ["SparkExecutor"]
