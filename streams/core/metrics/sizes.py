"""The sizes of records in bytes, estimated from a sample for large blocks, because measuring all would be slow.

This module imports no other module of the package.
"""

from collections.abc import Sequence
from typing import Any

#: Maximum number of records of a block that are measured, approximately.
_SAMPLE = 16


def sample(column: Sequence[Any]) -> Sequence[Any]:
    """Return evenly spaced values of a column, or all values if there are few."""
    count = len(column)
    return column if count <= _SAMPLE else column[:: -(-count // _SAMPLE)]


def bytes_in(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> int:
    """Return the total size of keys and values in bytes, which is an estimate if there are many."""
    count = len(keys)
    if count == 1:
        return len(keys[0] or b"") + len(values[0] or b"")
    some_keys = sample(keys)
    some_values = sample(values)
    total = sum(map(len, filter(None, some_keys))) + sum(map(len, filter(None, some_values)))
    return total if len(some_keys) == count else total * count // len(some_keys)
