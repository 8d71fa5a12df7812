"""The calls of a replay as values: input, work and report, independent of the executor."""
