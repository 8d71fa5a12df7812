"""Limits on file descriptors: how many the process may have, and how many are reserved for log files.

Knows the operating system's limit, not what uses the descriptors.
"""

import resource
from typing import Final

from streams.broker.limits import MOST_DESCRIPTORS, OPEN_FILES, SPARE_DESCRIPTORS

_FILES_SHARE: Final = 4


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def limit() -> int:
    """Return the number of descriptors that the process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def open_files() -> int:
    """Return the number of log files that may be open at once."""
    return max(1, min(OPEN_FILES, limit() // _FILES_SHARE))


def is_for_clients(descriptor: int) -> bool:
    """Whether a connection may use this descriptor; higher ones are reserved for files.

    A new descriptor is the lowest free one, so its number reflects all open descriptors of the process.
    """
    return descriptor < max(limit() - open_files() - SPARE_DESCRIPTORS, limit() // 2)
