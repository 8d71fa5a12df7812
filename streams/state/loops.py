"""Loops over the keys and values of a store, compiled if the extension is installed.

The compiled and the plain loops have the same results (``tests/state/test_loops.py``).
"""

from contextlib import suppress

from streams.state.plain_loops import *  # noqa: F403

with suppress(ImportError):  # Installed without a C compiler.
    from streams.state.compiled_loops import *  # noqa: F403
