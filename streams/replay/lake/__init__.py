"""Reading and writing of Delta Lake and Apache Iceberg tables with their Python libraries, without Spark."""
