"""Interactive queries over all instances: each task is queried on its owner, by group metadata (KIP-67, KIP-535).

A request that another instance has forwarded is never forwarded again.
Imports runtime.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from attrs import define, evolve, field

from streams.core.errors import ClientClosedError
from streams.core.records import TaskId
from streams.core.serdes import PinnedSerde
from streams.core.threads import Answer
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
    ask_here,
    gathered,
    places_of,
    targets,
)
from streams.web.peers import ANSWER_S, PeerError, Peers
from streams.web.wire import WireError, read_results, write_request

#: Path of forwarded queries; see ``StoresEndpoint``.
QUERY_PATH = "/query"


@define(eq=False)
class Desk:
    """Queries the stream threads of this instance, and other instances; used on one event loop."""

    _instance: Instance
    peers: Peers = field(factory=Peers)
    #: Futures to complete, and whether the event loop is already scheduled to complete them.
    _done: "deque[asyncio.Future[None]]" = field(init=False, factory=deque)
    _is_waking: bool = field(init=False, default=False)

    async def ask(
        self,
        request: StoreRequest,
        partitions: Collection[int] | None = None,
        partitioner: KeyPartitioner | None = None,
    ) -> StateQueryResult[Any]:
        """Query the partitions of a request, and return their results.

        Raises:
            InvalidStateStoreError: there is no assignment yet, or no such partition.
        """
        instance, name = self._instance, request.spec.name
        if name in instance.topology.global_stores:
            found = ask_global(instance, request)
            return StateQueryResult({found.partition: found}, request.query, request.spec)
        await self.learn_types(request)
        places, tasks = targets(instance, request, partitions, partitioner)
        answers = await self._ask_owners(request, places, tasks)
        results = {task.partition: answers[task] for task in tasks}
        return StateQueryResult(results, request.query, request.spec)

    async def learn_types(self, request: StoreRequest) -> None:
        """Learn the key and value types of a store without declared types from the owners of its tasks.

        Without its type, a key cannot be partitioned, and a value cannot be deserialized.
        """
        serdes = (request.spec.key_serde, request.spec.value_serde)
        if all(not isinstance(serde, PinnedSerde) or serde.is_pinned for serde in serdes):
            return
        places = places_of(self._instance, request.spec)
        if places is None:
            return
        owners = [places.owner_of(task, self._instance.home.process_id).active for task in places.tasks]
        endpoints = {owner.application_server for owner in owners if owner is not None and not owner.is_local}
        await asyncio.gather(*(self._ask_peer(request, endpoint, []) for endpoint in endpoints if endpoint))

    async def answer_here(self, request: StoreRequest, tasks: Collection[TaskId]) -> Answers:
        """Query tasks on this instance only, and return their results."""
        answers = await asyncio.gather(*(self._answer(answer, request, tasks) for answer in self._ask(request, tasks)))
        return gathered(request, tasks, answers)

    async def _ask_owners(self, request: StoreRequest, places: StorePlaces, tasks: Iterable[TaskId]) -> Answers:
        """Query the active tasks; where that fails and the request allows stale results, query the standbys."""
        own = self._instance.home.process_id
        known = {task: places.owner_of(task, own) for task in tasks}
        here = {task for task in known if self._is_here(task)}
        by_place: dict[str, list[TaskId]] = {}
        for task, owner in known.items():
            is_local = task in here or (owner.active is not None and owner.active.is_local)
            by_place.setdefault("" if is_local or owner.active is None else _place(owner, 0), []).append(task)
        answers: Answers = {}
        found = await asyncio.gather(*(self._ask_place(request, place, own) for place, own in by_place.items()))
        for part in found:
            answers |= part
        if request.stale_ms is not None:
            await self._ask_copies(request, known, answers)
        return answers

    async def _ask_copies(self, request: StoreRequest, known: dict[TaskId, KeyQueryMetadata], answers: Answers) -> None:
        """Query the standbys of tasks whose query failed, one after the other until one succeeds."""
        for task, owner in known.items():
            for number in range(len(owner.standbys)):
                if answers[task].is_success:
                    break
                place = "" if owner.standbys[number].is_local else _place(owner, number + 1)
                answers |= await self._ask_place(request, place, [task])

    async def _ask_place(self, request: StoreRequest, place: str, tasks: list[TaskId]) -> Answers:
        """Query tasks on this instance (empty ``place``), or on the instance at an endpoint."""
        if not place:
            return await self.answer_here(request, tasks)
        if place.startswith("?"):
            text = f"it is on {place[1:]}, which serves no HTTP; give each instance Streams.serve or --http"
            return {task: request.failed(task.partition, FailureReason.NOT_PRESENT, text) for task in tasks}
        return await self._ask_peer(request, place, tasks)

    async def _ask_peer(self, request: StoreRequest, endpoint: str, tasks: list[TaskId]) -> Answers:
        asked = request if tasks else evolve(request, page=Page(0))
        try:
            status, body = await self.peers.post(endpoint, QUERY_PATH, write_request(asked, tasks))
            if status == 200:
                answers = read_results(request, body)
                return {task: answers[task] for task in tasks}
            text = f"the instance at {endpoint} refused with status {status}: {body[:300].decode(errors='replace')}"
        except (PeerError, WireError, KeyError) as error:
            text = str(error)
        return {task: request.failed(task.partition, FailureReason.NOT_PRESENT, text) for task in tasks}

    def _is_here(self, task: TaskId) -> bool:
        return any(task in thread.tasks for thread in self._instance.stream_threads)

    def _ask(self, request: StoreRequest, tasks: Collection[TaskId]) -> list[Answer[Answers]]:
        return ask_here(self._instance, request, tasks)

    async def _answer(self, answer: Answer[Answers], request: StoreRequest, tasks: Collection[TaskId]) -> Answers:
        """Return the results of a thread; failed results if it does not answer in time or has ended."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        answer.then(lambda: self._wake(loop, done))
        try:
            async with asyncio.timeout(ANSWER_S / 2):
                await done
            return answer.result(0)
        except TimeoutError:
            text = "its thread is busy with one record or one call for long; retry later"
        except ClientClosedError:
            text = "its thread has ended; retry later"
        return {task: request.failed(task.partition, FailureReason.NOT_ACTIVE, text) for task in tasks}

    def _wake(self, loop: asyncio.AbstractEventLoop, done: "asyncio.Future[None]") -> None:
        """Complete a future from another thread; all futures until the loop runs share one wake-up."""
        self._done.append(done)
        # After the server is closed, nothing awaits the future.
        if not self._is_waking and not loop.is_closed():
            self._is_waking = True
            loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._is_waking = False
        while self._done:
            done = self._done.popleft()
            if not done.done():
                done.set_result(None)

    def close(self) -> None:
        """Close the connections to other instances."""
        self.peers.close()


def _place(owner: KeyQueryMetadata, number: int) -> str:
    """Return the endpoint of the active member (0) or of a standby, or ``?`` and its name if it has no endpoint."""
    members = (owner.active, *owner.standbys)
    member = members[number]
    return "" if member is None else member.application_server or f"?{member.client_id}"
