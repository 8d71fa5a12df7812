"""Pauses of Python's garbage collector.  This module imports no other module of the package."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the garbage collector, which it leaves as it was: enabled or not.

    Use it where many objects without cycles are made, which the collector would traverse again and again, and where no
    finalizer may run.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
