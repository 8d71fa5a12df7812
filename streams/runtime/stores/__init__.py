"""Stores of tasks: where they are kept, whether they fit, how they are restored and queried."""
