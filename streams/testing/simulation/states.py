"""States that worlds must reach: each is a moment at which a fault is hard to bear, and is counted when it occurs.

A simulation that never reaches one of them has not tested what it is for, however many faults it has had.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from attrs import define, field

from streams.core.blocks.records import TaskId
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import Heartbeat, JoinGroup, OffsetCommit, SyncGroup
from streams.protocol.messages import AddPartitionsToTxn, EndTxn, Fetch, FetchResponse, Produce, TxnOffsetCommit
from streams.protocol.request import Request, Response
from streams.runtime import Instance

#: What an application must have so that it can reach a state; "steps" are repartition topics that are read in step.
Need: TypeAlias = Literal["nothing", "exactly once", "state", "steps"]
#: States that a response to one of some requests shows by one of some error codes.
_ANSWERS: Mapping[str, tuple[Need, tuple[type[Request], ...], tuple[ErrorCode, ...]]] = {
    "coordinator moved in a commit": (
        "nothing",
        (OffsetCommit, TxnOffsetCommit, EndTxn),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ),
    "commit of a member that was removed, or of an old generation": (
        "nothing",
        (OffsetCommit, TxnOffsetCommit),
        (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH),
    ),
    "producer fenced with an open transaction": (
        "exactly once",
        (Produce, AddPartitionsToTxn, TxnOffsetCommit, EndTxn),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    ),
    "transaction that waits for the markers of the last one": (
        "exactly once",
        (Produce, AddPartitionsToTxn),
        (ErrorCode.CONCURRENT_TRANSACTIONS,),
    ),
    "write to a leader that has moved": ("nothing", (Produce,), (ErrorCode.NOT_LEADER_OR_FOLLOWER,)),
    "fetch session that the broker has lost": (
        "nothing",
        (Fetch,),
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ),
    "rebalance within a rebalance": ("nothing", (SyncGroup,), (ErrorCode.REBALANCE_IN_PROGRESS,)),
    "member that the group has forgotten": (
        "nothing",
        (JoinGroup, SyncGroup, Heartbeat),
        (ErrorCode.UNKNOWN_MEMBER_ID,),
    ),
}
#: All states, with what they need.
STATES: Mapping[str, Need] = {
    **{name: need for name, (need, *_) in _ANSWERS.items()},
    "crash with an open transaction": "exactly once",
    "brokers down with an open transaction": "exactly once",
    "commit whose outcome is unknown": "exactly once",
    "aborted records before a consumer": "exactly once",
    "records sent again after an unknown outcome": "nothing",
    "crash in a restore": "state",
    "standby promoted while restoring": "state",
    "writes of a store lost in a crash": "state",
    "marks of time lost": "steps",
}


@define(eq=False)
class StateWatch:
    """Counts the states that a world reaches."""

    counts: Counter[str] = field(factory=Counter)
    #: The standby replicas of each machine when it was last looked at, and the tasks that it promoted while restoring.
    _copies: dict[str, set[TaskId]] = field(factory=dict)
    _has_lost_marks: set[str] = field(factory=set)

    def note(self, state: str, *, count: int = 1) -> None:
        """Count a state, which must be one of ``STATES``."""
        assert state in STATES
        if count:
            self.counts[state] += count

    def on_received(self, request: Request, response: Response) -> None:
        """Count the states that a response shows to its client."""
        if isinstance(response, FetchResponse):
            self.note("aborted records before a consumer", count=any(of.aborted for of in response.partitions.values()))
        told: set[ErrorCode] | None = None
        for name, (_, kinds, codes) in _ANSWERS.items():
            if isinstance(request, kinds):
                told = set(_codes(response)) if told is None else told
                self.note(name, count=not told.isdisjoint(codes))

    def look(self, name: str, instance: Instance) -> None:
        """Look at the tasks of a machine, which has sent a request."""
        copies: set[TaskId] = set()
        before = self._copies.get(name, set())
        for thread in instance.stream_threads:
            promoted = {task_id for task_id in before & set(thread.tasks) if thread.restorer.is_restoring(task_id)}
            self.note("standby promoted while restoring", count=len(promoted))
            copies |= set(thread.task_set.copies)
            is_asking = thread.shared.board.must_ask
            self.note("marks of time lost", count=is_asking and name not in self._has_lost_marks)
            (self._has_lost_marks.add if is_asking else self._has_lost_marks.discard)(name)
        self._copies[name] = copies


def _codes(response: Response) -> Iterator[ErrorCode]:
    yield getattr(response, "error", ErrorCode.NONE)
    yield from getattr(response, "errors", {}).values()
    for told in getattr(response, "partitions", {}).values():
        yield told.error
