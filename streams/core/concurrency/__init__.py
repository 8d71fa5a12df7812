"""Threads, event loops, and calls of functions on them."""
