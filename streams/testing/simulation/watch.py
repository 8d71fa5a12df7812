"""Invariants of the consumer group and its commits, checked at each response and each change of the broker."""

from collections.abc import Callable, Mapping, Sequence

from attrs import define, field

from streams.core.blocks.records import TaskId, TopicPartition
from streams.group import GroupState, decode_assignment, decode_subscription
from streams.group.state.states import Group
from streams.group.state.streams_group import StreamsGroup, StreamsTask
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import JoinGroup, LeaveGroup, OffsetCommit, OffsetCommitResponse, SyncGroup
from streams.protocol.messages import (
    EndTxn,
    EndTxnResponse,
    Produce,
    ProduceResponse,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from streams.protocol.request import Request, Response
from streams.runtime import Directive, MemberFacts
from streams.testing.simulation.brokers import SimBroker
from streams.testing.simulation.processes import Machine
from streams.testing.simulation.report import Counters, InvariantViolationError


@define(eq=False)
class Watch:
    """Checks every response and change of the broker, and every instance that has become RUNNING."""

    broker: SimBroker
    group_id: str
    counters: Counters
    log_event: Callable[[str, str], None]
    stateful: frozenset[int]
    #: The tags that tell apart where the copies of a task are (KIP-708).
    tags: Sequence[str] = ()
    _committed: dict[TopicPartition, int] = field(factory=dict)
    #: Requests whose connections have been closed by the clients.
    _late: list[Request] = field(factory=list)
    _generation: int = -1
    _members: frozenset[str] = frozenset()
    _group_of: dict[tuple[int, TopicPartition], int] = field(factory=dict)

    def on_late(self, request: Request) -> None:
        """Record a request that the broker handles although its client has closed the connection."""
        self._late.append(request)

    def on_answer(self, request: Request, response: Response | Exception) -> None:
        """Check a response before it is sent."""
        match request, response:
            case OffsetCommit(), OffsetCommitResponse() if request.group_id == self.group_id:
                if all(code is ErrorCode.NONE for code in response.errors.values()):
                    self._check_membership(request)
                    self._check_offsets(is_late=self._is_late(request))
            case TxnOffsetCommit(), TxnOffsetCommitResponse() if request.group_id == self.group_id:
                if all(code is ErrorCode.NONE for code in response.errors.values()):
                    self._check_membership(request)
            case Produce(), ProduceResponse():
                self._check_writes(request, response)
            case EndTxn(), EndTxnResponse():
                end = "commit" if request.is_commit else "abort"
                self.log_event("broker", f"{end} of {request.transactional_id}: {response.error.name}")
                self._check_offsets()
            case ((JoinGroup() | SyncGroup() | LeaveGroup()), _) if request.group_id == self.group_id:
                code = getattr(response, "error", response)
                name = code.name if isinstance(code, ErrorCode) else type(code).__name__
                self.log_event("broker", f"{type(request).__name__} of {_short(request)}: {name}")

    def on_change(self) -> None:
        """Check the consumer group after a change of the broker's state."""
        group = self._group()
        if group is None:
            return
        if group.streams is not None:
            self._check_tasks(group.streams)
            return
        members = frozenset(group.members)
        self._members = members
        if group.state is GroupState.STABLE and group.generation_id != self._generation:
            self._generation = group.generation_id
            self.counters.rebalances += 1
            self._check_assignment(group)

    def on_eviction(self, count: int) -> None:
        """Count and log group members whose sessions have timed out."""
        self.counters.evictions += count
        self.log_event("broker", f"removed {count} members: session timeout")

    def on_settled(self, machine: Machine) -> None:
        """Check, at a machine that is RUNNING, that partitions of stateful tasks stay in their partition groups."""
        tasks = machine.tasks()
        self.log_event(machine.name, f"runs tasks {', '.join(str(task.task_id) for task in tasks) or 'none'}")
        for task in tasks:
            if task.task_id.sub_topology not in self.stateful:
                continue
            for partition in task.inputs:
                key = (task.task_id.sub_topology, partition)
                number = self._group_of.setdefault(key, task.task_id.partition)
                if number != task.task_id.partition:
                    raise InvariantViolationError(
                        f"partition {partition} was in group {number} and is in group {task.task_id.partition} now"
                    )

    def committed(self) -> Mapping[TopicPartition, int]:
        """Return the committed offsets as of the last check."""
        return self._committed

    # --- internals ----------------------------------------------------------------------------

    def _group(self) -> Group | None:
        return self.broker.machine.coordinator.group(self.group_id)

    def _check_membership(self, request: OffsetCommit | TxnOffsetCommit) -> None:
        group = self._group()
        assert group is not None
        if group.streams is not None:
            self._check_epoch(group.streams, request)
            return
        if request.member_id not in group.members or request.generation_id != group.generation_id:
            raise InvariantViolationError(
                f"a commit of member {request.member_id[:20]} in generation {request.generation_id} was accepted, "
                f"but the group is in generation {group.generation_id}"
            )

    def _check_writes(self, request: Produce, response: ProduceResponse) -> None:
        """Check that no producer writes to a partition outside of its transaction.

        Brokers before Kafka 3.6 accept such records, which are never committed or aborted.  A request from a
        closed connection may be handled after the end of its transaction.
        """
        for partition, produced in response.partitions.items():
            if produced.error is ErrorCode.INVALID_TXN_STATE and not self._is_late(request):
                raise InvariantViolationError(
                    f"producer {request.transactional_id!r} wrote to {partition}, which is not part of its transaction"
                )

    def _is_late(self, request: Request) -> bool:
        return any(late is request for late in self._late)

    def _check_offsets(self, *, is_late: bool = False) -> None:
        """Check that no committed offset has decreased since the last check.

        ``OffsetCommit`` has no sequence number: a request of a closed connection may be handled after a later commit of
        the same member, as in Kafka.  It only causes reprocessing, and only if the member fails before its next commit.
        """
        group = self._group()
        if group is None:
            return
        for partition, committed in group.offsets.items():
            before = self._committed.get(partition, 0)
            if committed.offset < before and not is_late:
                raise InvariantViolationError(
                    f"the committed offset of {partition} decreased from {before} to {committed.offset}"
                )
            self._committed[partition] = committed.offset

    def _check_assignment(self, group: Group) -> None:
        owner: dict[TopicPartition, str] = {}
        directives: dict[str, Directive] = {}
        for member in group.members.values():
            assignment = decode_assignment(member.assignment)
            for partition in assignment.partitions:
                other = owner.setdefault(partition, member.member_id)
                if other != member.member_id:
                    raise InvariantViolationError(
                        f"generation {group.generation_id} gives {partition} to {other} and to {member.member_id}"
                    )
            if assignment.user_data:
                directives[member.member_id] = directive = Directive.decode(assignment.user_data)
                self.counters.warmups += len(directive.warmup)
        if self.tags and all(directive.is_final for directive in directives.values()):
            self._check_standby(group, directives)
        self.log_event("broker", f"generation {group.generation_id} has {len(group.members)} members")

    def _check_epoch(self, group: StreamsGroup, request: OffsetCommit | TxnOffsetCommit) -> None:
        member = group.members.get(request.member_id)
        if member is None or not 0 <= request.generation_id <= member.epoch:
            raise InvariantViolationError(
                f"a commit of member {request.member_id[:20]} in epoch {request.generation_id} was accepted, but it "
                f"is in epoch {None if member is None else member.epoch}"
            )

    def _check_tasks(self, group: StreamsGroup) -> None:
        """Check that no active task of a streams group has two owners; a member owns what it has not revoked yet."""
        owner: dict[StreamsTask, str] = {}
        for member in group.members.values():
            for task in member.assigned.active | member.revoking.active:
                other = owner.setdefault(task, member.member_id)
                if other != member.member_id:
                    raise InvariantViolationError(f"task {task} is with {other} and with {member.member_id}")
        is_reconciled = all(member.is_reconciled(group.epoch) for member in group.members.values())
        if is_reconciled and group.members and group.epoch != self._generation:
            self._generation = group.epoch
            self.counters.rebalances += 1
            self.log_event("broker", f"epoch {group.epoch} has {len(group.members)} members")

    def _check_standby(self, group: Group, directives: Mapping[str, Directive]) -> None:
        """Check that no standby replica shares a tag with the active copy while a free instance shares none."""
        name = group.protocol_name
        facts = {
            member: MemberFacts.decode(decode_subscription(group.members[member].metadata(name)).user_data)
            for member in directives
        }
        active = {task: member for member, directive in directives.items() for task in directive.active}
        held: dict[TaskId, set[str]] = {}
        for member, directive in directives.items():
            for task in (*directive.active, *directive.standby, *directive.warmup):
                held.setdefault(task, set()).add(facts[member].process_id)

        def shares(member: str, task: TaskId) -> bool:
            mine = facts[member].client_tags
            others = facts[active[task]].client_tags
            return any(mine[tag] == others[tag] for tag in self.tags)

        for member, directive in directives.items():
            for task in directive.standby:
                if not shares(member, task):
                    self.counters.tagged_standbys += 1
                elif any(facts[other].process_id not in held[task] and not shares(other, task) for other in facts):
                    raise InvariantViolationError(
                        f"generation {group.generation_id}: the standby replica of task {task} has a tag of its active "
                        f"copy ({facts[member].client_tags}), though another instance has none"
                    )


def _short(request: JoinGroup | SyncGroup | LeaveGroup) -> str:
    return (request.member_id or getattr(request, "client_id", ""))[:24]
