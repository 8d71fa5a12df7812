"""The log of a partition: storage, recovery, retention and compaction."""
