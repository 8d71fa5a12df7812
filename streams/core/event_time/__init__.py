"""Event time and windows."""
