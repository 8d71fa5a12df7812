"""The loops over keys and values of a store: compiled where the installation has them, else plain.

Both give the same (``tests/state/test_loops.py``).
"""

from contextlib import suppress

from streams.state.plain_loops import *  # noqa: F403

with suppress(ImportError):  # Built where there was no C compiler.
    from streams.state.compiled_loops import *  # noqa: F403
