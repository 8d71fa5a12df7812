"""Joins: of streams, of tables, and of both."""
