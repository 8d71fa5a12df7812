"""Interactive queries of stores, and the location of keys in the group (KIP-67, KIP-535).

A query returns content of the store, or None if the key does not exist.  It raises an error if the store is not
on this instance or is not ready.  A query runs on the threads that own the store, between two iterations of
their loops.  Imports state.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attrs import field, frozen

from streams.core.errors import (
    ClientClosedError,
    InvalidStateStoreError,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StreamsNotStartedError,
    StreamsRebalancingError,
    UnknownStateStoreError,
)
from streams.core.partitioning import partition_for
from streams.core.records import TaskId
from streams.core.serdes import PinnedSerde
from streams.runtime.facts import AssignedTasks, Directive
from streams.runtime.instance import Instance
from streams.runtime.life import State
from streams.runtime.plan import ApplicationPlan
from streams.runtime.thread import StreamThread
from streams.state import MAX_TIME, Family, StoreSpec
from streams.topology import SinkNode

#: A function that maps topic, key, value (None in a query) and partition count to the partition of the key.
KeyPartitioner = Callable[[str, Any, Any, int], int | None]

#: The result for a task whose stores are not restored yet.
_RESTORING = object()


@frozen
class StreamsMetadata:
    """A member of the application's group, as published by the group leader.

    ``client_id`` is the name of the stream thread, ``process_id`` identifies its instance, and
    ``application_server`` is the host:port of the setting, or "" if it is not set.
    """

    client_id: str
    process_id: str
    application_server: str = ""
    is_local: bool = False


@frozen
class KeyQueryMetadata:
    """The location of a key: its partition, the active member, and the members with standby replicas (KIP-535).

    ``active`` is None while the partition is unassigned.  A global store is on every instance: its partition is -1,
    and this instance is active.
    """

    store: str
    partition: int
    active: StreamsMetadata | None
    standbys: tuple[StreamsMetadata, ...] = ()


@frozen(repr=False)
class StoreView:
    """Read access to the store partitions on this instance.

    Every method may raise:

    - StreamsNotStartedError, StateStoreNotAvailableError: the application has not started or no longer runs.
    - StreamsRebalancingError: tasks are moving or being restored; retry later.
    - StateStoreMigratedError: another instance has the store; see ``owner``.
    - InvalidStateStoreError: this kind of store has no such method.
    """

    _instance: Instance = field(repr=False)
    name: str
    _partitioner: KeyPartitioner | None = None

    def __repr__(self) -> str:
        return f"StoreView({self.name!r})"

    # --- one key ------------------------------------------------------------------------------

    def get(self, key: Any) -> Any:
        """Return the value for a key in a key-value store, or None if the key does not exist.

        The task is chosen by the partitioner of the view, by the partitioner of the upstream repartition topic, or
        by the murmur2 hash of the serialized key.  Since a processor may put any key into its store, the other tasks
        of the store on this instance are also queried if the chosen task does not have the key.
        """
        return self._of_key(key, "get", key)

    def fetch(self, key: Any, *bounds: int) -> Any:
        """Return the entries for a key in a window or session store.

        ``bounds`` are times in milliseconds since the epoch.

        - Window store, one bound: the value of the window that starts at this time, or None.
        - Window store, two bounds: a list of (start, value) for the windows that start between the bounds, inclusive.
        - Session store, no bounds: a list of (windowed key, value) for all sessions.
        - Session store, two bounds: the same for sessions that end at or after the first bound and start at or
          before the second.
        """
        if self._spec.kind.family is Family.SESSIONS:
            return self._of_key(key, "find_sessions", key, *(bounds or (0, MAX_TIME)))
        return self._of_key(key, "fetch_range" if len(bounds) == 2 else "fetch", key, *bounds)

    # --- all entries -------------------------------------------------------------------------

    def all(self) -> list[Any]:
        """Return all entries of the store partitions on this instance.

        Entries of a key-value store are sorted by serialized key.  Other entries are in the order of their partitions.
        """
        if self._spec.kind.family is Family.KEYS:
            return self._sorted(self._each("all"))
        return self._joined(self._keys_between(None, None))

    def range(self, low: Any, high: Any) -> list[Any]:
        """Return the entries for keys from ``low`` to ``high``, inclusive, as ``all`` does; a None bound is open."""
        if self._spec.kind.family is Family.KEYS:
            return self._sorted(self._each("range", low, high))
        return self._joined(self._keys_between(low, high))

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries of a key-value store on this instance."""
        return sum(self._each("approximate_num_entries"))

    def ask(self, query: str, *arguments: Any, key: Any = None) -> Any:
        """Call a query method of the store, or of its view if the store kind has a view.

        The kind of the store defines its queries, for example ``get_as_of`` for a versioned store.  With ``key``,
        only the task with this key is queried, as in ``get``.  Otherwise the result is a list with one result for
        each partition on this instance.

        Raises:
            InvalidStateStoreError: the store kind does not have this query.
        """
        return self._each(query, *arguments) if key is None else self._of_key(key, query, *arguments)

    def _keys_between(self, low: Any, high: Any) -> list[Any]:
        times = (0, MAX_TIME) if self._spec.kind.family is Family.WINDOWS else ()
        return self._each("fetch_keys", low, high, *times)

    @staticmethod
    def _joined(found: Sequence[list[Any]]) -> list[Any]:
        return [entry for entries in found for entry in entries]

    def _sorted(self, found: Sequence[list[Any]]) -> list[Any]:
        entries = self._joined(found)
        if len(found) > 1:
            entries.sort(key=lambda entry: self._spec.key_serde.serialize(entry[0]) or b"")
        return entries

    # --- execution ----------------------------------------------------------------------------

    @property
    def _spec(self) -> StoreSpec:
        return spec_of(self._instance, self.name)

    def _each(self, verb: str, *arguments: Any) -> list[Any]:
        """Return the result of each task on this instance; raise an error if a task is not ready."""
        check_up(self._instance, self.name)
        if self._is_global:
            return [_read(self._instance.global_views[self.name], verb, arguments)]

        def question(thread: StreamThread) -> tuple[bool, dict[TaskId, Any]]:
            return thread.is_ready, _read_tasks(thread, self.name, lambda task_id: True, verb, arguments)

        answers = self._ask(question)
        found = {task_id: result for _, results in answers for task_id, result in results.items()}
        if not all(is_ready for is_ready, _ in answers) or _RESTORING in found.values():
            raise self._rebalancing()
        if not found:
            raise StateStoreMigratedError(
                f"store {self.name!r}: this instance has none of its partitions; other instances do",
                store=self.name,
                state=self._instance.state.name,
            )
        return [found[task_id] for task_id in sorted(found)]

    def _of_key(self, key: Any, verb: str, *arguments: Any) -> Any:
        check_up(self._instance, self.name)
        if self._is_global:
            return _read(self._instance.global_views[self.name], verb, arguments)
        mine = task_of(self._instance, self._spec, key, self._partitioner)

        def read(is_asked: Callable[[TaskId], bool]) -> dict[TaskId, Any]:
            def question(thread: StreamThread) -> dict[TaskId, Any]:
                return _read_tasks(thread, self.name, is_asked, verb, arguments)

            return {task_id: result for found in self._ask(question) for task_id, result in found.items()}

        found = read(lambda task_id: mine in (None, task_id))
        hit = next((value for value in found.values() if value is not _RESTORING and not _is_empty(value)), None)
        if hit is not None:
            return hit
        if _RESTORING in found.values():
            raise self._rebalancing()
        others = {} if mine is None else read(lambda task_id: task_id != mine)
        hit = next((value for value in others.values() if value is not _RESTORING and not _is_empty(value)), None)
        if hit is not None:
            return hit
        # Without a partition, "no such key" requires the results of all tasks, and therefore an assignment.
        if found and (mine is not None or found.keys() >= set(tasks_with(self._instance, self._spec))):
            return next(iter(found.values()))
        owner = None if mine is None else owner_of_task(self._instance, self.name, mine)
        # The task may have been assigned here after the threads were asked.
        is_local = owner is not None and owner.active is not None and owner.active.is_local
        if is_local or self._instance.state is not State.RUNNING:
            raise self._rebalancing()
        raise StateStoreMigratedError(
            f"store {self.name!r}: the key is not on this instance, but on {_shown(owner)}",
            store=self.name,
            state=self._instance.state.name,
            owner=owner,
        )

    def _ask(self, question: Callable[[StreamThread], Any]) -> list[Any]:
        try:
            return self._instance.ask(question)
        except ClientClosedError as error:
            # The thread has ended between the check of the state and the query.
            check_up(self._instance, self.name)
            raise self._rebalancing() from error

    @property
    def _is_global(self) -> bool:
        return self.name in self._instance.topology.global_stores

    def _rebalancing(self) -> StreamsRebalancingError:
        state = self._instance.state.name
        return StreamsRebalancingError(
            f"store {self.name!r}: its tasks are being assigned or restored (the application is {state}); retry later",
            store=self.name,
            state=state,
        )


# --- location of keys -------------------------------------------------------------------------


def owner_of(instance: Instance, name: str, key: Any, partitioner: KeyPartitioner | None = None) -> KeyQueryMetadata:
    """Return the location of a key in a store, according to the last assignment from the group leader.

    Raises:
        UnknownStateStoreError: the topology has no such store.
        StreamsNotStartedError, StateStoreNotAvailableError: the application does not run.
        StreamsRebalancingError: this instance has no assignment yet.
    """
    spec = spec_of(instance, name)
    check_up(instance, name)
    if name in instance.topology.global_stores:
        server = instance.config.application_server
        here = StreamsMetadata(instance.client_name, instance.home.process_id, server, is_local=True)
        return KeyQueryMetadata(name, -1, here)
    task_id = task_of(instance, spec, key, partitioner)
    if task_id is None:
        raise StreamsRebalancingError(
            f"store {name!r}: the partition of a key of type {type(key).__qualname__} is not known yet: no tasks are "
            "assigned, or the store has had no key",
            store=name,
            state=instance.state.name,
        )
    return owner_of_task(instance, name, task_id)


def owner_of_task(instance: Instance, name: str, task_id: TaskId) -> KeyQueryMetadata:
    """Return the location of a task that has a store partition."""
    directive = _directive(instance)
    places = () if directive is None else directive.places
    own = instance.home.process_id

    def shown(place: AssignedTasks) -> StreamsMetadata:
        return StreamsMetadata(
            place.client_id, place.process_id, place.application_server, is_local=place.process_id == own
        )

    active = next((shown(place) for place in places if task_id in place.active), None)
    return KeyQueryMetadata(
        name, task_id.partition, active, tuple(shown(place) for place in places if task_id in place.standby)
    )


def spec_of(instance: Instance, name: str) -> StoreSpec:
    """Return the spec of a store.

    Raises:
        UnknownStateStoreError: the topology has no such store.
    """
    topology = instance.topology
    if name in topology.stores:
        return topology.stores[name]
    if name in topology.global_stores:
        return topology.global_stores[name].spec
    known = ", ".join(sorted([*topology.stores, *topology.global_stores])) or "none"
    raise UnknownStateStoreError(f"there is no store {name!r}; the topology has: {known}", store=name)


def check_up(instance: Instance, name: str) -> None:
    """Check that the application runs.

    Raises:
        StreamsNotStartedError, StateStoreNotAvailableError: the application has not started or no longer runs.
    """
    state = instance.state
    application_id = instance.config.application_id
    if state is State.CREATED:
        raise StreamsNotStartedError(
            f"store {name!r}: application {application_id!r} was not started; call start() first",
            store=name,
            state=state.name,
        )
    if not instance.life.is_up:
        raise StateStoreNotAvailableError(
            f"store {name!r}: application {application_id!r} is {state.name}; its stores are closed",
            store=name,
            state=state.name,
        )


def task_of(instance: Instance, spec: StoreSpec, key: Any, partitioner: KeyPartitioner | None) -> TaskId | None:
    """Return the task whose partition has a key, or None while the task is unknown.

    The partition is the key's partition in the source topic with the most partitions, as in Kafka Streams.
    """
    plan = _plan(instance)
    if plan is None:
        return None
    groups = {task_id: plan.groups[task_id] for task_id in tasks_with(instance, spec)}
    counts: dict[str, int] = {}
    for partition in (partition for group in groups.values() for partition in group):
        counts[partition.topic] = max(counts.get(partition.topic, 0), partition.partition + 1)
    if not counts:
        return None
    topic = max(counts, key=lambda topic: (counts[topic], topic))
    chosen = partitioner or _own_partitioner(plan, topic)
    number = None if chosen is None else chosen(topic, key, None, counts[topic])
    if number is None:
        serde = spec.key_serde
        if isinstance(serde, PinnedSerde) and not serde.is_pinned:
            # Serializing the key would pin the type of the store.
            return None
        number = partition_for(serde.serialize(key) or b"", counts[topic])
    wanted = (topic, number)
    return next((task_id for task_id, group in groups.items() if wanted in group), None)


def tasks_with(instance: Instance, spec: StoreSpec) -> list[TaskId]:
    """Return all tasks of the application that have a partition of the store."""
    plan = _plan(instance)
    if plan is None:
        return []
    subs = {sub.id for sub in plan.subs if spec.name in sub.stores}
    return [task_id for task_id in sorted(plan.groups) if task_id.sub_topology in subs]


def _own_partitioner(plan: ApplicationPlan, topic: str) -> KeyPartitioner | None:
    """Return the partitioner of the sinks that write a repartition topic, or None if the serialized key decides."""
    if topic not in plan.topology.internal_topics:
        return None
    nodes = plan.topology.nodes.values()
    return next(
        (node.partitioner for node in nodes if isinstance(node, SinkNode) and node.topic == topic and node.partitioner),
        None,
    )


def _directive(instance: Instance) -> Directive | None:
    directives = [thread.assignor.directive for thread in instance.stream_threads]
    return next((found for found in directives if found is not None), None)


def _plan(instance: Instance) -> ApplicationPlan | None:
    directive = _directive(instance)
    return None if directive is None else instance.plan_of(directive.layout)


def _read_tasks(
    thread: StreamThread, name: str, is_asked: Callable[[TaskId], bool], verb: str, arguments: Sequence[Any]
) -> dict[TaskId, Any]:
    return {
        task_id: _read(task.stores[name], verb, arguments) if task.is_initialized else _RESTORING
        for task_id, task in thread.tasks.items()
        if name in task.stores and is_asked(task_id)
    }


def _read(store: Any, verb: str, arguments: Sequence[Any]) -> Any:
    spec: StoreSpec = store.spec
    if verb not in spec.kind.queries:
        known = ", ".join(sorted(spec.kind.queries)) or "no query"
        raise InvalidStateStoreError(
            f"store {spec.name!r} is of kind {spec.kind.shown}, which does not support {verb}(); it supports {known}",
            store=spec.name,
        )
    result = getattr(store.view, verb)(*arguments)
    return list(result) if isinstance(result, Iterator) else result


def _is_empty(value: Any) -> bool:
    return value is None or value == []


def _shown(owner: KeyQueryMetadata | None) -> str:
    if owner is None or owner.active is None:
        return "another one"
    where = f" at {owner.active.application_server}" if owner.active.application_server else ""
    return f"{owner.active.client_id}{where}"
