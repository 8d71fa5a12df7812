"""A consumer's membership of KIP-848 against the coordinator: what it does, and that nothing is read by two."""

from collections import Counter

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks.records import TopicPartition
from streams.group import (
    Assign,
    ConsumerHeartbeats,
    CoordinatorConfig,
    EpochMember,
    Failed,
    Lose,
    MemberConfig,
    MemberState,
    Revoke,
    Send,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse
from streams.protocol.messages import FindCoordinator, FindCoordinatorResponse
from tests.group.desk import INTERVALS_MS, Desk
from tests.group.test_consumer_groups import SESSION_MS

MAX_POLL_MS = 60_000


@define
class Reader:
    """A consumer around a member: ``held`` is what it may read, after its listeners have run."""

    desk: Desk
    name: str
    topics: tuple[str, ...] = ("t",)
    topic_regex: str = ""
    instance: str | None = None
    assignor: str | None = None
    known: set[str] | None = None
    held: set[TopicPartition] = field(factory=set)
    events: list[object] = field(factory=list)
    requests: list[ConsumerGroupHeartbeat] = field(factory=list)
    member: EpochMember = field(init=False)

    def __attrs_post_init__(self) -> None:
        config = MemberConfig("g", self.name, self.instance, SESSION_MS, 3_000, MAX_POLL_MS, 100)
        heartbeats = ConsumerHeartbeats(config, self, self.names_by_id, rack_id="r", server_assignor=self.assignor)
        self.member = EpochMember(config, heartbeats)
        self.member.member_id = self.name

    def names_by_id(self) -> dict[bytes, str]:
        """The names in the metadata, which may lack some."""
        return {
            topic_id: name
            for name, (topic_id, _) in self.desk.topics.by_name.items()
            if self.known is None or name in self.known
        }

    def turn(self, *, loses_request: bool = False, loses_response: bool = False) -> None:
        """Act until nothing is due; the first heartbeat may be lost, or its response."""
        while actions := self.member.poll(self.desk.now_ms):
            for action in actions:
                self.perform(action, loses_request=loses_request, loses_response=loses_response)

    def perform(self, action: object, *, loses_request: bool = False, loses_response: bool = False) -> None:
        """Perform an action as a consumer does."""
        match action:
            case Send(_, FindCoordinator() as request):
                self.member.on_response(request, FindCoordinatorResponse(ErrorCode.NONE, 0), self.desk.now_ms)
            case Send(_, ConsumerGroupHeartbeat() as request):
                self.requests.append(request)
                lost = ConnectionError("cut")
                response = lost if loses_request else self.desk.ask(request)
                self.member.on_response(request, lost if loses_response else response, self.desk.now_ms)
            case Revoke(partitions) | Lose(partitions):
                self.held.difference_update(partitions)
                self.events.append(action)
            case Assign(partitions, _):
                self.held = set(partitions)
                self.events.append(action)
            case Failed(error):
                raise error

    def close(self) -> None:
        """Leave."""
        for action in self.member.leave():
            self.perform(action)

    def numbers(self) -> list[int]:
        """The numbers of the partitions that are read."""
        return sorted(number for _, number in self.held)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.topics.put("t", 4)
    return desk


def settle(desk: Desk, *readers: Reader) -> None:
    """Let time pass and everybody act until nothing changes any more."""
    for _ in range(5):
        desk.advance(5_000)
        for reader in readers:
            reader.turn()


def test_first_heartbeat_says_everything_and_later_ones_what_has_changed(desk: Desk):
    one = Reader(desk, "one", assignor="range")
    one.turn()
    first, confirmation = one.requests
    assert (first.member_epoch, first.topics, first.owned, first.rebalance_timeout_ms) == (0, ("t",), {}, MAX_POLL_MS)
    assert (first.rack_id, first.server_assignor) == ("r", "range")
    assert (confirmation.member_epoch, confirmation.topics, len(confirmation.owned)) == (1, None, 1)
    settle(desk, one)
    assert one.requests[-1].owned is None
    assert one.events == [Assign(tuple(sorted(one.held)), tuple(sorted(one.held)))]


def test_what_moves_is_revoked_before_it_is_confirmed(desk: Desk):
    one, two = Reader(desk, "one"), Reader(desk, "two")
    settle(desk, one)
    two.turn()
    desk.advance(5_000)
    (heartbeat,) = one.member.poll(desk.now_ms)
    one.perform(heartbeat)
    revoke, assign = one.member.poll(desk.now_ms)
    assert isinstance(revoke, Revoke)
    assert one.requests[-1].owned is None
    one.perform(revoke)
    one.perform(assign)
    one.turn()
    assert sorted(number for numbers in one.requests[-1].owned.values() for number in numbers) == [0, 1]
    settle(desk, one, two)
    assert (one.numbers(), two.numbers()) == ([0, 1], [2, 3])


def test_heartbeat_while_the_application_is_busy_confirms_nothing(desk: Desk):
    """The session goes on; what the response changes waits for the application."""
    one, two = Reader(desk, "one"), Reader(desk, "two")
    settle(desk, one)
    two.turn()
    for _ in range(SESSION_MS // 5_000 + 1):
        desk.advance(5_000)
        for action in one.member.poll(desk.now_ms, by_application=False):
            assert isinstance(action, Send)
            one.perform(action)
        assert one.requests[-1].owned is None
        two.turn()
    waiting = one.member.poll(desk.now_ms)
    assert [type(action) for action in waiting] == [Revoke, Assign]
    sign = one.member.sign_of_life(desk.now_ms)
    assert sign is not None
    one.perform(sign)
    assert one.requests[-1].owned is None
    two.turn()
    assert (one.numbers(), two.numbers()) == ([0, 1, 2, 3], [])
    for action in waiting:
        one.perform(action)
    settle(desk, one, two)
    assert (one.numbers(), two.numbers()) == ([0, 1], [2, 3])


def test_removed_member_loses_its_partitions_and_joins_again(desk: Desk):
    one = Reader(desk, "one")
    settle(desk, one)
    desk.advance(SESSION_MS)
    one.turn()
    assert isinstance(one.events[1], Lose)
    settle(desk, one)
    assert one.numbers() == [0, 1, 2, 3]


def test_application_that_does_not_poll_leaves(desk: Desk):
    one, two = Reader(desk, "one"), Reader(desk, "two")
    settle(desk, one, two)
    for _ in range(13):
        desk.advance(5_000)
        for action in one.member.poll(desk.now_ms, by_application=False):
            if isinstance(action, Send):
                one.perform(action)
        two.turn()
    settle(desk, two)
    assert two.numbers() == [0, 1, 2, 3]
    assert one.requests[-1].member_epoch == -1


def test_partitions_of_a_topic_whose_name_is_unknown_wait(desk: Desk):
    desk.topics.put("u", 2)
    one = Reader(desk, "one", topics=("t", "u"), known={"t"})
    settle(desk, one)
    assert {topic for topic, _ in one.held} == {"t"}
    assert one.member.needs_metadata
    one.known = None
    one.turn()
    assert {topic for topic, _ in one.held} == {"t", "u"}
    assert not one.member.needs_metadata


def test_static_member_leaves_for_a_while(desk: Desk):
    one, two = Reader(desk, "one"), Reader(desk, "two", instance="i")
    settle(desk, one, two)
    mine = set(two.held)
    two.close()
    assert two.requests[-1].member_epoch == -2
    settle(desk, one)
    again = Reader(desk, "three", instance="i")
    settle(desk, one, again)
    assert again.held == mine


def test_static_member_waits_for_its_predecessor(desk: Desk, caplog: pytest.LogCaptureFixture):
    one, heir = Reader(desk, "one", instance="i"), Reader(desk, "two", instance="i")
    settle(desk, one)
    heir.turn()
    assert "'i' belongs to another member" in caplog.text
    desk.advance(SESSION_MS)
    settle(desk, heir)
    assert heir.numbers() == [0, 1, 2, 3]
    with pytest.raises(Exception, match="another process has joined as group_instance_id 'i'"):
        settle(desk, one)


def test_rejected_heartbeat_is_an_error_with_the_words_of_the_broker(desk: Desk):
    one = Reader(desk, "one", assignor="best")
    with pytest.raises(Exception, match=r"UNSUPPORTED_ASSIGNOR: ServerAssignor best .*uniform, range"):
        one.turn()
    assert one.member.state is MemberState.FAILED


def test_response_of_an_earlier_life_is_ignored(desk: Desk):
    one = Reader(desk, "one")
    settle(desk, one)
    old = ConsumerGroupHeartbeat("g", "one", 1)
    one.member.on_response(old, ConsumerGroupHeartbeatResponse(ErrorCode.FENCED_MEMBER_EPOCH), desk.now_ms)
    assert one.member.generation_id == 1


STEPS = st.sampled_from(["turn", "turn", "lost request", "lost response", "close", "die", "time", "grow", "restart"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 3)), max_size=60), INTERVALS_MS)
def test_no_partition_is_read_by_two_and_all_are_read_in_the_end(steps: list[tuple[str, int]], interval_ms: int):
    """Requests and responses are lost, members leave and die, topics grow, the coordinator restarts."""
    desk = Desk(config=CoordinatorConfig(consumer_assignment_interval_ms=interval_ms))
    desk.topics.put("t", 3)

    def reader(number: int, life: int) -> Reader:
        instance = f"i{number}" if number == 3 else None
        return Reader(desk, f"m{number}-{life}", ("t", "u") if number % 2 else ("t",), instance)

    readers = [reader(number, 0) for number in range(4)]
    for life, (step, number) in enumerate(steps, 1):
        one = readers[number]
        match step:
            case "turn":
                one.turn()
            case "lost request":
                one.turn(loses_request=True)
            case "lost response":
                one.turn(loses_response=True)
            case "close" | "die":
                if step == "close":
                    one.close()
                one.held.clear()
                readers[number] = reader(number, life)
            case "time":
                desk.advance(5_000)
                for other in readers:
                    other.turn()
            case "grow":
                topic = "u" if number % 2 else "t"
                count = desk.topics.by_name.get(topic, (b"", 0))[1]
                desk.topics.put(topic, count + 1 + number)
            case "restart":
                desk.restart()
        holders = Counter(partition for other in readers for partition in other.held)
        assert max(holders.values(), default=0) <= 1, holders
    for _ in range(SESSION_MS // 5_000 + 1):
        settle(desk, *readers)
    held = [partition for other in readers for partition in other.held]
    wanted = {
        TopicPartition(name, number) for name, (_, count) in desk.topics.by_name.items() for number in range(count)
    }
    assert len(held) == len(set(held))
    assert set(held) == wanted
