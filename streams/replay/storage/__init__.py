"""Files of a replay: folders on file systems and object stores, and segments of records."""
