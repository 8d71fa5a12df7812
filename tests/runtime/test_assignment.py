"""Whole partition groups, sticky and even; state goes ahead of the tasks."""

from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from streams import TaskId, TopicPartition
from streams.group.subscriptions import Subscription
from streams.runtime.assignment import Blueprint, StreamsAssignor, tasks_of
from streams.runtime.facts import Directive, MemberFacts, PartitionLayout
from streams.runtime.sharing import Sharing, SharingRules


def tasks(*sizes):
    return [TaskId(sub, number) for sub, size in enumerate(sizes) for number in range(size)]


def members(count, process=lambda number: f"p{number}"):
    return {f"m{number}": MemberFacts(process(number)) for number in range(count)}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 7), st.integers(1, 7))
def test_every_task_has_one_owner_and_nobody_two_more_than_another(sizes, before, after):
    """Also when members come or go, and then nobody loses what balance does not ask for."""
    all_tasks = tasks(*sizes)
    first = Sharing(all_tasks, (), members(before), [f"m{n}" for n in range(before)]).balanced()
    facts = {f"m{number}": MemberFacts(f"p{number}", tuple(first.get(f"m{number}", ()))) for number in range(after)}
    owned = {task: member for member, held in facts.items() for task in held.active}
    second = Sharing(all_tasks, (), facts, sorted(facts), owned).balanced()

    for shared in (first, second):
        assert sorted(task for held in shared.values() for task in held) == sorted(all_tasks)
        counts = [len(held) for held in shared.values()]
        assert max(counts) - min(counts) <= 1
    each = len(all_tasks) // after
    for member, held in second.items():
        kept = set(first.get(member, ())) & set(held)
        assert len(kept) >= min(each, len(first.get(member, ())))


def test_task_that_must_move_prefers_the_process_that_has_its_state():
    facts = {"a": MemberFacts("p1"), "b": MemberFacts("p2", positions={TaskId(0, 0): 5})}

    assert Sharing(tasks(2), (), facts, ["a", "b"]).balanced() == {"a": [TaskId(0, 1)], "b": [TaskId(0, 0)]}


def test_task_with_much_state_stays_until_a_warm_up_copy_is_complete():
    """A new member is to get half of the tasks: first it gets copies of them, two at once, then the tasks."""
    all_tasks = tasks(4)
    ends = dict.fromkeys(all_tasks, 50_000)
    old = MemberFacts("p1", tuple(all_tasks))
    owned = dict.fromkeys(all_tasks, "a")

    first = Sharing(
        all_tasks, all_tasks, {"a": old, "b": MemberFacts("p2")}, ["a", "b"], owned, ends, SharingRules(max_warmups=1)
    ).shares()
    assert (first["a"].active, first["b"].active) == (all_tasks, [])
    [copied] = first["b"].warmup

    behind = MemberFacts("p2", standby=(copied,), positions={copied: 30_000})
    second = Sharing(
        all_tasks, all_tasks, {"a": old, "b": behind}, ["a", "b"], owned, ends, SharingRules(max_warmups=1)
    ).shares()
    assert (second["b"].active, second["b"].warmup) == ([], [copied])

    ready = MemberFacts("p2", standby=(copied,), positions={copied: 45_000})
    third = Sharing(
        all_tasks, all_tasks, {"a": old, "b": ready}, ["a", "b"], owned, ends, SharingRules(max_warmups=1)
    ).shares()
    assert third["b"].active == [copied]
    assert third["b"].warmup != [copied]


def test_standby_copies_are_on_other_processes_and_spread():
    """Two members of one process never keep a copy of each other's tasks."""
    all_tasks = tasks(6)
    facts = {"a1": MemberFacts("p1"), "a2": MemberFacts("p1"), "b": MemberFacts("p2"), "c": MemberFacts("p3")}

    shares = Sharing(all_tasks, all_tasks, facts, list(facts), {}, {}, SharingRules(standby_replicas=1)).shares()

    for task in all_tasks:
        active = [facts[member].process_id for member, mine in shares.items() if task in mine.active]
        copies = [facts[member].process_id for member, mine in shares.items() if task in mine.standby]
        assert len(active) == len(copies) == 1
        assert active != copies
    loads = [mine.load for mine in shares.values()]
    assert max(loads) - min(loads) <= 2


def test_standby_takes_over_when_the_owner_is_gone():
    facts = {
        "b": MemberFacts("p2", positions={TaskId(0, 0): 10}),
        "c": MemberFacts("p3", standby=(TaskId(0, 0),), positions={TaskId(0, 0): 90_000}),
    }
    ends = {TaskId(0, 0): 90_000}

    shares = Sharing(
        [TaskId(0, 0)], [TaskId(0, 0)], facts, ["b", "c"], {}, ends, SharingRules(standby_replicas=1)
    ).shares()

    assert shares["c"].active == [TaskId(0, 0)]
    assert shares["b"].standby == [TaskId(0, 0)]


class Stateless:
    """A member without tasks; nothing has a changelog."""

    def facts(self) -> MemberFacts:
        return MemberFacts("p")

    def changelog_ends(self, layout: PartitionLayout, tasks: Collection[TaskId]) -> Mapping[TaskId, int]:
        return dict.fromkeys(tasks, 0)


def test_group_whose_partitions_change_hands_waits_for_its_old_owner():
    """Cooperative: what somebody still owns is free in the next generation only, and groups stay whole."""
    left, right = TopicPartition("left", 0), TopicPartition("right", 0)
    groups = {TaskId(0, 0): (left, right), TaskId(0, 1): (TopicPartition("left", 1), TopicPartition("right", 1))}
    assignor = StreamsAssignor(lambda _: Blueprint(PartitionLayout({"left": 2, "right": 2}), groups))
    assignor.member = Stateless()
    old = Subscription(
        ("left", "right"),
        tuple(tp for group in groups.values() for tp in group),
        1,
        MemberFacts("p1", tuple(groups)).encode(),
    )
    new = Subscription(("left", "right"), (), -1, MemberFacts("p2").encode())

    given = assignor.assign({"left": 2, "right": 2}, {"old": old, "new": new})

    assert [len(given[member].partitions) for member in ("old", "new")] == [2, 0]
    assert tasks_of(groups, given["old"].partitions)
    assert Directive.decode(given["old"].user_data).layout == PartitionLayout({"left": 2, "right": 2})
