"""Interactive queries of stores, and the location of keys in the group (KIP-67, KIP-535).

A query returns content of a state store, or None if the key does not exist.  It raises an error if the store is not on
this instance or is not ready.  A query is executed on the threads that own the store, between two iterations of their
loops.  The module imports only ``core`` and ``state`` from outside ``runtime``.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from streams.core.arguments import MAX_TIME_MS, checked_milliseconds
from streams.core.blocks.records import TaskId
from streams.core.errors import (
    ClientClosedError,
    InvalidStateStoreError,
    StateStoreMigratedError,
    StoreError,
    StreamsError,
    StreamsRebalancingError,
)
from streams.runtime.instance.instance import Instance
from streams.runtime.plan.life import State
from streams.runtime.queries.answering import StoreRequest, ask_instance, is_member, request_of
from streams.runtime.queries.locating import KeyPartitioner, KeyQueryMetadata, check_up, places_of, spec_of
from streams.runtime.queries.store_tables import table_of
from streams.runtime.stores.store_queries import (
    CountQuery,
    SessionKeyQuery,
    SessionRangeQuery,
    StateQueryResult,
    StoreQuery,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    WindowKeyQuery,
    WindowRangeQuery,
    merged_entries,
)
from streams.runtime.threads.thread import StreamThread
from streams.state import Family, StoreSpec, queried

if TYPE_CHECKING:
    import pyarrow as pa

#: The result of a task whose stores cannot be queried: not restored yet, or the group may have reassigned the task.
_RESTORING = object()


#: Queries the stores of all instances: request, partitions (None: all, or that of the key), partitioner.
AskAll = Callable[[StoreRequest, Collection[int] | None, KeyPartitioner | None], StateQueryResult[Any]]


@frozen(repr=False)
class StoreView:
    """Read access to a store: to its partitions on this instance or, while the instances serve HTTP, on all instances.

    Every method may raise:

    - StreamsNotStartedError, StateStoreNotAvailableError: the application has not started or no longer runs.
    - StreamsRebalancingError: tasks are moving or being restored; retry later.
    - StateStoreMigratedError: another instance has the store; see ``owner``.
    - InvalidStateStoreError: this kind of store has no such method.
    """

    _instance: Instance = field(repr=False)
    name: str
    _partitioner: KeyPartitioner | None = None
    #: Queries all instances, or None if only this one can be queried.
    _ask_all: AskAll | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"StoreView({self.name!r})"

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows: the first entries, or why there are none to show."""
        from streams.core.http.html import ROWS, table

        try:
            entries = self.to_arrow()
        except StreamsError as error:
            return table(f"Store {self.name}", [type(error).__name__], [[str(error)]])
        rows = [list(row.values()) for row in entries.slice(0, ROWS).to_pylist()]
        return table(f"Store {self.name}", entries.column_names, rows, max(0, entries.num_rows - ROWS))

    # --- one key ------------------------------------------------------------------------------

    def get(self, key: Any) -> Any:
        """Return the value for a key in a key-value store, or None if the key does not exist.

        The task is chosen by the partitioner of the view, by the partitioner of the upstream repartition topic, or
        by the murmur2 hash of the serialized key.  Since a processor may put any key into its store, the other tasks
        of the store on this instance are also queried if the chosen task does not have the key.
        """
        return self._of_key(key, "get", key, query=TimestampedKeyQuery(key))

    def fetch(self, key: Any, *bounds: int) -> Any:
        """Return the entries for a key in a window or session store.

        ``bounds`` are times in milliseconds since the epoch.

        - Window store, one bound: the value of the window that starts at this time, or None.
        - Window store, two bounds: a list of (start, value) for the windows that start between the bounds, inclusive.
        - Session store, no bounds: a list of (windowed key, value) for all sessions.
        - Session store, two bounds: the same for sessions that end at or after the first bound and start at or
          before the second.

        Raises:
            StoreError: a bound is no int of epoch milliseconds, or such a store takes another number of them.
        """
        for bound in bounds:
            checked_milliseconds(bound, f"store {self.name!r}: a bound of fetch()", StoreError)
        counts = {Family.SESSIONS: (0, 2), Family.WINDOWS: (1, 2)}.get(self._spec.kind.family, (len(bounds),))
        if len(bounds) not in counts:
            raise StoreError(
                f"store {self.name!r}: fetch() of such a store takes {' or '.join(map(str, counts))} bounds, not "
                f"{len(bounds)}: give the start of a window, or the first and the last time"
            )
        if self._spec.kind.family is Family.SESSIONS:
            times = bounds or (0, MAX_TIME_MS)
            return self._of_key(key, "find_sessions", key, *times, query=SessionKeyQuery(key, times[0], times[-1]))
        if len(bounds) == 2:
            return self._of_key(key, "fetch_range", key, *bounds, query=WindowKeyQuery(key, bounds[0], bounds[1]))
        if self._ask_all is not None and len(bounds) == 1:
            windows = self.fetch(key, *bounds, *bounds)
            return windows[0][1] if windows else None
        return self._of_key(key, "fetch", key, *bounds)

    # --- all entries -------------------------------------------------------------------------

    def all(self) -> list[Any]:
        """Return all entries of the store.

        Entries of a key-value store are sorted by serialized key.  Entries of other stores are in the order of their
        partitions or, if all instances were queried, sorted by key and window.
        """
        return self.range(None, None)

    def range(self, low: Any, high: Any) -> list[Any]:
        """Return the entries for keys from ``low`` to ``high``, inclusive, as ``all`` does; a None bound is open."""
        if self._ask_all is not None:
            return list(self._asked(self._ask_all, _scan(self._spec, low, high)))
        if self._spec.kind.family is Family.KEYS:
            return self._sorted(self._each("range", low, high))
        return self._joined(self._keys_between(low, high))

    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries of a key-value store."""
        if self._ask_all is not None:
            return int(self._asked(self._ask_all, CountQuery()))
        return sum(self._each("approximate_num_entries"))

    def to_arrow(self) -> "pa.Table":
        """Return the entries of the store as a table, for pyarrow, DuckDB, Polars and pandas.

        The columns are: key; window_start and window_end, for windows and sessions; value; timestamp, if the store
        keeps timestamps.  Times are timestamps in UTC.

        Raises:
            InvalidStateStoreError: the store is versioned.
        """
        spec = self._spec
        if spec.kind.has_versions:
            raise InvalidStateStoreError(
                f"store {self.name!r}: a versioned store cannot be scanned; query it by key", store=self.name
            )
        request = request_of(self._instance, self.name, _scan(spec, None, None))
        if self._ask_all is not None:
            answer = self._ask_all(request, None, None)
        else:
            answer = ask_instance(self._instance, request, None if self._is_global else self._partitions_here())
        self._check(answer)
        return table_of(spec, merged_entries(answer.partitions.values(), request.query, spec))

    def ask(self, query: str, *arguments: Any, key: Any = None) -> Any:
        """Call a query method, given by name, on each queried partition of the store.

        The kind of the store defines its queries, for example ``get_as_of`` for a versioned store.  With ``key``,
        only the task of this key is queried, as in ``get``.  Otherwise the result is a list with one result for each
        partition on this instance.

        Raises:
            InvalidStateStoreError: the store kind does not have this query.
        """
        return self._each(query, *arguments) if key is None else self._of_key(key, query, *arguments)

    def _partitions_here(self) -> list[int]:
        """Return the partitions of the store on this instance, whose threads must all be ready.

        Raises:
            StreamsRebalancingError: a stream thread is not ready.
        """
        check_up(self._instance, self.name)

        def question(thread: StreamThread) -> tuple[bool, list[int]]:
            return thread.is_ready, [
                task.task_id.partition for task in thread.tasks.values() if self.name in task.stores
            ]

        answers = self._ask(question)
        if not all(is_ready for is_ready, _ in answers):
            raise self._rebalancing()
        return [partition for _, partitions in answers for partition in partitions]

    def _asked(self, ask_all: AskAll, query: StoreQuery[Any]) -> Any:
        """Query all instances, and return the merged result.

        Raises:
            StreamsRebalancingError: the query of a partition has failed.
        """
        answer = ask_all(request_of(self._instance, self.name, query), None, self._partitioner)
        self._check(answer)
        return answer.value

    def _check(self, answer: StateQueryResult[Any]) -> None:
        failed = next((result for result in answer.partitions.values() if not result.is_success), None)
        if failed is not None:
            raise StreamsRebalancingError(failed.message, store=self.name, state=self._instance.state.name)

    def _keys_between(self, low: Any, high: Any) -> list[Any]:
        times = (0, MAX_TIME_MS) if self._spec.kind.family is Family.WINDOWS else ()
        return self._each("fetch_keys", low, high, *times)

    @staticmethod
    def _joined(parts: Sequence[list[Any]]) -> list[Any]:
        return [entry for entries in parts for entry in entries]

    def _sorted(self, parts: Sequence[list[Any]]) -> list[Any]:
        entries = self._joined(parts)
        if len(parts) > 1:
            entries.sort(key=lambda entry: self._spec.key_serde.serialize(entry[0]) or b"")
        return entries

    # --- execution ----------------------------------------------------------------------------

    @property
    def _spec(self) -> StoreSpec:
        return spec_of(self._instance, self.name)

    def _each(self, verb: str, *arguments: Any) -> list[Any]:
        """Return the result of each task on this instance, in the order of task IDs; fail if a task is not ready."""
        check_up(self._instance, self.name)
        if self._is_global:
            return [_read(self._instance.global_views[self.name], verb, arguments)]

        def question(thread: StreamThread) -> tuple[bool, dict[TaskId, Any]]:
            return thread.is_ready, _read_tasks(thread, self.name, lambda task_id: True, verb, arguments)

        answers = self._ask(question)
        by_task = {task_id: result for _, results in answers for task_id, result in results.items()}
        if not all(is_ready for is_ready, _ in answers) or _RESTORING in by_task.values():
            raise self._rebalancing()
        if not by_task:
            raise StateStoreMigratedError(
                f"store {self.name!r}: this instance has none of its partitions; other instances do",
                store=self.name,
                state=self._instance.state.name,
            )
        return [by_task[task_id] for task_id in sorted(by_task)]

    def _of_key(self, key: Any, verb: str, *arguments: Any, query: StoreQuery[Any] | None = None) -> Any:
        """Query this instance for a key; with ``query``, query all instances if its task is elsewhere or not ready."""
        try:
            return self._of_key_here(key, verb, *arguments)
        except (StateStoreMigratedError, StreamsRebalancingError):
            if self._ask_all is None or query is None:
                raise
            return self._asked(self._ask_all, query)

    def _of_key_here(self, key: Any, verb: str, *arguments: Any) -> Any:
        check_up(self._instance, self.name)
        if self._is_global:
            return _read(self._instance.global_views[self.name], verb, arguments)
        places = places_of(self._instance, self._spec)
        mine = None if places is None else places.task_of(key, self._partitioner)

        def read(is_asked: Callable[[TaskId], bool]) -> dict[TaskId, Any]:
            def question(thread: StreamThread) -> dict[TaskId, Any]:
                return _read_tasks(thread, self.name, is_asked, verb, arguments)

            return {task_id: result for answer in self._ask(question) for task_id, result in answer.items()}

        by_task = read(lambda task_id: mine in (None, task_id))
        hit = next((value for value in by_task.values() if value is not _RESTORING and not _is_empty(value)), None)
        if hit is not None:
            return hit
        if _RESTORING in by_task.values():
            raise self._rebalancing()
        others = {} if mine is None else read(lambda task_id: task_id != mine)
        hit = next((value for value in others.values() if value is not _RESTORING and not _is_empty(value)), None)
        if hit is not None:
            return hit
        # Without a known partition, only the results of all tasks show that the key does not exist.
        if by_task and (mine is not None or (places is not None and by_task.keys() >= set(places.tasks))):
            return next(iter(by_task.values()))
        owner = None
        if places is not None and mine is not None:
            owner = places.owner_of(mine, self._instance.home.process_id)
        # The task may have been assigned to this instance after its threads were queried.
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
            # The thread ended between the check of the state and the query.
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


def _read_tasks(
    thread: StreamThread, name: str, is_asked: Callable[[TaskId], bool], verb: str, arguments: Sequence[Any]
) -> dict[TaskId, Any]:
    is_owner = is_member(thread)
    return {
        task_id: _read(task.stores[name], verb, arguments) if task.is_initialized and is_owner else _RESTORING
        for task_id, task in thread.tasks.items()
        if name in task.stores and is_asked(task_id)
    }


def _read(store: Any, verb: str, arguments: Sequence[Any]) -> Any:
    spec: StoreSpec = store.spec
    if verb not in spec.kind.queries:
        verbs = ", ".join(sorted(spec.kind.queries)) or "no query"
        raise InvalidStateStoreError(
            f"store {spec.name!r} is of kind {spec.kind.shown}, which does not support {verb}(); it supports {verbs}",
            store=spec.name,
        )
    result = getattr(queried(store), verb)(*arguments)
    return list(result) if isinstance(result, Iterator) else result


def _scan(spec: StoreSpec, low: Any, high: Any) -> StoreQuery[Any]:
    """Return the range query of this kind of store, for the entries between two keys."""
    if spec.kind.family is Family.WINDOWS:
        return WindowRangeQuery(low=low, high=high)
    is_session = spec.kind.family is Family.SESSIONS
    return SessionRangeQuery(low=low, high=high) if is_session else TimestampedRangeQuery(low, high)


def _is_empty(value: Any) -> bool:
    return value is None or value == []


def _shown(owner: KeyQueryMetadata | None) -> str:
    if owner is None or owner.active is None:
        return "another one"
    where = f" at {owner.active.application_server}" if owner.active.application_server else ""
    return f"{owner.active.client_id}{where}"
