"""File descriptors of the process: how many there may be, and which are kept free for files.

Knows the operating system's limit, nothing of what uses it.
"""

import resource
from typing import Final

from streams.broker.limits import MOST_DESCRIPTORS, OPEN_FILES, SPARE_DESCRIPTORS

_FILES_SHARE: Final = 4


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; return what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def limit() -> int:
    """Return how many descriptors the process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def open_files() -> int:
    """Return how many log files may be open at once."""
    return max(1, min(OPEN_FILES, limit() // _FILES_SHARE))


def is_for_clients(descriptor: int) -> bool:
    """Whether a connection may keep a descriptor; those above are left to files.

    A new descriptor is the lowest free one, so all that the process has open counts.
    """
    return descriptor < max(limit() - open_files() - SPARE_DESCRIPTORS, limit() // 2)
