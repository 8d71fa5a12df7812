"""Sinks into lakes."""
