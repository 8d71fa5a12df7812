"""The seam of what is done for each record: compiled where the installation has it, plain elsewhere.

Both give the same (``tests/core/test_loops.py``).
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
