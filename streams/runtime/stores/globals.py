"""Global stores: each instance fills them from all partitions of their topics, and all its tasks can read them.

One thread per instance writes the global stores; tasks on other threads read them.  A lock around every method of a
store keeps updates atomic for readers.  The module imports only ``clients`` and ``core`` from outside ``runtime``.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import define, field

from streams.clients import Consumer
from streams.core.concurrency.threads import Threads
from streams.core.metrics import Metrics
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.stores.reading_thread import ReadingThread
from streams.runtime.tasks.task import Task, TaskState


class LockedStore:
    """A store whose methods are executed under a lock; iterators are read to the end before the lock is released."""

    def __init__(self, store: Any, lock: threading.RLock) -> None:
        self._store = store
        self._lock = lock

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if not callable(attribute):
            return attribute
        lock: Any = self._lock

        def call(*arguments: Any, **named: Any) -> Any:
            with lock:
                result = attribute(*arguments, **named)
                return iter(list(result)) if isinstance(result, Iterator) else result

        # Cached on the instance for the next access.
        self.__dict__[name] = call
        return call


@define(eq=False)
class GlobalStores:
    """The global stores of one instance, and the thread that updates them."""

    _plan: ApplicationPlan
    _consumer: Consumer
    _metrics: Metrics
    _on_failure: Callable[[BaseException], None]
    _threads: Threads
    thread: ReadingThread = field(init=False)
    _lock: Any = field(factory=threading.RLock)
    _tasks: dict[str, Task] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.thread = ReadingThread(self._consumer, self._update, self._on_failure, self._threads)

    def open(self, open_store: Callable[[Any], Any]) -> Mapping[str, Any]:
        """Open the global stores, restore them from their topics, and return them by name."""
        stores = {name: open_store(item.spec) for name, item in self._plan.topology.global_stores.items()}
        views = {name: LockedStore(store, self._lock) for name, store in stores.items()}
        for name, store in stores.items():
            self._tasks[name] = self._plan.open_global(name, TaskState({name: store}), self._metrics)
        partitions = [partition for task in self._tasks.values() for partition in task.inputs]
        self._consumer.assign(partitions)
        self._consumer.seek_to_beginning(partitions)
        ends = self._consumer.end_offsets(partitions)
        while any(self._consumer.position(partition) < end for partition, end in ends.items()):
            self._update(100)
        return views

    def close(self) -> None:
        """Stop the updating thread and close the global stores."""
        self.thread.close()
        for task in self._tasks.values():
            task.close()

    def _update(self, timeout_ms: int) -> None:
        owners = {partition: task for task in self._tasks.values() for partition in task.inputs}
        for partition, blocks in self._consumer.poll_blocks(timeout_ms, 10_000).items():
            task = owners[partition]
            with self._lock:
                for block in blocks:
                    task.add(partition, block)
                while task.process(self._plan.clock.now_ms(), 10_000):
                    pass
                task.write_state({})
