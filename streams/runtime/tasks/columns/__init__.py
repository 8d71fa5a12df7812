"""Runs of records that a register program takes instead of the program of a task (``topology.columns``)."""
