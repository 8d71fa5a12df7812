"""Replay on Spark; the only package of the project that uses pyspark.

Calls become tasks of a Spark job, output topics DataFrames, in a classic session and through Spark
Connect.  Importing this package does not import pyspark; opening a session does.
"""
