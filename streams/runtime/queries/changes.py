"""Committed changes of a state store on all instances, read from its changelog.

The module imports only ``clients``, ``core`` and ``state`` from outside ``runtime``.
"""

from collections.abc import Iterator
from typing import Any

from attrs import define, field, frozen

from streams.clients import Consumer, WakeupError
from streams.core.blocks.records import Block, Headers, TopicPartition
from streams.core.errors import InvalidStateStoreError, StreamsRebalancingError
from streams.runtime.instance.instance import Instance
from streams.runtime.queries.answering import request_of
from streams.runtime.queries.locating import places_of
from streams.runtime.stores.store_queries import CountQuery, StoreEntry
from streams.state import Family, StoreSpec, session_parts, window_parts

#: Poll timeout in milliseconds: the maximum time until a stopped iteration ends.
_POLL_MS = 500


@frozen
class StoreChange:
    """A change to a key or window of a store: the new entry (value None for a deletion) and its changelog offset."""

    entry: StoreEntry
    partition: int
    offset: int


@define(eq=False)
class StoreChanges:
    """Reads the changes of one store that are committed after this object is created; any thread may call ``close``.

    A commit writes only the last value of each changed key, so several changes of a key between two commits appear as
    one.  The changes of each key are in order.
    """

    spec: StoreSpec
    _consumer: Consumer
    _is_closed: bool = field(default=False)

    @classmethod
    def of(cls, instance: Instance, name: str) -> "StoreChanges":
        """Start to read the changes of a store of a running application, from the changelog end offsets.

        Raises:
            InvalidStateStoreError: there is no such store, it has no changelog topic of its own, or the application is
                not running or has no assignment yet.
        """
        spec = request_of(instance, name, CountQuery()).spec
        topology = instance.topology
        if not spec.has_changelog or name in topology.global_stores or name in topology.source_changelogs:
            raise InvalidStateStoreError(f"store {name!r} has no changelog of its own to follow", store=name)
        places = places_of(instance, spec)
        if places is None:
            raise StreamsRebalancingError(
                f"store {name!r}: no tasks are assigned yet; retry later", store=name, state=instance.state.name
            )
        plan = instance.plan_of(places.directive.layout)
        partitions = [partition for task in places.tasks for partition in plan.changelogs(task, [name]).values()]
        consumer = instance.reader("changes")
        consumer.assign(partitions)
        for partition, offset in consumer.end_offsets(partitions).items():
            consumer.seek(partition, offset)
        return cls(spec, consumer)

    def poll(self) -> list[StoreChange]:
        """Return the next changes, or an empty list if there are none within 500 ms."""
        try:
            polled = self._consumer.poll_blocks(_POLL_MS)
        except WakeupError:
            return []
        return [
            change for partition, blocks in polled.items() for block in blocks for change in self._of(partition, block)
        ]

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._is_closed

    def close(self) -> None:
        """Stop reading and wake up a blocked ``poll``; the polling thread must then call ``release``."""
        self._is_closed = True
        self._consumer.wakeup()

    def release(self) -> None:
        """Close the consumer; must be called on the polling thread."""
        self._is_closed = True
        self._consumer.close()

    def _of(self, partition: TopicPartition, block: Block) -> Iterator[StoreChange]:
        for offset, key, value, time_ms, headers in block.rows():
            if key is not None:
                own_headers = headers if self.spec.kind.keeps_headers and value is not None else None
                yield StoreChange(self._entry(key, value, time_ms, own_headers), partition.partition, offset)

    def _entry(self, key: bytes, value: bytes | None, time_ms: int, headers: Headers | None) -> StoreEntry:
        spec = self.spec
        start_ms = None
        end_ms = None
        if spec.kind.family is Family.WINDOWS:
            key, start_ms, _ = window_parts(key)
            end_ms = spec.window_at(start_ms).end_ms
        elif spec.kind.family is Family.SESSIONS:
            key, end_ms, start_ms = session_parts(key)
        read: Any = spec.value_serde.deserialize(value)
        if spec.show is not None and read is not None:
            read = spec.show(read)
        return StoreEntry(spec.key_serde.deserialize(key), read, time_ms, start_ms, end_ms, None, headers)


def changes_of(instance: Instance, name: str) -> Iterator[StoreChange]:
    """Yield the changes of a store that are committed from now on, until the application is closed.

    Raises:
        InvalidStateStoreError: the changes cannot be read; see ``StoreChanges.of``.
    """
    changes = StoreChanges.of(instance, name)

    def follow() -> Iterator[StoreChange]:
        try:
            while instance.life.is_up:
                yield from changes.poll()
        finally:
            changes.release()

    return follow()
