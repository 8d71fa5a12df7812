"""Typed views of stores, by kind."""
