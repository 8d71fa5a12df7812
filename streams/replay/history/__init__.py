"""History as input: files, archives, Kafka topics and tables, ingested into partitions."""
