"""Whole partition groups, sticky and even."""

from hypothesis import given
from hypothesis import strategies as st

from streams import TaskId, TopicPartition
from streams.group.subscriptions import Subscription
from streams.runtime.assignment import MemberTasks, StreamsAssignor, share_tasks, tasks_of


def tasks(*sizes):
    return [TaskId(sub, number) for sub, size in enumerate(sizes) for number in range(size)]


def members(count, process=lambda number: f"p{number}"):
    return {f"m{number}": MemberTasks(process(number)) for number in range(count)}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 7), st.integers(1, 7))
def test_every_task_has_one_owner_and_nobody_two_more_than_another(sizes, before, after):
    """Also when members come or go, and then nobody loses what balance does not ask for."""
    all_tasks = tasks(*sizes)
    first = share_tasks(all_tasks, members(before), [f"m{n}" for n in range(before)])
    facts = {f"m{number}": MemberTasks(f"p{number}", tuple(first.get(f"m{number}", ()))) for number in range(after)}
    second = share_tasks(all_tasks, facts, sorted(facts))

    for shared in (first, second):
        assert sorted(task for held in shared.values() for task in held) == sorted(all_tasks)
        counts = [len(held) for held in shared.values()]
        assert max(counts) - min(counts) <= 1
    each = len(all_tasks) // after
    for member, held in second.items():
        kept = set(first.get(member, ())) & set(held)
        assert len(kept) >= min(each, len(first.get(member, ())))


def test_task_that_must_move_prefers_the_process_that_has_its_state():
    facts = {"a": MemberTasks("p1"), "b": MemberTasks("p2", on_disk=(TaskId(0, 0),))}

    assert share_tasks(tasks(2), facts, ["a", "b"]) == {"a": [TaskId(0, 1)], "b": [TaskId(0, 0)]}


def test_group_whose_partitions_change_hands_waits_for_its_old_owner():
    """Cooperative: what somebody still owns is free in the next generation only, and groups stay whole."""
    left, right = TopicPartition("left", 0), TopicPartition("right", 0)
    groups = {TaskId(0, 0): (left, right), TaskId(0, 1): (TopicPartition("left", 1), TopicPartition("right", 1))}
    assignor = StreamsAssignor(lambda _: groups, lambda: MemberTasks("p"))
    old = Subscription(
        ("left", "right"),
        tuple(tp for group in groups.values() for tp in group),
        1,
        MemberTasks("p1", tuple(groups)).encode(),
    )
    new = Subscription(("left", "right"), (), -1, MemberTasks("p2").encode())

    given = assignor.assign({"left": 2, "right": 2}, {"old": old, "new": new})

    assert [len(given[member].partitions) for member in ("old", "new")] == [2, 0]
    assert tasks_of(groups, given["old"].partitions)
