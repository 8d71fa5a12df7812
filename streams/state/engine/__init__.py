"""Engines: sorted maps of bytes in memory and on disk."""
