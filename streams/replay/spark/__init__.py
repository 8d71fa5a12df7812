"""Replay on Spark; the only package of the project that uses pyspark.

The calls of a replay become tasks of a Spark job, and its output topics become DataFrames, both in a classic session
and through Spark Connect.  Importing this package does not import pyspark; opening a session does.
"""
