"""The partition groups of tasks: merging sub-topologies into one task, and keeping keys with their state.

The module imports only ``core`` and ``topology``.
"""

from collections.abc import Iterable, Mapping, Sequence

from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.errors import TopologyError
from streams.topology import SubTopology, Topology

#: How to divide state anew.  With another application id alone, keys that were written before a topic grew would be in
#: two groups.
START_OVER = (
    "start over with another application id and read the topic with .repartition(), since its older records may be in "
    "other partitions than the newer ones of the same key"
)


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
    groups: Mapping[TaskId, tuple[TopicPartition, ...]],
    counts: Mapping[str, int],
    partitions: Mapping[str, int],
    *,
    is_default: bool,
) -> dict[TaskId, tuple[TopicPartition, ...]]:
    """Move new partitions to the partition groups that have the state of their keys.

    If a topic grows to a multiple of its partition count, the keys of a new partition come from the old partition with
    the same number modulo the old count, since the partitioner uses the hash of the key modulo the count.  ``counts``
    has the number of partition groups among which the keys of a topic are divided.

    Raises:
        TopologyError: a topic has grown to another number of partitions, or the grouper is not the default one.
    """
    result: dict[TaskId, tuple[TopicPartition, ...]] = {}
    for task in sorted(groups):
        homes = {partition: _home(partition, task, counts, partitions, is_default) for partition in groups[task]}
        if not homes or task in homes.values():
            result[task] = ()
        for partition, home in homes.items():
            result[home] = (*result[home], partition)
    return result


def _home(
    partition: TopicPartition, task: TaskId, counts: Mapping[str, int], partitions: Mapping[str, int], is_default: bool
) -> TaskId:
    """Return the task that has the state of the keys of a partition."""
    topic = partition.topic
    count = counts.get(topic, 0)
    if not count or task.partition < count:
        return task
    if not is_default or partitions[topic] % count:
        raise TopologyError(
            f"sub-topology {task.sub_topology} has state in {count} partition groups, but {topic!r} has "
            f"{partitions[topic]} partitions now: keys would leave the group that has their state; grow a topic to a "
            f"multiple of {count}, or {START_OVER}"
        )
    return TaskId(task.sub_topology, partition.partition % count)


def check_changelogs(topology: Topology, partitions: Mapping[str, int], counts: Mapping[str, int]) -> None:
    """Check that no topic that serves as the changelog of a table has grown: a task restores from one partition only.

    Raises:
        TopologyError: such a topic has more partitions than partition groups among which its keys are divided.
    """
    for store, topic in topology.source_changelogs.items():
        count = counts.get(topic, 0)
        if count and partitions[topic] > count:
            raise TopologyError(
                f"topic {topic!r} has grown from {count} to {partitions[topic]} partitions, but it is also the "
                f"changelog of its table (store {store!r}, topology_optimization='all'), which a task restores from "
                f"one partition; {START_OVER}"
            )


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
