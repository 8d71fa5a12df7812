"""Leader election, shared tasks and member numbers, through real group members on the embedded broker."""

from random import Random

import pytest

from streams.broker import EmbeddedBroker
from streams.core.clock import VirtualClock
from streams.core.concurrency.threads import SystemThreads
from streams.core.errors import BrokerError, ClientClosedError, ConfigError, MemberFencedError
from streams.group import GroupClient, GroupListener, LeaderElection, MemberNumber, TaskDistribution
from streams.group.client.recipes import share_sticky
from tests.waiting import WATCHDOG_MS


@pytest.fixture
def clock():
    return VirtualClock(1_000_000)


@pytest.fixture
def broker(clock):
    with EmbeddedBroker(clock=clock, rng=Random(5)) as broker:
        yield broker


def beats(clock, *members, seconds=8):
    for _ in range(seconds):
        clock.advance(1_000)
        for member in members:
            member.poll()


class Counted:
    """At most one of these is at work at a time."""

    def __init__(self):
        self.at_work = 0
        self.history = []

    def enter(self, name):
        assert not self.at_work, "two lead at once"
        self.at_work += 1
        self.history.append(name)

    def leave(self):
        self.at_work -= 1


@pytest.fixture
def election(broker, clock):
    counted = Counted()

    def stand(name, **settings):
        return LeaderElection(
            broker,
            "nightly",
            on_elected=lambda: counted.enter(name),
            on_deposed=counted.leave,
            client_id=name,
            clock=clock,
            **settings,
        )

    stand.counted = counted
    return stand


def test_one_leads_and_goes_on_leading_when_others_come(election, clock):
    a, b = election("a"), election("b")
    beats(clock, a)
    beats(clock, a, b)

    assert (a.is_leader, b.is_leader) == (True, False)
    assert set(election.counted.history) == {"a"}

    a.close()
    beats(clock, b)
    assert b.is_leader
    assert election.counted.history[-1] == "b"


def test_leader_that_stalls_knows_by_itself_that_it_leads_no_more(broker, clock):
    deposed = []
    a = LeaderElection(broker, "g", on_deposed=lambda: deposed.append("a"), client_id="a", clock=clock)
    b = LeaderElection(broker, "g", client_id="b", clock=clock)
    beats(clock, a, b)

    for _ in range(30):
        clock.advance(500)
        b.poll()
        assert not (a.is_leader and b.is_leader)

    assert (a.is_leader, b.is_leader) == (False, True), "without a having heard anything"
    del deposed[:]
    beats(clock, a, b)
    assert (a.is_leader, b.is_leader) == (False, True)
    assert deposed == ["a"]


@pytest.mark.parametrize("strategy", ["round_robin", "sticky"])
def test_tasks_are_shared_by_whoever_is_there(broker, clock, strategy):
    tasks = [f"task-{number}" for number in range(7)]
    done_by = {}

    def member(name):
        def take(mine):
            for task in mine:
                assert task not in done_by, "a task has two owners"
                done_by[task] = name

        def drop(mine):
            for task in mine:
                del done_by[task]

        return TaskDistribution(
            broker, "g", tasks, strategy=strategy, on_assigned=take, on_revoked=drop, client_id=name, clock=clock
        )

    a, b, c = (member(name) for name in "abc")
    beats(clock, a)
    assert list(a.tasks) == tasks
    beats(clock, a, b)
    before = a.tasks, b.tasks
    beats(clock, a, b, c)
    assert sorted(a.tasks + b.tasks + c.tasks) == tasks
    assert sorted(map(len, (a.tasks, b.tasks, c.tasks))) == [2, 2, 3]
    if strategy == "sticky":
        assert set(a.tasks) <= set(before[0])
        assert set(b.tasks) <= set(before[1])

    b.close()
    beats(clock, a, c)
    assert sorted(a.tasks + c.tasks) == tasks
    a.change(["other"])
    c.change(["other"])
    beats(clock, a, c, seconds=16)
    assert a.tasks + c.tasks == ("other",)
    assert set(done_by) == {"other"}


@pytest.mark.parametrize("seed", range(20))
def test_sticky_sharing_is_even_and_keeps(seed):
    rng = Random(seed)
    tasks = [f"t{number}" for number in range(rng.randrange(30))]
    held = {}
    for step in range(30):
        members = [f"m{number}" for number in sorted(rng.sample(range(8), rng.randint(1, 8)))]
        before = {member: held.get(member, []) for member in members}
        held = share_sticky(tasks, before)

        assert sorted(task for mine in held.values() for task in mine) == sorted(tasks)
        sizes = sorted(len(mine) for mine in held.values())
        assert sizes[-1] - sizes[0] <= 1
        for member, mine in held.items():
            assert len(set(mine) & set(before[member])) >= min(len(before[member]), len(tasks) // len(members)), step


def test_every_key_is_one_members_by_its_number(broker, clock):
    members = [MemberNumber(broker, "g", client_id=str(number), clock=clock) for number in range(3)]
    beats(clock, *members)
    assert sorted(member.number for member in members) == [0, 1, 2]
    assert all([member.owns(key) for member in members].count(True) == 1 for key in range(10))

    kept = members[0].number
    leaver = next(member for member in members if member.number == 2)
    leaver.close()
    rest = [member for member in members if member is not leaver]
    beats(clock, *rest)
    assert sorted(member.number for member in rest) == [0, 1]
    assert members[0] is leaver or members[0].number == kept
    assert {member.count for member in rest} == {2}
    assert not leaver.owns(2)


def test_group_of_another_kind_is_refused(broker, clock):
    a = LeaderElection(broker, "g", clock=clock)
    a.poll()
    with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
        MemberNumber(broker, "g", clock=clock).poll()


def test_assignor_that_fails_is_asked_again(broker, clock):
    class Failing(GroupListener):
        got = None
        attempts = 0

        def assign(self, members):
            self.attempts += 1
            if self.attempts == 1:
                raise ValueError("not yet")
            if self.attempts == 2:
                return {"nobody": b""}
            return dict.fromkeys(members, b"x")

        def on_assigned(self, assignment):
            self.got = assignment

    listener = Failing()
    client = GroupClient(broker, "g", listener, clock=clock)
    with pytest.raises(ValueError, match="not yet"):
        client.poll()
    clock.advance(100)
    with pytest.raises(ConfigError, match="not members"):
        client.poll()
    clock.advance(100)
    client.poll()
    assert listener.got == b"x"


def test_static_member_comes_back_without_a_round_and_fences_its_double(broker, clock):
    names = dict.fromkeys("ab")
    for name in names:
        names[name] = MemberNumber(broker, "g", client_id=name, group_instance_id=name, clock=clock)
    beats(clock, *names.values())
    generation, number = names["a"].generation_id, names["b"].number

    names["b"].close()
    with MemberNumber(broker, "g", client_id="b", group_instance_id="b", clock=clock) as back:
        beats(clock, names["a"], back)
        assert (back.generation_id, back.number) == (generation, number)
        double = MemberNumber(broker, "g", client_id="b", group_instance_id="b", clock=clock)
        double.poll()
        with pytest.raises(MemberFencedError):
            beats(clock, back)


def test_a_thread_keeps_the_membership():
    threads = SystemThreads()
    elected = threads.signal()
    with EmbeddedBroker() as broker:
        election = LeaderElection(broker, "g", on_elected=elected.set)
        election.start()
        assert elected.wait(WATCHDOG_MS)
        assert election.is_leader
        with pytest.raises(ClientClosedError, match="thread"):
            election.poll()
        election.close()
        assert not election.is_leader
        with pytest.raises(ClientClosedError):
            election.poll()


def test_what_ends_the_thread_is_told():
    threads = SystemThreads()
    failed = threads.signal()

    def fail():
        failed.set()
        raise ValueError("cannot lead")

    with EmbeddedBroker() as broker:
        election = LeaderElection(broker, "g", on_elected=fail)
        election.start()
        assert failed.wait(WATCHDOG_MS)
        with pytest.raises(ValueError, match="cannot lead"):
            election.close()


def test_settings_that_do_not_fit_are_refused(broker):
    with pytest.raises(ConfigError, match="broker"):
        LeaderElection(None, "g")
    with pytest.raises(ConfigError, match="group id"):
        LeaderElection(broker, "")
    with pytest.raises(ConfigError, match="below"):
        LeaderElection(broker, "g", session_timeout_ms=1_000)
    with pytest.raises(ConfigError, match="strategy"):
        TaskDistribution(broker, "g", [], strategy="best")
