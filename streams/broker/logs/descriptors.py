"""File descriptor limits: how many descriptors the process may have, and how many are reserved for log files.

This module only reads and sets the operating system limit (``RLIMIT_NOFILE``); it opens no files.
"""

import resource
from typing import Final

from streams.broker.logs.limits import MOST_DESCRIPTORS, OPEN_FILES, SPARE_DESCRIPTORS

_FILES_SHARE: Final = 4


def raise_limit() -> int:
    """Raise the soft limit on open files to the hard limit, and return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return limit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return target


def limit() -> int:
    """Return the number of file descriptors that the process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def open_files() -> int:
    """Return the number of log files that may be open at once."""
    return max(1, min(OPEN_FILES, limit() // _FILES_SHARE))


def is_for_clients(descriptor: int) -> bool:
    """Whether a client connection may use this file descriptor; higher descriptors are reserved for files.

    The operating system assigns the lowest free number, which therefore reflects how many descriptors are open.
    """
    return descriptor < max(limit() - open_files() - SPARE_DESCRIPTORS, limit() // 2)
