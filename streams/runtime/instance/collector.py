"""Tuning of the cyclic garbage collector, for processes that belong to an application.

Blocks of records and stores consist of many live objects without reference cycles.  With Python's default thresholds,
traversing them repeatedly costs up to half of the throughput.  Therefore objects that exist at the start are frozen,
and collections are less frequent.  ``streams run``, ``run`` and simulations do this.  A program that embeds ``Streams``
has objects of its own, and its collector is not tuned.  The settings are per process: nested uses share them, and the
end of the outermost use restores them.

A process that has frozen objects itself, such as one that was forked from a preloaded parent, keeps them frozen:
``gc.unfreeze`` would unfreeze all objects, and each collection would then traverse and copy the parent's memory.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Collection thresholds (``gc.set_threshold``).
_THRESHOLDS = (100_000, 50, 1000)

_lock = threading.Lock()
_users = 0
_before: tuple[int, int, int] | None = None
_has_frozen = False


def tune() -> None:
    """Freeze existing objects and make collections less frequent, unless an enclosing use has done so."""
    global _users, _before, _has_frozen
    with _lock:
        _users += 1
        if _users == 1 and gc.isenabled():
            _before = gc.get_threshold()
            _has_frozen = not gc.get_freeze_count()
            if _has_frozen:
                gc.freeze()
            gc.set_threshold(*_THRESHOLDS)


def restore() -> None:
    """Restore the previous settings of the garbage collector, once all uses have ended."""
    global _users, _before
    with _lock:
        _users -= 1
        if _users == 0 and _before is not None:
            gc.set_threshold(*_before)
            if _has_frozen:
                gc.unfreeze()
            _before = None


@contextmanager
def tuned_collector() -> Iterator[None]:
    """Tune the collector during a ``with`` block, which may be nested in others."""
    tune()
    try:
        yield
    finally:
        restore()
