"""Records and blocks of records: loops over them, partitions and binary formats."""
