"""Tuning of the cyclic garbage collector while an application runs.

Blocks and stores consist of many live objects without reference cycles.  With Python's default thresholds, traversing
them repeatedly costs up to half of the throughput.  Therefore objects that exist at the start are frozen, and
collections are less frequent.  The settings are per process: all instances share them, and closing the last instance
restores them.
"""

import gc
import threading

#: Collection thresholds (``gc.set_threshold``).
_THRESHOLDS = (100_000, 50, 1000)

_lock = threading.Lock()
_users = 0
_before: tuple[int, int, int] | None = None


def tune() -> None:
    """Tune the collector when an instance starts."""
    global _users, _before
    with _lock:
        _users += 1
        if _users == 1 and gc.isenabled():
            _before = gc.get_threshold()
            gc.freeze()
            gc.set_threshold(*_THRESHOLDS)


def restore() -> None:
    """Restore the settings when the last instance has ended."""
    global _users, _before
    with _lock:
        _users -= 1
        if _users == 0 and _before is not None:
            gc.set_threshold(*_before)
            gc.unfreeze()
            _before = None
