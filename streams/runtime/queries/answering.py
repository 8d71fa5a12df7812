"""Interactive queries of the tasks of this instance, executed on the threads that own the tasks.

An active task executes queries only while the group cannot have assigned it to another member: until its session
timeout has passed, counted from the time at which its last acknowledged heartbeat was sent.  So an instance that was
paused, or cut off from the brokers by a network partition, never returns state that another instance has already taken
over (KIP-535 does not rule this out).  The module imports only ``core`` and ``state`` from outside ``runtime``.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from attrs import evolve, field, frozen

from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.concurrency.threads import INTERRUPTIONS, Answer
from streams.core.errors import ClientClosedError, InvalidStateStoreError, StreamsRebalancingError
from streams.runtime.instance.bounds import CycleError, upstream_of
from streams.runtime.instance.instance import Instance
from streams.runtime.queries.locating import KeyPartitioner, StorePlaces, check_up, places_of, spec_of
from streams.runtime.stores.store_queries import (
    FailureReason,
    Page,
    Position,
    QueryResult,
    StateQueryResult,
    StoreQuery,
)
from streams.runtime.threads.thread import StreamThread
from streams.runtime.threads.thread_pool import PooledThread
from streams.state import StoreSpec


@frozen
class StoreRequest:
    """A query of a state store with its conditions: a position bound, and the maximum staleness of standbys."""

    spec: StoreSpec
    query: StoreQuery[Any]
    bound: Position = field(factory=Position)
    #: Maximum staleness in ms of a result from a standby copy; None queries active tasks only.
    stale_ms: int | None = None
    page: Page = field(factory=Page)

    def failed(
        self, partition: int, reason: FailureReason, message: str, position: Position | None = None
    ) -> QueryResult[Any]:
        """Return the failed result of a partition, with the reason and a message."""
        text = f"store {self.spec.name!r}, partition {partition}: {message}"
        return QueryResult(partition, position or Position(), failure=reason, message=text)

    def read(self, store: Any, partition: int, position: Position, stale_ms: int | None = None) -> QueryResult[Any]:
        """Return the result of the query on the store of one task, or a failure if ``position`` is before the bound."""
        behind = self.bound.missing_in(position)
        position = Position({place: offset for place, offset in position.offsets.items() if offset >= 0})
        if behind.offsets:
            text = f"it does not contain {behind.text()} yet, but is at {position.text() or 'no position'}"
            return self.failed(partition, FailureReason.NOT_UP_TO_BOUND, text, position)
        try:
            rows = self.query.entries(store)
            if rows is None:
                text = f"a store of kind {self.spec.kind.shown} does not support {type(self.query).__name__}"
                return self.failed(partition, FailureReason.UNKNOWN_QUERY_TYPE, text)
            entries, has_more = self.page.of(rows, self.query, self.spec)
        except INTERRUPTIONS:
            raise
        except Exception as error:
            return self.failed(partition, FailureReason.STORE_EXCEPTION, f"{type(error).__name__}: {error}")
        return self.answered(partition, position, entries, has_more=has_more, stale_ms=stale_ms)

    def answered(
        self,
        partition: int,
        position: Position,
        entries: Collection[Any],
        *,
        has_more: bool = False,
        stale_ms: int | None = None,
    ) -> QueryResult[Any]:
        """Return the successful result of a partition."""

        def value(entries: Any) -> Any:
            return self.query.result(entries, self.spec)

        return QueryResult(partition, position, list(entries), has_more, stale_ms=stale_ms, value=value)


#: The query results by task.
Answers = dict[TaskId, QueryResult[Any]]


def request_of(
    instance: Instance, name: str, query: StoreQuery[Any], bound: Position | None = None, stale_ms: int | None = None
) -> StoreRequest:
    """Return a request to query a store of a running application.

    Raises:
        InvalidStateStoreError: there is no such store, the application is not running, or the store does not read a
            topic or partition of the bound.
    """
    spec = spec_of(instance, name)
    check_up(instance, name)
    bound = bound or Position()
    places = places_of(instance, spec) if bound.offsets else None
    if places is not None and places.tasks:
        topics = places.inputs | upstream_of(places.plan, places.inputs).keys()
        if strange := sorted({topic for topic, _ in bound.offsets} - topics):
            raise InvalidStateStoreError(
                f"store {name!r}: a position must be one of {', '.join(sorted(topics))}, which the tasks of the store "
                f"and those upstream read, not of {', '.join(strange)}",
                store=name,
            )
        partitions = {place for place in bound.offsets if place[0] in places.inputs}
        if unread := sorted(partitions - places.input_partitions):
            raise InvalidStateStoreError(
                f"store {name!r}: no task of it reads partition {unread[0][1]} of {unread[0][0]}, so that no result "
                "has the records of that position; if the partition is new, try again after the next rebalance",
                store=name,
            )
    return StoreRequest(spec, query, bound, stale_ms)


def with_own_bound(
    instance: Instance, request: StoreRequest, tasks: Collection[TaskId]
) -> tuple[StoreRequest, Answers | None]:
    """Return the request with its bound replaced by a bound on the store's own inputs.

    If the bound has not been reached yet, a failed result for each task is returned as well.

    A bound on a topic upstream of a repartition topic requires requests to the brokers, so this function may block.

    Raises:
        InvalidStateStoreError: no bound can be derived, because the store is in a cycle of topics.
    """
    places = places_of(instance, request.spec)
    if places is None or all(topic in places.inputs for topic, _ in request.bound.offsets):
        return request, None
    try:
        bound, reached = instance.query_bounds.derive(places.plan, places.inputs, request.bound)
    except CycleError as error:
        raise InvalidStateStoreError(
            f"store {request.spec.name!r}: topics {', '.join(dict.fromkeys(error.args[1]))} form a cycle, so it is not "
            f"known when a record has passed them; a position must be one of {', '.join(sorted(places.inputs))}",
            store=request.spec.name,
        ) from None
    if reached is None:
        return evolve(request, bound=bound), None
    text = f"the records up to {request.bound.text()} are not committed yet, but those up to {reached.text()}"
    return request, {
        task: request.failed(task.partition, FailureReason.NOT_UP_TO_BOUND, text, reached) for task in tasks
    }


def targets(
    instance: Instance,
    request: StoreRequest,
    partitions: Collection[int] | None = None,
    partitioner: KeyPartitioner | None = None,
) -> tuple[StorePlaces, list[TaskId]]:
    """Return the tasks that a request queries: the task of its key, the tasks of ``partitions``, or all tasks.

    Raises:
        StreamsRebalancingError: there is no assignment yet, or the key type is not determined yet.
        InvalidStateStoreError: there is no such partition.
    """
    places = places_of(instance, request.spec)
    name = request.spec.name
    if places is not None and partitions is not None:
        tasks = {task.partition: task for task in places.tasks}
        if missing := sorted(set(partitions) - tasks.keys()):
            raise InvalidStateStoreError(
                f"store {name!r} has no partition {missing[0]}: they are 0 to {len(tasks) - 1}", store=name
            )
        return places, [tasks[number] for number in sorted(set(partitions))]
    if places is not None and request.query.is_of_key:
        task = places.task_of(getattr(request.query, "key"), partitioner)  # noqa: B009
        if task is not None:
            return places, [task]
    elif places is not None and places.tasks:
        return places, list(places.tasks)
    raise StreamsRebalancingError(
        f"store {name!r}: no tasks are assigned yet, or the store has had no key; retry later",
        store=name,
        state=instance.state.name,
    )


def ask_here(instance: Instance, request: StoreRequest, tasks: Collection[TaskId]) -> list[Answer[Answers]]:
    """Submit the query to the threads of this instance that own any of ``tasks``; other tasks get no result."""
    threads = instance.environment.threads
    return [member.ask(ask, threads, is_read=True) for member, ask in questions_of(instance, request, tasks)]


def questions_of(
    instance: Instance, request: StoreRequest, tasks: Collection[TaskId]
) -> list[tuple[PooledThread, Callable[[StreamThread], Answers]]]:
    """Return the threads of this instance that own any of ``tasks``, with the functions that query them."""
    asked: list[tuple[PooledThread, Callable[[StreamThread], Answers]]] = []
    for member in list(instance.pool.members):
        thread = member.stream_thread
        active = thread.tasks
        own = [task for task in tasks if task in active or _may_copy(thread, task, request)]
        if own and member.is_alive:
            asked.append((member, _question(request, own)))
    return asked


def gathered(request: StoreRequest, tasks: Iterable[TaskId], answers: Iterable[Answers]) -> Answers:
    """Return one result per task: a successful one if there is one; NOT_PRESENT if no thread has the task."""
    by_task: Answers = {}
    for answer in answers:
        for task, result in answer.items():
            if task not in by_task or not by_task[task].is_success:
                by_task[task] = result
    for task in tasks:
        if task not in by_task:
            text = "the task is not on this instance"
            by_task[task] = request.failed(task.partition, FailureReason.NOT_PRESENT, text)
    return by_task


def ask_global(instance: Instance, request: StoreRequest) -> QueryResult[Any]:
    """Query a global store on the calling thread; the result covers the whole store and has the partition number -1."""
    return request.read(instance.global_views[request.spec.name], -1, Position())


def ask_instance(
    instance: Instance,
    request: StoreRequest,
    partitions: Collection[int] | None = None,
    partitioner: KeyPartitioner | None = None,
) -> StateQueryResult[Any]:
    """Query this instance only; partitions on other instances fail with NOT_PRESENT.

    Raises:
        InvalidStateStoreError: there is no assignment yet, or no such partition.
    """
    if request.spec.name in instance.topology.global_stores:
        by_partition = {-1: ask_global(instance, request)}
    else:
        _, tasks = targets(instance, request, partitions, partitioner)
        request, failed = with_own_bound(instance, request, tasks)
        answers: list[Answers] = [] if failed is None else [failed]
        for answer in ask_here(instance, request, tasks) if failed is None else ():
            # The thread has ended, so its tasks get no result.
            with suppress(ClientClosedError):
                answers.append(answer.result())
        by_partition = {task.partition: result for task, result in gathered(request, tasks, answers).items()}
    return StateQueryResult(by_partition, request.query, request.spec)


def is_member(thread: StreamThread) -> bool:
    """Return whether the thread is certainly still a member of the consumer group; must be called on that thread."""
    return thread.consumer.alive_until_ms > thread.clock.monotonic_ms()


def _may_copy(thread: StreamThread, task: TaskId, request: StoreRequest) -> bool:
    return request.stale_ms is not None and task in thread.task_set.copies


def _question(request: StoreRequest, tasks: Collection[TaskId]) -> Callable[[StreamThread], Answers]:
    def answer(thread: StreamThread) -> Answers:
        return {task: _answer(thread, request, task) for task in tasks}

    return answer


def _answer(thread: StreamThread, request: StoreRequest, task_id: TaskId) -> QueryResult[Any]:
    """Query the store of one task; must be called on the thread that owns the task."""
    number = task_id.partition
    task = thread.tasks.get(task_id)
    if task is None:
        return _answer_copy(thread, request, task_id)
    if not task.is_initialized:
        return request.failed(number, FailureReason.NOT_ACTIVE, "its store is restored; retry later")
    if not is_member(thread):
        text = "this instance may be out of the group without knowing; retry later"
        return request.failed(number, FailureReason.NOT_ACTIVE, text)
    return request.read(task.stores[request.spec.name], number, _reached(task.positions()))


def _answer_copy(thread: StreamThread, request: StoreRequest, task_id: TaskId) -> QueryResult[Any]:
    number = task_id.partition
    stores = thread.task_set.copies.get(task_id)
    if stores is None or request.stale_ms is None:
        return request.failed(number, FailureReason.NOT_PRESENT, "the task is not on this instance")
    if request.bound.offsets:
        text = "a standby replica has no position in the inputs; the active task does not respond"
        return request.failed(number, FailureReason.NOT_UP_TO_BOUND, text)
    fresh_ms = thread.restorer.fresh_at_ms(task_id)
    age_ms = None if fresh_ms is None else thread.clock.monotonic_ms() - fresh_ms
    if age_ms is None or age_ms > request.stale_ms:
        text = f"the copy was last complete {'at no known time' if age_ms is None else f'{age_ms} ms ago'}"
        return request.failed(number, FailureReason.NOT_UP_TO_BOUND, text)
    return request.read(stores[request.spec.name], number, Position(), age_ms)


def _reached(positions: dict[TopicPartition, int]) -> Position:
    """Convert the positions of a task, which are next offsets, to the offsets of the last processed records.

    They are -1 for partitions of which no record is processed: these have not reached any bound.
    """
    return Position({partition: offset - 1 for partition, offset in positions.items()})
