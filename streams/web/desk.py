"""Interactive queries over all instances: each task is queried on its owner (KIP-67, KIP-535).

The owners follow from the metadata of the consumer group.  A request that another instance has forwarded is
never forwarded again.  Of the other packages, this module imports only ``core`` and ``runtime``.
"""

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, TypeVar

from attrs import define, evolve, field
from starlette.concurrency import run_in_threadpool

from streams.core.blocks.records import TaskId
from streams.core.errors import ClientClosedError
from streams.core.serdes.serdes import PinnedSerde
from streams.runtime import (
    Answers,
    FailureReason,
    Instance,
    KeyPartitioner,
    KeyQueryMetadata,
    Page,
    StateQueryResult,
    StorePlaces,
    StoreRequest,
    ask_global,
    gathered,
    places_of,
    questions_of,
    targets,
    with_own_bound,
)
from streams.state import StoreSpec
from streams.web.batches import Batches
from streams.web.peers import PeerError, Peers
from streams.web.wire import WireError, read_results, write_request

T = TypeVar("T")
#: Path of forwarded queries; see ``StoresEndpoint``.
QUERY_PATH = "/query"


@define(eq=False)
class Desk:
    """Queries the stores of this instance, through its stream threads, and of other instances.

    All calls must come from one event loop.
    """

    _instance: Instance
    peers: Peers = field(factory=Peers)
    _batches: Batches = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._batches = Batches(self._instance)

    async def ask(
        self,
        request: StoreRequest,
        partitions: Collection[int] | None = None,
        partitioner: KeyPartitioner | None = None,
    ) -> StateQueryResult[Any]:
        """Query the partitions of a request, and return their results.

        Raises:
            InvalidStateStoreError: there is no assignment yet, or the store has no such partition.
        """
        instance = self._instance
        name = request.spec.name
        if name in instance.topology.global_stores:
            result = ask_global(instance, request)
            return StateQueryResult({result.partition: result}, request.query, request.spec)
        await self.learn_types(request)
        places, tasks = targets(instance, request, partitions, partitioner)
        answers: Answers | None = None
        if request.bound.offsets:
            request, answers = await run_in_threadpool(with_own_bound, instance, request, tasks)
        if answers is None:
            answers = await self._ask_owners(request, places, tasks)
        results = {task.partition: answers[task] for task in tasks}
        return StateQueryResult(results, request.query, request.spec)

    @staticmethod
    def lacks_types(spec: StoreSpec) -> bool:
        """Return whether the key or value type of a store is still unknown."""
        serdes = (spec.key_serde, spec.value_serde)
        return any(isinstance(serde, PinnedSerde) and not serde.is_pinned for serde in serdes)

    async def learn_types(self, request: StoreRequest) -> None:
        """Set the key and value types of a store without declared types to those that the owners of its tasks report.

        Without its type, a key cannot be partitioned, and a value cannot be deserialized.
        """
        if not self.lacks_types(request.spec):
            return
        places = places_of(self._instance, request.spec)
        if places is None:
            return
        owners = [places.owner_of(task, self._instance.home.process_id).active for task in places.tasks]
        endpoints = {owner.application_server for owner in owners if owner is not None and not owner.is_local}
        await asyncio.gather(*(self._ask_peer(request, endpoint, []) for endpoint in endpoints if endpoint))

    async def answer_here(self, request: StoreRequest, tasks: Collection[TaskId]) -> Answers:
        """Query tasks on this instance only, and return their results."""
        asked = questions_of(self._instance, request, tasks)
        asking = [self._batches.ask(member, question) for member, question in asked]
        return gathered(request, tasks, [await self._answer(done, request, tasks) for done in asking])

    async def _ask_owners(self, request: StoreRequest, places: StorePlaces, tasks: Collection[TaskId]) -> Answers:
        """Query the active tasks; if one fails and the request allows stale results, query its standby tasks."""
        if request.stale_ms is None and all(self._is_here(task) for task in tasks):
            return await self.answer_here(request, tasks)
        own = self._instance.home.process_id
        owners = {task: places.owner_of(task, own) for task in tasks}
        here = {task for task in owners if self._is_here(task)}
        by_place: dict[str, list[TaskId]] = {}
        answers: Answers = {}
        for task, owner in owners.items():
            if task in here or (owner.active is not None and owner.active.is_local):
                by_place.setdefault("", []).append(task)
            elif owner.active is not None:
                by_place.setdefault(_place(owner, 0), []).append(task)
            else:
                text = "no instance has its task now: it moves from one to another; retry later"
                answers[task] = request.failed(task.partition, FailureReason.NOT_PRESENT, text)
        for part in await _together([self._ask_place(request, place, own) for place, own in by_place.items()]):
            answers |= part
        if request.stale_ms is not None:
            await self._ask_copies(request, owners, answers)
        return answers

    async def _ask_copies(
        self, request: StoreRequest, owners: dict[TaskId, KeyQueryMetadata], answers: Answers
    ) -> None:
        """Query the standby tasks of each task whose query failed, one after the other until one succeeds."""
        for task, owner in owners.items():
            for number in range(len(owner.standbys)):
                if answers[task].is_success:
                    break
                place = "" if owner.standbys[number].is_local else _place(owner, number + 1)
                answers |= await self._ask_place(request, place, [task])

    async def _ask_place(self, request: StoreRequest, place: str, tasks: list[TaskId]) -> Answers:
        """Query tasks on the instance whose endpoint is ``place``; if ``place`` is empty, on this instance."""
        if not place:
            return await self.answer_here(request, tasks)
        if place.startswith("?"):
            text = f"it is on {place[1:]}, which serves no HTTP; give each instance Streams.serve or --http"
            return {task: request.failed(task.partition, FailureReason.NOT_PRESENT, text) for task in tasks}
        return await self._ask_peer(request, place, tasks)

    async def _ask_peer(self, request: StoreRequest, endpoint: str, tasks: list[TaskId]) -> Answers:
        asked = request if tasks else evolve(request, page=Page(0))
        try:
            status, body = await self.peers.send("POST", endpoint, QUERY_PATH, write_request(asked, tasks))
            if status == 200:
                answers = read_results(request, body)
                return {task: answers[task] for task in tasks}
            text = f"the instance at {endpoint} refused with status {status}: {body[:300].decode(errors='replace')}"
        except (PeerError, WireError, KeyError) as error:
            text = str(error)
        return {task: request.failed(task.partition, FailureReason.NOT_PRESENT, text) for task in tasks}

    def _is_here(self, task: TaskId) -> bool:
        return any(task in thread.tasks for thread in self._instance.stream_threads)

    async def _answer(
        self, asked: "asyncio.Future[Answers]", request: StoreRequest, tasks: Collection[TaskId]
    ) -> Answers:
        """Return the query results of a stream thread, or failed results if it is late or has ended."""
        try:
            return await asked
        except TimeoutError:
            text = "its thread is busy with one record or one call for long; retry later"
        except ClientClosedError:
            text = "its thread has ended; retry later"
        return {task: request.failed(task.partition, FailureReason.NOT_ACTIVE, text) for task in tasks}

    async def close(self) -> None:
        """Close the connections to other instances."""
        await self.peers.close()


async def _together(asking: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of coroutines; a single one, as for most keys, needs no asyncio task."""
    return [await asking[0]] if len(asking) == 1 else await asyncio.gather(*asking)


def _place(owner: KeyQueryMetadata, number: int) -> str:
    """Return the endpoint of a task's active member (0) or standby member, or ``?`` and its client ID without one."""
    members = (owner.active, *owner.standbys)
    member = members[number]
    return "" if member is None else member.application_server or f"?{member.client_id}"
