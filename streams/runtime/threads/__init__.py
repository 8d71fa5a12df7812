"""Stream threads: polling, processing and committing."""
