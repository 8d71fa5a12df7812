"""The calls of a replay to an executor as values: input, work and report, independent of the kind of executor."""
