"""Loops over the records of a block: compiled if the installation has the extension, else plain Python.

Both have the same results (``tests/core/test_loops.py``).
"""

try:
    from streams.core.compiled_loops import (
        bytes_in,
        head_places,
        prefixed,
        rows_by_number,
        session_windowed,
        timed_keys,
        timed_values,
        windowed,
    )
except ImportError:  # Built where there was no C compiler.
    from streams.core.plain_loops import (
        bytes_in,
        head_places,
        prefixed,
        rows_by_number,
        session_windowed,
        timed_keys,
        timed_values,
        windowed,
    )

__all__ = [
    "bytes_in",
    "head_places",
    "prefixed",
    "rows_by_number",
    "session_windowed",
    "timed_keys",
    "timed_values",
    "windowed",
]
