"""Benchmarks: the real path on the embedded broker, seeded, run by ``make bench``."""
