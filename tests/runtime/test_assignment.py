"""Whole partition groups, sticky and even; state goes ahead of the tasks."""

from collections.abc import Collection, Mapping

from attrs import define, evolve
from hypothesis import given
from hypothesis import strategies as st

from streams import TaskId, TopicPartition
from streams.group.assignment.subscriptions import Subscription
from streams.runtime.assignment.assignment import Blueprint, StreamsAssignor, tasks_of
from streams.runtime.plan.facts import Directive, MemberFacts, PartitionLayout
from streams.runtime.plan.sharing import Sharing, SharingRules


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
    """A new member is to get half of the tasks: first it gets copies of them, two at once, then the tasks.

    A copy that is 10,000 records behind, as many as are acceptable, is complete.
    """
    all_tasks = tasks(4)
    ends = dict.fromkeys(all_tasks, 50_000)
    old = MemberFacts("p1", tuple(all_tasks))
    owned = dict.fromkeys(all_tasks, "a")

    first = Sharing(
        all_tasks, all_tasks, {"a": old, "b": MemberFacts("p2")}, ["a", "b"], owned, ends, SharingRules(max_warmups=1)
    ).shares()
    assert (first["a"].active, first["b"].active) == (all_tasks, [])
    [copied] = first["b"].warmup

    behind = MemberFacts("p2", standby=(copied,), positions={copied: 39_999})
    second = Sharing(
        all_tasks, all_tasks, {"a": old, "b": behind}, ["a", "b"], owned, ends, SharingRules(max_warmups=1)
    ).shares()
    assert (second["b"].active, second["b"].warmup) == ([], [copied])

    ready = MemberFacts("p2", standby=(copied,), positions={copied: 40_000})
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


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([*"abc", None])), min_size=1, max_size=7),
    st.integers(1, 12),
    st.integers(1, 3),
)
def test_copies_of_a_task_are_in_as_many_zones_as_there_are_copies(processes, count, replicas):
    """Processes have threads and a zone, or none; every process has at most one copy, and nobody flees a good place."""
    all_tasks, zone_of, facts = tasks(count), {}, {}
    for number, (threads, zone) in enumerate(processes):
        zone_of[f"p{number}"] = zone
        for thread in range(threads):
            facts[f"m{number}-{thread}"] = MemberFacts(f"p{number}", client_tags={"zone": zone} if zone else {})
    rules = SharingRules(standby_replicas=replicas, tags=("zone",))
    sharing = Sharing(all_tasks, all_tasks, facts, sorted(facts), {}, {}, rules)

    shares = sharing.shares()

    for task in all_tasks:
        held = [
            facts[m].process_id
            for m, share in shares.items()
            for _ in range((share.active + share.standby).count(task))
        ]
        assert len(held) == len(set(held)) == min(replicas + 1, len(processes))
        zones = [zone_of[process] for process in held if zone_of[process]]
        kinds = {zone for zone in zone_of.values() if zone}
        # A process without the tag is as good as one of another zone.
        assert len(set(zones)) == len(zones) or {*zones} == kinds
        assert sharing.crowded.count(task) == len(zones) - len(set(zones))
    again = {
        member: evolve(held, active=tuple(shares[member].active), standby=tuple(shares[member].standby))
        for member, held in facts.items()
    }
    owned = {task: member for member, share in shares.items() for task in share.active}
    second = Sharing(all_tasks, all_tasks, again, sorted(facts), owned, {}, rules).shares()
    assert {m: (s.active, s.standby) for m, s in second.items()} == {
        m: (s.active, s.standby) for m, s in shares.items()
    }


def test_second_copy_differs_in_every_tag_and_the_third_in_the_one_that_is_left():
    """Three zones in two clusters, two standby replicas: the example of KIP-708."""
    places = [(zone, cluster) for cluster in ("c1", "c2") for zone in ("a", "b", "c")]
    facts = {
        f"m{number}": MemberFacts(f"p{number}", client_tags={"zone": zone, "cluster": cluster})
        for number, (zone, cluster) in enumerate(places)
    }
    rules = SharingRules(standby_replicas=2, tags=("zone", "cluster"))

    shares = Sharing(tasks(12), tasks(12), facts, sorted(facts), {}, {}, rules).shares()

    for task in tasks(12):
        held = [facts[m].client_tags for m, share in shares.items() if task in (*share.active, *share.standby)]
        assert {tags["zone"] for tags in held} == {"a", "b", "c"}
        assert {tags["cluster"] for tags in held} == {"c1", "c2"}


def test_leader_says_that_instances_with_other_tags_are_missing(caplog):
    groups = {TaskId(0, 0): (TopicPartition("left", 0),)}
    rules = SharingRules(standby_replicas=1, tags=("zone",))
    assignor = StreamsAssignor(lambda _: Blueprint(PartitionLayout({"left": 1}), groups, list(groups)), rules)
    assignor.member = Stateless()
    members = {name: MemberFacts(name, client_tags={"zone": "a"}).encode() for name in ("p1", "p2")}

    assignor.assign({"left": 1}, {name: Subscription(("left",), (), -1, data) for name, data in members.items()})

    assert (
        "1 standby replicas, such as that of task 0_0, share a tag of rack_aware_assignment_tags (zone)" in caplog.text
    )


@define
class Stateless:
    """A member without tasks; all changelogs are of one length."""

    length: int = 0

    def facts(self) -> MemberFacts:
        return MemberFacts("p")

    def changelog_ends(self, layout: PartitionLayout, tasks: Collection[TaskId]) -> Mapping[TaskId, int]:
        return dict.fromkeys(tasks, self.length)


def test_second_process_without_state_gets_a_copy_before_a_task_with_much_state():
    """Nobody has a copy yet: how long changelogs are decides, and is looked up as soon as there are two processes."""
    groups = {TaskId(0, number): (TopicPartition("left", number),) for number in range(2)}
    assignor = StreamsAssignor(lambda _: Blueprint(PartitionLayout({"left": 2}), groups, list(groups)))
    assignor.member = Stateless(50_000)
    partitions = tuple(partition for group in groups.values() for partition in group)
    old = Subscription(("left",), partitions, 1, MemberFacts("p1", tuple(groups)).encode())
    new = Subscription(("left",), (), -1, MemberFacts("p2").encode())

    assigned = assignor.assign({"left": 2}, {"old": old, "new": new})

    directives = {name: Directive.decode(each.user_data) for name, each in assigned.items()}
    assert list(directives["old"].active) == list(groups)
    assert len(directives["new"].warmup) == 1


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
