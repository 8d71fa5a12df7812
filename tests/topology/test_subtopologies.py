"""Sub-topologies, partition counts and groups."""

import re

import pytest

from streams import JoinWindows, StreamsBuilder, TaskId, Topic, TopicPartition, TopologyError, build_topology
from streams.core.settings.config import StreamsConfig
from streams.topology.subtopologies import SamePartitionGrouper, resolve_partitions, stages, sub_topologies

left = Topic("left", key=str, value=int)
right = Topic("right", key=str, value=int)
out = Topic("out", key=str, value=int)


def build(function):
    return build_topology(function, StreamsConfig.of(application_id="app"))


def rekeyed_count(builder: StreamsBuilder) -> None:
    builder.stream(left).group_by(lambda key, value: str(value)).count("counts").to_stream().to(out)


def joined(builder: StreamsBuilder) -> None:
    from datetime import timedelta

    windows = JoinWindows.of(timedelta(seconds=1))
    builder.stream(left).join(builder.stream(right), lambda one, two: one + two, windows).to(out)


def test_repartition_topic_parts_the_graph_and_gets_the_count_of_its_writers_source():
    topology = build(rekeyed_count)
    subs = sub_topologies(topology)

    counts = resolve_partitions(topology, subs, {"left": 3})

    assert [sub.source_topics for sub in subs] == [("left",), ("counts-repartition",)]
    assert counts["counts-repartition"] == 3


def test_task_reads_the_same_partition_of_all_topics_of_its_sub_topology():
    topology = build(joined)
    subs = sub_topologies(topology)

    groups = SamePartitionGrouper().groups(subs, resolve_partitions(topology, subs, {"left": 2, "right": 2}))

    assert groups == {
        TaskId(0, number): (TopicPartition("left", number), TopicPartition("right", number)) for number in range(2)
    }


def test_inputs_of_a_join_with_other_counts_are_refused_with_both_counts():
    topology = build(joined)

    with pytest.raises(TopologyError, match=r"'left' has 2, 'right' has 3 partitions.*repartition"):
        resolve_partitions(topology, sub_topologies(topology), {"left": 2, "right": 3})


def test_repartition_before_a_join_takes_the_count_of_the_other_side():
    def rekeyed_join(builder: StreamsBuilder) -> None:
        from datetime import timedelta

        one = builder.stream(left).select_key(lambda key, value: str(value))
        one.join(builder.stream(right), lambda a, b: a + b, JoinWindows.of(timedelta(seconds=1))).to(out)

    topology = build(rekeyed_join)

    counts = resolve_partitions(topology, sub_topologies(topology), {"left": 2, "right": 5})

    (repartition,) = topology.internal_topics
    assert counts[repartition] == 5


def test_missing_source_topic_is_named():
    topology = build(rekeyed_count)

    with pytest.raises(TopologyError, match="source topic 'left' does not exist"):
        resolve_partitions(topology, sub_topologies(topology), {})


def test_stages_follow_the_data_and_a_cycle_is_one_stage():
    def foreign_key(builder: StreamsBuilder) -> None:
        table = builder.table(left).join(
            builder.table(right), lambda one, two: one + two, foreign_key=lambda key, value: str(value)
        )
        table.to_stream().group_by(lambda key, value: str(value)).count("after").to_stream().to(out)

    subs = sub_topologies(build(foreign_key))

    assert stages(sub_topologies(build(rekeyed_count))) == [(0,), (1,)]
    assert stages(subs) == [(0, 1), (2,)]


def regrouped(builder: StreamsBuilder) -> None:
    read = builder.stream(re.compile("in-.*"), key=str, value=str)
    read.group_by(lambda _, word: word).count("words").to_stream().to("out")


def looked_up(builder: StreamsBuilder) -> None:
    read = builder.stream(re.compile("in-.*"), key=str, value=str).select_key(lambda _, word: word)
    read.join(builder.table("names", key=str, value=str), lambda word, name: name).to("out")


def merged(builder: StreamsBuilder) -> None:
    read = builder.stream(re.compile("in-.*"), key=str, value=str)
    read.merge(builder.stream("more", key=str, value=str)).group_by(lambda _, word: word).count("words")


def resolved(function, known, **options):
    topology = build_topology(function)
    return resolve_partitions(topology, sub_topologies(topology, known), known, **options)


def test_repartition_topic_behind_a_pattern_waits_for_the_first_topic_that_matches():
    assert "words-repartition" not in resolved(regrouped, {})
    assert resolved(regrouped, {}, later=4)["words-repartition"] == 4
    assert resolved(regrouped, {"in-a": 2, "in-b": 3})["words-repartition"] == 3


def test_repartition_topic_behind_a_pattern_has_the_partitions_of_other_inputs():
    (repartition,) = build_topology(looked_up).internal_topics
    assert resolved(looked_up, {"names": 5})[repartition] == 5
    assert resolved(merged, {"more": 2})["words-repartition"] == 2


def test_tasks_begin_with_topics_that_match():
    topology = build_topology(regrouped)
    for known, tasks in (({}, 0), ({"in-a": 2}, 4)):
        subs = sub_topologies(topology, known)
        assert len(SamePartitionGrouper().groups(subs, resolve_partitions(topology, subs, known))) == tasks


def test_topics_of_a_pattern_are_copartitioned_with_what_they_are_joined_with():
    def topology(builder: StreamsBuilder) -> None:
        read = builder.stream(re.compile("in-.*"), key=str, value=str)
        read.join(builder.table("names", key=str, value=str), lambda word, name: name).to("out")

    with pytest.raises(TopologyError, match="must be co-partitioned, but 'in-a' has 2, 'names' has 5 partitions"):
        resolved(topology, {"in-a": 2, "names": 5})
