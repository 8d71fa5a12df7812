"""Loops over the records of a block, from the C extension if it is installed, otherwise in plain Python.

The compiled and the plain loops have the same results (``tests/core/test_loops.py``).
"""

from contextlib import suppress

from streams.core.blocks.plain_loops import *  # noqa: F403

with suppress(ImportError):  # Installed without a C compiler.
    from streams.core.blocks.compiled_loops import *  # noqa: F403
