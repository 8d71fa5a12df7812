"""Sources and sinks of Postgres."""
