"""Pauses of Python's garbage collector.  This module imports no other module of the package."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Disable the garbage collector in a ``with`` block; afterwards, enable it again if it was enabled before.

    Use this where many objects without reference cycles are created, which the collector would traverse repeatedly, or
    where no finalizer may run.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
