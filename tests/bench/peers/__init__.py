"""The same queries on the same broker by streams and by its peers: ``python -m tests.bench.peers``."""
