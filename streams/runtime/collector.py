"""The cyclic garbage collector, tuned while an application runs.

Blocks and stores are many live objects without cycles: with Python's defaults the collector
walks them again and again and costs up to half of the throughput.  What exists at the start is
frozen, and young objects are looked at less often.  The settings are the process's, so they are
shared by all instances and put back when the last one ends.
"""

import gc
import threading

#: Allocations between two looks at the youngest generation, and looks per older one.
_THRESHOLDS = (100_000, 50, 1000)

_lock = threading.Lock()
_users = 0
_before: tuple[int, int, int] | None = None


def tune() -> None:
    """Tune the collector, for one instance that starts."""
    global _users, _before
    with _lock:
        _users += 1
        if _users == 1 and gc.isenabled():
            _before = gc.get_threshold()
            gc.freeze()
            gc.set_threshold(*_THRESHOLDS)


def restore() -> None:
    """Put the settings back when the last instance has ended."""
    global _users, _before
    with _lock:
        _users -= 1
        if _users == 0 and _before is not None:
            gc.set_threshold(*_before)
            gc.unfreeze()
            _before = None
