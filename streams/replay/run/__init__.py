"""Execution of a replay: a session plans calls, an executor runs the tasks in them, and results can be read."""
