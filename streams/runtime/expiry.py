"""Stores with a TTL: their clock, and the removal of expired entries.

The clock is the stream time of the task.  A stream-time punctuation per store removes entries within one time bucket
after their expiry.  Its due time is part of the task's checkpoint, so results do not depend on restarts.
"""

from typing import TYPE_CHECKING, Any

from streams.topology import PunctuationType

if TYPE_CHECKING:
    from streams.runtime.task import Task


def start_expiry(task: "Task") -> None:
    """Set the clock of the task's stores that have a TTL, and schedule the removal of their expired entries."""
    for name, store in task.stores.items():
        if store.spec.ttl_ms < 0:
            continue
        opened: Any = store
        expiry = opened.expiry
        expiry.clock = task.stream_time_ms
        node = task.topology.store_users[name][0]
        time_ms = task.stream_time_ms()
        task.punctuations.schedule(node, expiry.bucket_ms, PunctuationType.STREAM_TIME, expiry.sweep, None, time_ms)
