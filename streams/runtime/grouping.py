"""The partition groups of tasks: merging sub-topologies into one task, and keeping keys with their state.

The module imports only ``core`` and ``topology``.
"""

from collections.abc import Iterable, Mapping, Sequence

from streams.core.errors import TopologyError
from streams.core.records import TaskId, TopicPartition
from streams.topology import SubTopology


def merged(subs: Sequence[SubTopology]) -> list[SubTopology]:
    """Merge all sub-topologies that have tasks into one; sub-topologies of global stores are unchanged."""
    local = [sub for sub in subs if not sub.is_global]
    if not local:
        return list(subs)

    def joined(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in names for name in part))

    one = SubTopology(
        0,
        joined(sub.nodes for sub in local),
        joined(sub.source_topics for sub in local),
        joined(sub.sink_topics for sub in local),
        joined(sub.stores for sub in local),
    )
    return [one, *(sub for sub in subs if sub.is_global)]


def kept_together(
    groups: dict[TaskId, tuple[TopicPartition, ...]],
    sub_id: int,
    count: int,
    partitions: Mapping[str, int],
    is_default: bool,
) -> dict[TaskId, tuple[TopicPartition, ...]]:
    """Move new partitions to the partition groups that have the state of their keys.

    If a topic grows to a multiple of its partition count, the keys of a new partition come from the old partition with
    the same number modulo the old count, since the partitioner uses the hash of the key modulo the count.
    """
    beyond = [task for task in sorted(groups) if task.sub_topology == sub_id and task.partition >= count]
    if not beyond:
        return groups
    topics = sorted({partition.topic for task in beyond for partition in groups[task]})
    misfits = [topic for topic in topics if partitions[topic] % count]
    if misfits or not is_default:
        listed = ", ".join(f"{topic!r} has {partitions[topic]}" for topic in misfits or topics)
        raise TopologyError(
            f"sub-topology {sub_id} has state in {count} partition groups, but {listed} partitions now: keys would "
            f"leave the group that has their state; grow a topic to a multiple of {count}, or start with a new "
            "application id"
        )
    result = {task: group for task, group in groups.items() if task not in beyond}
    for task in beyond:
        home = TaskId(sub_id, task.partition % count)
        result[home] = (*result[home], *groups[task])
    return result


def check_groups(groups: Mapping[TaskId, Sequence[TopicPartition]]) -> None:
    """Check that the partition grouper assigned each partition to only one task per sub-topology.

    Raises:
        TopologyError: a partition was assigned to two tasks of the same sub-topology.
    """
    owner: dict[tuple[int, TopicPartition], TaskId] = {}
    for task_id, partitions in groups.items():
        for partition in partitions:
            other = owner.setdefault((task_id.sub_topology, partition), task_id)
            if other != task_id:
                raise TopologyError(
                    f"the partition grouper assigned {partition} to tasks {other} and {task_id}; assign it to one task"
                )
