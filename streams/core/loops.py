"""The loops that run for each record: the compiled ones where the installation has them, else the plain ones.

Both give the same (``tests/core/test_loops.py``).
"""

from contextlib import suppress

from streams.core.plain_loops import *  # noqa: F403

with suppress(ImportError):  # Built where there was no C compiler.
    from streams.core.compiled_loops import *  # noqa: F403
