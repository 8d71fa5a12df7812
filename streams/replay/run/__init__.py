"""Execution of a replay: the session plans calls to an executor, which run tasks; the result is read afterwards."""
