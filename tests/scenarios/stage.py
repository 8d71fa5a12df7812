"""Plays a scenario with the real coordinator and members, and tells what every party sees.

A scenario is a text.  Lines that begin with ``>`` are what happens, everything indented is what is seen
of it; other lines are for the reader.  ``play`` takes the first and the last and tells the rest.  To
write a changed transcript: ``python -m tests.scenarios.stage tests/scenarios/*.txt``.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from attrs import define, field

from streams.core.blocks.records import TopicPartition
from streams.group import (
    Assign,
    ConsumerMembership,
    CooperativeStickyAssignor,
    Coordinator,
    CoordinatorConfig,
    Failed,
    Lose,
    Member,
    MemberConfig,
    MemberState,
    PerformAssignment,
    RangeAssignor,
    Reply,
    Revoke,
    Send,
    decode_assignment,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    ResetOffsets,
    ResetOffsetsResponse,
    SyncGroup,
    SyncGroupResponse,
)
from streams.protocol.messages import FindCoordinator, FindCoordinatorResponse

SESSION_MS, HEARTBEAT_MS, REBALANCE_MS = 10_000, 3_000, 60_000
ASSIGNORS = {"range": RangeAssignor, "cooperative-sticky": CooperativeStickyAssignor}


@define(eq=False)
class Party:
    """A process with its member, and where it stands in what it has."""

    name: str
    member: Member
    policy: ConsumerMembership
    positions: dict[TopicPartition, int] = field(factory=dict)
    held: PerformAssignment | None = None
    holds_back: bool = False
    is_cut_off: bool = False
    is_there: bool = True


@define(eq=False)
class Stage:
    """Everybody, the time, and the story so far."""

    coordinator: Coordinator = field(factory=lambda: Coordinator(CoordinatorConfig(), Random(11)))
    partitions: dict[str, int] = field(factory=dict)
    parties: dict[str, Party] = field(factory=dict)
    now_ms: int = 0
    lines: list[str] = field(factory=list)
    owners: dict[TopicPartition, str] = field(factory=dict)
    _names: dict[str, str] = field(factory=dict)
    _told_ms: int = 0

    # --- what happens -----------------------------------------------------------------

    def do(self, step: str) -> None:
        """Do what a line says."""
        self.lines.append(f"> {step}")
        for pattern, verb in STEPS:
            if found := re.fullmatch(pattern, step):
                verb(self, *found.groups())
                return
        raise ValueError(f"step {step!r} is not known; known are {[pattern for pattern, _ in STEPS]}")

    def topic(self, name: str, count: str) -> None:
        self.partitions[name] = int(count)

    def start(self, name: str, assignor: str, instance: str | None) -> None:
        policy = ConsumerMembership([ASSIGNORS[assignor]()], instance)
        policy.topics = tuple(self.partitions)
        config = MemberConfig("g", name, instance, SESSION_MS, HEARTBEAT_MS, REBALANCE_MS)
        self.parties[name] = Party(name, Member(config, policy), policy)

    def act(self, *names: str) -> None:
        """Let these, or all, do whatever there is to be done now."""
        chosen = [party for party in self.parties.values() if party.is_there and (not names or party.name in names)]
        is_busy = True
        while is_busy:
            is_busy = False
            for party in chosen:
                for action in party.member.poll(self.now_ms):
                    is_busy = True
                    self.perform(party, action)

    def hold_back(self, name: str) -> None:
        self.parties[name].holds_back = True

    def assign(self, name: str) -> None:
        party = self.parties[name]
        party.holds_back, held = False, party.held
        assert held is not None, f"{name} has nothing to assign"
        self.perform(party, held)
        self.act()

    def passes(self, seconds: str) -> None:
        for _ in range(int(seconds)):
            self.now_ms += 1_000
            self.deliver(self.coordinator.tick(self.now_ms))
            self.act()

    def crash(self, name: str) -> None:
        self.parties[name].is_there = False
        self.forget(self.parties[name])

    def cut(self, name: str) -> None:
        self.parties[name].is_cut_off = True

    def join_up(self, name: str) -> None:
        self.parties[name].is_cut_off = False

    def leave(self, name: str) -> None:
        party = self.parties[name]
        for action in party.member.leave():
            self.perform(party, action)
        party.is_there = False

    def process(self, name: str, count: str) -> None:
        party = self.parties[name]
        for partition in party.policy.owned:
            party.positions[partition] += int(count)

    def commit(self, name: str) -> None:
        party = self.parties[name]
        self.send_commit(party, tuple(party.positions))

    def rewind(self, topic: str, number: str, offset: str) -> None:
        request = ResetOffsets("g", {TopicPartition(topic, int(number)): int(offset)})
        self.deliver(self.coordinator.handle(request, self.now_ms, ("admin", request)))

    def show(self) -> None:
        group = self.coordinator.group("g")
        assert group is not None
        self.tell("group", f"{group.state.value}, generation {group.generation_id}")
        for member in group.members.values():
            owned = show(decode_assignment(member.assignment).partitions)
            self.tell("", f"{self.name_of(member.member_id)} has {owned}")
        offsets = ", ".join(f"{show([p])} at {found.offset}" for p, found in sorted(group.offsets.items()))
        self.tell("", f"committed: {offsets or 'nothing'}")

    # --- what follows -----------------------------------------------------------------

    def perform(self, party: Party, action: object) -> None:
        match action:
            case Send(_, FindCoordinator() as request):
                party.member.on_response(request, FindCoordinatorResponse(ErrorCode.NONE, 0), self.now_ms)
            case Send(_, request):
                self.tell_request(party.name, request)
                if party.is_cut_off:
                    self.tell(party.name, f"   its {type(request).__name__} is lost on the way")
                else:
                    self.deliver(self.coordinator.handle(request, self.now_ms, (party.name, request)))
            case PerformAssignment() if party.holds_back:
                self.tell(party.name, f"is to assign generation {action.generation_id}, and takes its time")
                party.held = action
            case PerformAssignment(generation_id, protocol, members):
                shares = party.policy.assign(protocol, members, self.partitions)
                parts = (f"{self.name_of(m)}: {show(decode_assignment(d).partitions)}" for m, d in shares.items())
                self.tell(party.name, f"assigns by {protocol} - {'; '.join(parts)}")
                party.member.complete_assignment(generation_id, shares, self.now_ms)
            case Revoke(partitions):
                self.tell(party.name, f"gives up {show(partitions)}")
                self.send_commit(party, partitions)
                self.forget(party, partitions)
            case Assign(_, added):
                self.begin(party, added)
            case Lose(partitions):
                self.tell(party.name, f"has lost {show(partitions)}, and commits nothing")
                self.forget(party, partitions)
            case Failed(error):
                self.tell(party.name, f"ends with {type(error).__name__}")

    def begin(self, party: Party, added: tuple[TopicPartition, ...]) -> None:
        for partition in added:
            other = self.parties.get(self.owners.get(partition, ""))
            instance = party.member.config.group_instance_id
            is_successor = other is not None and instance and other.member.config.group_instance_id == instance
            if other is not None and other.is_there and not (other.is_cut_off or other is party or is_successor):
                raise AssertionError(f"{partition} of {other.name} is given to {party.name}")
            self.owners[partition] = party.name
        request = OffsetFetch("g", added)
        committed = next(
            effect.response
            for effect in self.coordinator.handle(request, self.now_ms, (party.name, request))
            if isinstance(effect, Reply) and isinstance(effect.response, OffsetFetchResponse)
        ).offsets
        for partition in added:
            party.positions[partition] = committed[partition].offset if partition in committed else 0
        places = ", ".join(f"{show([p])} from {party.positions[p]}" for p in added)
        self.tell(party.name, f"begins {places}" if added else "gets nothing new")

    def forget(self, party: Party, partitions: tuple[TopicPartition, ...] | None = None) -> None:
        for partition in tuple(party.positions) if partitions is None else partitions:
            party.positions.pop(partition, None)
            if self.owners.get(partition) == party.name:
                del self.owners[partition]

    def send_commit(self, party: Party, partitions: tuple[TopicPartition, ...]) -> None:
        offsets = {p: OffsetAndMetadata(party.positions[p]) for p in partitions if p in party.positions}
        member = party.member
        request = OffsetCommit("g", offsets, member.generation_id, member.member_id, member.config.group_instance_id)
        self.perform(party, Send(0, request))

    def deliver(self, effects: list[object]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                name, request = effect.token
                self.tell_response(name, request, effect.response)
                party = self.parties.get(name)
                if party is None or not party.is_there or party.is_cut_off:
                    continue
                if isinstance(effect.response, OffsetCommitResponse):
                    code = next(iter(effect.response.errors.values()), ErrorCode.NONE)
                    party.member.on_commit_error(code)
                elif not isinstance(effect.response, OffsetFetchResponse):
                    party.member.on_response(request, effect.response, self.now_ms)

    # --- how it is told ---------------------------------------------------------------

    def tell(self, who: str, what: str) -> None:
        if self.now_ms != self._told_ms:
            self.lines.append(f"  after {self.now_ms // 1_000} s")
            self._told_ms = self.now_ms
        self.lines.append(f"    {who:<6}{what}")

    def tell_request(self, name: str, request: object) -> None:
        match request:
            case JoinGroup(member_id=member_id):
                self.tell(name, f"-> join as {self.name_of(member_id)}" if member_id else "-> join")
            case SyncGroup(generation_id=generation, assignments=assignments):
                brings = " with everybody's part" if assignments else ""
                self.tell(name, f"-> sync generation {generation}{brings}")
            case LeaveGroup():
                self.tell(name, "-> leave")
            case OffsetCommit(offsets=offsets, generation_id=generation):
                places = ", ".join(f"{show([p])} at {found.offset}" for p, found in offsets.items())
                self.tell(name, f"-> commit in generation {generation}: {places}")

    def tell_response(self, name: str, request: object, response: object) -> None:
        match response:
            case JoinGroupResponse(ErrorCode.NONE, generation_id=generation, leader=leader, members=members):
                seen = f", members {', '.join(self.name_of(m.member_id) for m in members)}" if members else ""
                self.tell(name, f"<- joined generation {generation}, {self.name_of(leader)} leads{seen}")
            case JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id):
                self.tell(name, f"<- MEMBER_ID_REQUIRED: {self.name_of(member_id)}")
            case SyncGroupResponse(ErrorCode.NONE, assignment=assignment):
                self.tell(name, f"<- its part: {show(decode_assignment(assignment).partitions)}")
            case HeartbeatResponse(ErrorCode.NONE) | OffsetFetchResponse():
                pass
            case OffsetCommitResponse(errors=errors):
                self.tell(name, f"<- {next(iter(errors.values()), ErrorCode.NONE).name}")
            case ResetOffsetsResponse(ErrorCode.NONE, offsets=offsets):
                self.tell(name, f"<- the group goes on at {', '.join(f'{show([p])}: {o}' for p, o in offsets.items())}")
            case _:
                what = "heartbeat: " if isinstance(request, Heartbeat) else ""
                error = getattr(response, "error", response)
                assert isinstance(error, ErrorCode) or isinstance(response, LeaveGroupResponse)
                self.tell(name, f"<- {what}{error.name}")

    def name_of(self, member_id: str) -> str:
        """Return a name to read: client or instance, and which of its ids this is."""
        if member_id not in self._names:
            client = member_id[: -len("-00000000-0000-0000-0000-000000000000")]
            count = sum(name.rpartition("#")[0] == client for name in self._names.values())
            self._names[member_id] = f"{client}#{count + 1}"
        return self._names[member_id]


def show(partitions: object) -> str:
    """Return partitions to read."""
    return " ".join(f"{p.topic}-{p.partition}" for p in sorted(partitions)) or "nothing"  # type: ignore[call-overload]


STEPS: tuple[tuple[str, Callable[..., None]], ...] = (
    (r"topic (\w+) has (\d+) partitions?", Stage.topic),
    (r"(\w+) starts with ([\w-]+)(?: as instance (\w+))?", Stage.start),
    (r"everybody acts", Stage.act),
    (r"(\w+) acts", Stage.act),
    (r"(\w+) takes its time to assign", Stage.hold_back),
    (r"(\w+) assigns at last", Stage.assign),
    (r"(\d+) seconds? pass(?:es)?", Stage.passes),
    (r"(\w+) crashes", Stage.crash),
    (r"(\w+) is cut off", Stage.cut),
    (r"(\w+) is reached again", Stage.join_up),
    (r"(\w+) leaves", Stage.leave),
    (r"(\w+) processes (\d+) records? of each", Stage.process),
    (r"(\w+) commits", Stage.commit),
    (r"admin rewinds (\w+)-(\d+) to (\d+)", Stage.rewind),
    (r"the group is shown", Stage.show),
)


def play(text: str) -> tuple[str, Stage]:
    """Return the transcript of a scenario, and how everything is in the end."""
    stage = Stage()
    for line in text.splitlines():
        if line.startswith("> "):
            stage.do(line[2:])
        elif not line.startswith(" "):
            stage.lines.append(line)
    return "\n".join(stage.lines) + "\n", stage


def is_over(stage: Stage) -> bool:
    """Whether every partition has one owner, who is there and stable."""
    owners = [
        partition
        for party in stage.parties.values()
        if party.is_there and party.member.state is MemberState.STABLE
        for partition in party.policy.owned
    ]
    return sorted(owners) == [
        TopicPartition(t, n) for t, count in sorted(stage.partitions.items()) for n in range(count)
    ]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(play(path.read_text())[0])
