"""Clients, brokers and applications in a process that is forked: they belong to the parent.

A fork copies memory, sockets and open files, but no threads.  Two processes that used one producer would number
their records alike, so that a broker took those of one for repetitions of the other's; two brokers would write into
the same files.
Between these, which register, and the interpreter.  Imports nothing of the package.
"""

import os
from typing import Final, Protocol
from weakref import WeakSet

#: Why an object of the parent cannot be used.
DISOWNED: Final = "belongs to the process that this one was forked from"


class Disowned(Protocol):
    """An object of one process."""

    def disown(self) -> None:
        """Refuse all further use, because this process is a fork of the one that made the object."""
        ...


_living: "WeakSet[Disowned]" = WeakSet()


def stays_in_process(owner: Disowned) -> None:
    """Disown an object in each process that is forked from this one while the object lives."""
    _living.add(owner)


def _disown_all() -> None:
    for owner in list(_living):
        owner.disown()


os.register_at_fork(after_in_child=_disown_all)
