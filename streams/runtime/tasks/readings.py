"""Metrics that are read from a task when they are asked for.

Other threads read them, so this module only reads single attributes and never blocks.
"""

from collections.abc import Iterator

from streams.core.blocks.records import NO_TIMESTAMP
from streams.core.metrics import MetricPlace, Reading, table
from streams.runtime.tasks.queues import PartitionQueue
from streams.runtime.tasks.task import Task
from streams.runtime.tasks.waiting import wait_of


def of_task(task: Task, place: MetricPlace, now_ms: int) -> Iterator[Reading]:
    """Yield the current values of a task's metrics."""
    queues = task.queues
    yield table.BUFFERED, place, queues.size
    yield table.LAG, place, sum(queue.lag for queue in queues)
    if queues.stream_time_ms != NO_TIMESTAMP:
        yield table.STREAM_TIME, place, queues.stream_time_ms
        yield table.STREAM_TIME_AGE, place, now_ms - queues.stream_time_ms
    if task.cache is not None:
        yield table.CACHE_BYTES, place, task.cache.size_bytes
    for name, store in task.stores.items():
        at = place._replace(store=name, store_type=store.type_name)
        for property_name, value in store.properties().items():
            yield table.PROPERTIES[property_name], at, value
    for node in task.holding_nodes:
        at = place._replace(node=node.name)
        yield table.RECORDS_HELD, at, len(node.held)
    for node in () if task.calls is None else task.calls.nodes:
        yield table.CALLS_IN_FLIGHT, place._replace(node=node.name), node.in_flight
    wait = wait_of(task)
    for item in list(task.inputs.values()):
        queue = queues[item.partition]
        at = place._replace(topic=item.name, partition=item.number)
        yield table.INPUT_LAG, at, queue.lag
        yield table.INPUT_TIME_LAG, at, time_lag(queue, task.readers[item.partition].partition_time_ms, now_ms)
        is_awaited = wait is not None and wait.partition == item.partition
        yield table.INPUT_WAITED_FOR, at, wait.waited_ms if wait is not None and is_awaited else 0


def time_lag(queue: PartitionQueue, newest_ms: int, now_ms: int) -> int | None:
    """Return how far processing is behind the newest record, in milliseconds of event time, or None if unknown."""
    if not queue.lag:
        return 0
    if queue.partition_time_ms == NO_TIMESTAMP:
        return None
    return max(0, (newest_ms if queue.is_caught_up else now_ms) - queue.partition_time_ms)
