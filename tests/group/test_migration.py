"""Groups that are migrated while they work: members of both protocols, rolled in any order (KIP-848)."""

from collections import Counter
from random import Random

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from streams.core.records import TopicPartition
from streams.group import (
    Assign,
    Assignment,
    ConsumerHeartbeats,
    ConsumerMembership,
    CooperativeStickyAssignor,
    Coordinator,
    CoordinatorConfig,
    EpochMember,
    Failed,
    Lose,
    Member,
    MemberConfig,
    MigrationPolicy,
    PerformAssignment,
    Persist,
    RangeAssignor,
    Reply,
    Revoke,
    RoundRobinAssignor,
    Send,
    StickyAssignor,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from streams.protocol.messages import FindCoordinator, FindCoordinatorResponse
from tests.group.desk import INTERVALS_MS, Topics, started

SESSION_MS = 45_000
MAX_POLL_MS = 60_000
CLASSIC, CONSUMER = "Classic", "Consumer"


@define
class Reader:
    """A consumer of one protocol; ``held`` is what it may read, after its listeners have run."""

    name: str
    member: Member | EpochMember
    held: set[TopicPartition] = field(factory=set)
    lost: list[TopicPartition] = field(factory=list)
    is_alive: bool = True

    def numbers(self) -> list[int]:
        """The numbers of the partitions that are read."""
        return sorted(number for _, number in self.held)


@define
class Shop:
    """A coordinator with its topics, its clock, its log, and its readers."""

    policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    interval_ms: int = 0
    topics: Topics = field(factory=Topics)
    now_ms: int = 1_000
    log: list[tuple[bytes, bytes | None]] = field(factory=list)
    readers: dict[str, Reader] = field(factory=dict)
    errors: list[Exception] = field(factory=list)
    waiting: list[tuple[Reader, object]] = field(factory=list)
    refused: list[ErrorCode] = field(factory=list)
    coordinator: Coordinator = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start a new coordinator from the compacted log; requests that wait for an answer fail."""
        config = CoordinatorConfig(
            consumer_migration_policy=self.policy, consumer_assignment_interval_ms=self.interval_ms
        )
        self.coordinator = started(config, Random(len(self.log)), self.topics, self.log)
        waiting, self.waiting = self.waiting, []
        for reader, request in waiting:
            reader.member.on_response(request, ConnectionError("restart"), self.now_ms)

    def add(self, name: str, kind: str, *assignors, instance: str | None = None, topics=("t",)) -> Reader:
        """Start a reader of the classic or of the consumer protocol."""
        config = MemberConfig("g", name, instance, SESSION_MS, 3_000, MAX_POLL_MS, 100)
        if kind == CLASSIC:
            policy = ConsumerMembership(assignors or (RangeAssignor(),), instance)
            policy.topics = topics
            member: Member | EpochMember = Member(config, policy)
        else:
            member = EpochMember(config, ConsumerHeartbeats(config, Topical(topics), self.names_by_id))
            member.member_id = name
        reader = self.readers[name] = Reader(name, member)
        return reader

    def names_by_id(self) -> dict[bytes, str]:
        """The names of all topics."""
        return {topic_id: name for name, (topic_id, _) in self.topics.by_name.items()}

    def ask(self, request):
        """Send a request that is answered at once."""
        (reply,) = (e.response for e in self.effects(self.coordinator.handle(request, self.now_ms, "now")) if e)
        return reply

    def effects(self, effects) -> list[Reply]:
        """Keep the log, pass answers on, and return those of ``ask``."""
        found = []
        for effect in effects:
            if isinstance(effect, Persist):
                self.log.append((effect.key, effect.value))
            elif effect.token == "now":
                found.append(effect)
            else:
                reader, request = effect.token
                self.waiting = [pair for pair in self.waiting if pair[1] is not request]
                if reader.is_alive:
                    reader.member.on_response(request, effect.response, self.now_ms)
        return found

    def turn(self, reader: Reader, lost: str = "") -> None:
        """Let a reader act until nothing is due; a ``request`` or its ``response`` may be lost."""
        while actions := reader.member.poll(self.now_ms):
            for action in actions:
                lost = self.perform(reader, action, lost)

    def perform(self, reader: Reader, action: object, lost: str = "") -> str:
        """Perform an action as a consumer does; return what is still to be lost."""
        match action:
            case Send(_, FindCoordinator() as request):
                reader.member.on_response(request, FindCoordinatorResponse(ErrorCode.NONE, 0), self.now_ms)
            case Send(_, request) if lost:
                if lost == "response":
                    self.effects(self.coordinator.handle(request, self.now_ms, (Reader("", Deaf()), request)))
                reader.member.on_response(request, ConnectionError("cut"), self.now_ms)
                return ""
            case Send(_, request):
                self.waiting.append((reader, request))
                self.effects(self.coordinator.handle(request, self.now_ms, (reader, request)))
            case PerformAssignment(generation, protocol, members):
                policy = reader.member._policy
                found = {name: count for name, (_, count) in self.topics.by_name.items()}
                counts = {name: found[name] for name in policy.wanted_topics(members) if name in found}
                reader.member.complete_assignment(generation, policy.assign(protocol, members, counts), self.now_ms)
            case Revoke(partitions):
                self.commit(reader, partitions)
                reader.held.difference_update(partitions)
            case Lose(partitions):
                reader.lost += partitions
                reader.held.difference_update(partitions)
            case Assign(partitions, _):
                reader.held = set(partitions)
                self.check()
            case Failed(error):
                self.errors.append(error)
        return lost

    def commit(self, reader: Reader, partitions) -> None:
        """Commit as a consumer does before it gives partitions up."""
        member = reader.member
        offsets = dict.fromkeys(partitions, OffsetAndMetadata(5, reader.name))
        answer = self.ask(OffsetCommit("g", offsets, member.generation_id, member.member_id))
        self.refused += {error for error in answer.errors.values() if error}

    def check(self) -> None:
        """No partition is read by two."""
        holders = Counter(partition for reader in self.readers.values() for partition in reader.held)
        assert max(holders.values(), default=0) <= 1, {r.name: r.held for r in self.readers.values()}

    def stop(self, name: str) -> None:
        """Leave, as a consumer does."""
        reader = self.readers.pop(name)
        for action in reader.member.leave():
            self.perform(reader, action)
        reader.is_alive = False

    def kill(self, name: str) -> None:
        """End a reader without a word."""
        self.readers.pop(name).is_alive = False

    def settle(self, rounds: int = 8) -> None:
        """Let time pass and all act."""
        for _ in range(rounds):
            self.now_ms += 3_000
            self.effects(self.coordinator.tick(self.now_ms))
            for reader in list(self.readers.values()):
                self.turn(reader)
        assert not self.errors, self.errors

    def kind(self) -> str:
        """The type of the group."""
        ((_, _, _, kind),) = self.ask(ListGroups()).groups
        return kind

    def shares(self) -> dict[str, list[int]]:
        """What each reader reads."""
        return {name: reader.numbers() for name, reader in self.readers.items()}


@define
class Topical:
    """A subscription."""

    topics: tuple[str, ...]
    topic_regex: str = ""


class Deaf:
    """A member that hears nothing."""

    def on_response(self, request, response, now_ms) -> None:
        """Ignore it."""


@pytest.fixture
def shop() -> Shop:
    shop = Shop()
    shop.topics.put("t", 4)
    return shop


@pytest.mark.parametrize("assignor", [RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor])
def test_members_are_rolled_one_by_one_to_the_new_protocol_and_back(shop: Shop, assignor):
    shop.add("a", CLASSIC, assignor())
    shop.add("b", CLASSIC, assignor())
    shop.settle()
    assert shop.kind() == CLASSIC
    shop.add("c", CONSUMER)
    shop.settle()
    assert shop.kind() == CONSUMER
    assert sorted(map(len, shop.shares().values())) == [1, 1, 2]
    shop.stop("a")
    shop.add("d", CONSUMER)
    shop.settle()
    shop.stop("b")
    shop.settle()
    assert (shop.kind(), sorted(map(len, shop.shares().values()))) == (CONSUMER, [2, 2])
    shop.add("e", CLASSIC, assignor())
    shop.settle()
    assert sorted(map(len, shop.shares().values())) == [1, 1, 2]
    shop.stop("c")
    shop.settle()
    assert shop.kind() == CONSUMER
    shop.stop("d")
    shop.settle()
    assert (shop.kind(), shop.shares()) == (CLASSIC, {"e": [0, 1, 2, 3]})
    assert len(shop.ask(OffsetFetch("g")).offsets) == 4
    assert shop.refused == []


def test_member_that_shares_the_group_is_described_by_its_protocol(shop: Shop):
    shop.add("a", CLASSIC)
    shop.add("b", CONSUMER)
    shop.settle()
    described = shop.ask(ConsumerGroupDescribe("g"))
    assert {m.client_id: m.member_type for m in described.members} == {"a": CLASSIC_MEMBER, "b": CONSUMER_MEMBER}
    assert described.state == "Stable"


def test_cooperative_member_reads_on_while_others_come(shop: Shop):
    """It revokes only what moves, in the consumer group as well as in the classic one."""
    one = shop.add("a", CLASSIC, CooperativeStickyAssignor())
    shop.settle()
    shop.add("b", CONSUMER)
    kept = set(one.held)
    for _ in range(8):
        shop.settle(1)
        kept &= one.held
    assert len(kept) == 2
    assert one.lost == []


def test_classic_member_that_does_not_join_again_is_removed_after_its_rebalance_timeout(shop: Shop):
    one = shop.add("a", CLASSIC)
    shop.settle()
    shop.add("b", CONSUMER)
    until_ms = shop.now_ms + MAX_POLL_MS
    while shop.now_ms < until_ms - 3_000:
        shop.now_ms += 3_000
        shop.effects(shop.coordinator.tick(shop.now_ms))
        shop.turn(shop.readers["b"])
        for action in one.member.poll(shop.now_ms, by_application=False):
            shop.perform(one, action)
        assert shop.readers["b"].held == set()
    one.held.clear()
    shop.kill("a")
    shop.settle(4)
    assert shop.shares() == {"b": [0, 1, 2, 3]}


def test_dead_members_of_both_protocols_are_removed_after_their_sessions(shop: Shop):
    shop.add("a", CLASSIC)
    shop.add("b", CONSUMER)
    shop.add("c", CLASSIC)
    shop.settle()
    shop.kill("a")
    shop.kill("b")
    shop.settle(24)
    assert (shop.kind(), shop.shares()) == (CLASSIC, {"c": [0, 1, 2, 3]})


def test_static_member_is_replaced_by_one_of_the_other_protocol_and_keeps_its_partitions(shop: Shop):
    shop.add("a", CLASSIC, instance="i")
    shop.add("b", CLASSIC, instance="j")
    shop.settle()
    mine = set(shop.readers["b"].held)
    shop.stop("b")
    shop.add("c", CONSUMER, instance="j")
    shop.settle()
    assert shop.kind() == CONSUMER
    assert shop.readers["c"].held == mine
    shop.stop("c")
    shop.add("d", CLASSIC, instance="j")
    shop.settle()
    assert (shop.kind(), sorted(map(len, shop.shares().values()))) == (CLASSIC, [2, 2])


def test_group_becomes_classic_only_when_all_have_reached_their_target(shop: Shop):
    """Until then, members are in different generations, in which an assignor cannot see all that is owned."""
    one = shop.add("a", CLASSIC, CooperativeStickyAssignor())
    shop.settle()
    shop.add("b", CONSUMER)
    shop.turn(shop.readers["b"])
    shop.now_ms += 3_000
    for action in one.member.poll(shop.now_ms):
        shop.perform(one, action)
    shop.stop("b")
    assert shop.kind() == CONSUMER
    shop.settle()
    assert (shop.kind(), one.numbers()) == (CLASSIC, [0, 1, 2, 3])


def test_policy_decides_which_groups_change(shop: Shop):
    for policy, upgrades, downgrades in (
        (MigrationPolicy.DISABLED, False, False),
        (MigrationPolicy.UPGRADE, True, False),
        (MigrationPolicy.DOWNGRADE, False, True),
    ):
        shop = Shop(policy)
        shop.topics.put("t", 4)
        shop.add("a", CLASSIC)
        shop.settle()
        shop.add("b", CONSUMER)
        if not upgrades:
            with pytest.raises(AssertionError, match="online upgrade is disabled"):
                shop.settle()
            assert (shop.kind(), shop.shares()["a"]) == (CLASSIC, [0, 1, 2, 3])
            continue
        shop.settle()
        assert shop.kind() == CONSUMER
        shop.stop("b")
        shop.settle()
        assert (shop.kind() == CLASSIC) is downgrades
        assert shop.shares() == {"a": [0, 1, 2, 3]}


def joins(name: str, metadata: bytes, **changes) -> JoinGroup:
    """A join of a classic member with one protocol."""
    fields = {"protocol_type": "consumer", "session_timeout_ms": SESSION_MS} | changes
    return JoinGroup("g", "", fields["protocol_type"], ((name, metadata),), fields["session_timeout_ms"], MAX_POLL_MS)


PLAIN = encode_subscription(Subscription(("t",)))
WITH_DATA = encode_subscription(Subscription(("t",), user_data=b"x"))


@pytest.mark.parametrize(
    ("join", "error"),
    [
        (joins("range", PLAIN), ErrorCode.NONE),
        (joins("sticky", WITH_DATA), ErrorCode.NONE),
        (joins("range", b""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (joins("range", PLAIN, protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            joins("mine", WITH_DATA),
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        (joins("range", PLAIN, session_timeout_ms=0), ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_consumer_group_takes_classic_members_that_it_can_assign_partitions_to(shop: Shop, join, error):
    shop.add("b", CONSUMER)
    shop.settle()
    assert shop.ask(join).error is error


def test_classic_members_of_a_consumer_group_share_a_protocol(shop: Shop):
    shop.add("b", CONSUMER)
    shop.settle()
    shop.ask(joins("range", PLAIN))
    assert shop.ask(joins("roundrobin", PLAIN)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_group_without_migration_refuses_classic_members():
    shop = Shop(MigrationPolicy.DISABLED)
    shop.topics.put("t", 4)
    shop.add("b", CONSUMER)
    shop.settle()
    assert shop.ask(joins("range", PLAIN)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("join", "why"),
    [
        (joins("range", b""), "the embedded consumer protocol is malformed"),
        (joins("range", PLAIN, protocol_type="connect"), "does not use the consumer embedded protocol"),
        (joins("stream", WITH_DATA), "unsupported custom assignor"),
    ],
)
def test_classic_group_of_other_members_stays_classic(shop: Shop, join, why):
    shop.ask(join)
    answer = shop.ask(ConsumerGroupHeartbeat("g", "m", 0, rebalance_timeout_ms=1_000, topics=["t"], owned={}))
    assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert why in answer.message
    assert shop.kind() == CLASSIC


def test_assignment_with_data_of_its_assignor_is_not_thrown_away(shop: Shop):
    joined = shop.ask(joins("mine", PLAIN))
    data = encode_assignment(Assignment((TopicPartition("t", 0),), b"data"))
    shop.ask(SyncGroup("g", joined.generation_id, joined.member_id, assignments={joined.member_id: data}))
    answer = shop.ask(ConsumerGroupHeartbeat("g", "m", 0, rebalance_timeout_ms=1_000, topics=["t"], owned={}))
    assert "unsupported custom assignor" in answer.message


def test_requests_of_classic_members_are_checked(shop: Shop):
    shop.add("b", CONSUMER)
    shop.settle()
    one = shop.ask(joins("range", PLAIN))
    me, generation = one.member_id, one.generation_id
    assert (one.leader, one.protocol_name, one.members) == ("", "range", ())
    assert shop.ask(SyncGroup("g", generation, "x")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert shop.ask(SyncGroup("g", generation, "b")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert shop.ask(SyncGroup("g", generation + 1, me)).error is ErrorCode.ILLEGAL_GENERATION
    assert shop.ask(SyncGroup("g", generation, me, protocol_type="x")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shop.ask(SyncGroup("g", generation, me, protocol_name="x")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shop.ask(SyncGroup("g", generation, me)).error is ErrorCode.NONE
    assert shop.ask(Heartbeat("g", generation + 1, me)).error is ErrorCode.ILLEGAL_GENERATION
    assert shop.ask(Heartbeat("g", generation, "b")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert shop.ask(Heartbeat("g", generation, me)).error is ErrorCode.NONE
    late = OffsetCommit("g", {TopicPartition("t", 0): OffsetAndMetadata(5)}, generation - 1, me)
    assert set(shop.ask(late).errors.values()) == {ErrorCode.ILLEGAL_GENERATION}
    assert shop.ask(LeaveGroup("g", "b")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert shop.ask(LeaveGroup("g", me)).error is ErrorCode.NONE
    assert shop.ask(Heartbeat("g", generation, me)).error is ErrorCode.UNKNOWN_MEMBER_ID


STEPS = st.sampled_from(
    ["turn", "turn", "turn", "request", "response", "stop", "kill", "time", "time", "grow", "restart"]
)
ASSIGNORS = {"range": RangeAssignor, "sticky": StickyAssignor, "cooperative": CooperativeStickyAssignor}


@given(
    st.sampled_from(sorted(ASSIGNORS)),
    st.lists(st.tuples(STEPS, st.integers(0, 3), st.booleans()), max_size=80),
    st.booleans(),
    INTERVALS_MS,
)
def test_no_partition_is_read_by_two_and_all_are_read_in_the_end(
    assignor: str, steps: list[tuple[str, int, bool]], ends_classic: bool, interval_ms: int
):
    """Members are rolled to and fro, requests and responses are lost, topics grow, the coordinator restarts."""
    shop = Shop(interval_ms=interval_ms)
    shop.topics.put("t", 3)

    def start(number: int, life: int, is_classic: bool) -> None:
        kind = CLASSIC if is_classic else CONSUMER
        instance = f"i{number}" if number == 3 else None
        topics = ("t", "u") if number % 2 else ("t",)
        shop.add(f"{number}-{life}", kind, ASSIGNORS[assignor](), instance=instance, topics=topics)

    for number in range(4):
        start(number, 0, True)
    for life, (step, number, is_classic) in enumerate(steps, 1):
        name = next(name for name in shop.readers if name.startswith(f"{number}-"))
        match step:
            case "turn":
                shop.turn(shop.readers[name])
            case "request" | "response":
                shop.turn(shop.readers[name], step)
            case "stop" | "kill":
                (shop.stop if step == "stop" else shop.kill)(name)
                start(number, life, is_classic)
            case "time":
                shop.settle(1)
            case "grow":
                topic = "u" if number % 2 else "t"
                shop.topics.put(topic, shop.topics.by_name.get(topic, (b"", 0))[1] + 1 + number)
            case "restart":
                shop.restart()
        shop.check()
    shop.settle(SESSION_MS // 3_000 + 12)
    for number in range(4):
        name = next(name for name in shop.readers if name.startswith(f"{number}-"))
        shop.stop(name)
        start(number, 1_000, ends_classic)
        shop.settle(2)
    shop.settle(2 * SESSION_MS // 3_000)
    held = [partition for reader in shop.readers.values() for partition in reader.held]
    wanted = {
        TopicPartition(name, number) for name, (_, count) in shop.topics.by_name.items() for number in range(count)
    }
    assert len(held) == len(set(held))
    assert set(held) == wanted
    assert shop.kind() == (CLASSIC if ends_classic else CONSUMER)
