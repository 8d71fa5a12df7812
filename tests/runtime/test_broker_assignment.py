"""What a thread in a streams group is assigned, and what the status of its group leads to (KIP-1071)."""

import logging
import re
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, field

from streams import (
    ConfigError,
    EmbeddedBroker,
    JoinWindows,
    SamePartitionGrouper,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Topic,
    TopologyError,
)
from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.clock import SystemClock
from streams.dsl import build_topology
from streams.group import ChangelogSums, TaskRoles
from streams.protocol.streams_group_messages import (
    CopartitionGroup,
    Endpoint,
    EndpointPartitions,
    GroupStatus,
    StreamsStatus,
    TopicInfo,
)
from streams.runtime.assignment.broker_assignment import BrokerAssignment
from streams.runtime.plan.facts import AssignedTasks, MemberFacts
from streams.runtime.plan.group_topology import group_topology
from streams.runtime.plan.layout import Plans
from streams.runtime.plan.plan import ApplicationPlan

LINES, WORDS = TopicPartition("lines", 0), TopicPartition("app-words-repartition", 0)
REPARTITION = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
}


def counting(builder: StreamsBuilder) -> None:
    """Count words behind a repartition topic."""
    lines = builder.stream(Topic("lines", key=str, value=str))
    lines.group_by(lambda _, line: line, name="words").count(name="counted").to_stream().to(
        Topic("out", key=str, value=int)
    )


def plans_of(topology: Any, known: dict[str, int], **settings: Any) -> tuple[Plans, ApplicationPlan]:
    """The plans of an application, and its plan for these topics."""
    config = StreamsConfig.of(application_id="app", group_protocol="streams", **settings)
    plans = Plans(build_topology(topology, config), config, SystemClock())
    return plans, plans.of(plans.layout(known))


@define
class Thread:
    """A stream thread as its assignment sees it: also its consumer and its restorer."""

    counts: dict[str, int] = field(factory=dict)
    lags: dict[TaskId, int] = field(factory=dict)
    positions: dict[TaskId, int] = field(factory=dict)
    server: str = ""
    wants_shutdown: bool = False

    @property
    def consumer(self) -> "Thread":
        return self

    @property
    def restorer(self) -> "Thread":
        return self

    def known_partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def lag(self, task_id: TaskId) -> int | None:
        return self.lags.get(task_id)

    def facts(self) -> MemberFacts:
        return MemberFacts("process", positions=self.positions, client_id="thread", application_server=self.server)


@pytest.fixture
def thread() -> Thread:
    return Thread({"lines": 2, "app-words-repartition": 2})


@pytest.fixture
def assignment(thread: Thread) -> BrokerAssignment:
    plans, plan = plans_of(counting, {"lines": 2}, client_tags="zone=a")
    assignment = BrokerAssignment(plans, plan)
    assignment.serve(thread)  # type: ignore[arg-type]
    return assignment


def test_topology_is_that_of_kafka_streams(assignment: BrokerAssignment):
    """Changelogs and undeclared repartition topics have no partition count: the broker derives it."""
    upstream, downstream = assignment.group_topology().subtopologies
    assert (upstream.subtopology_id, upstream.source_topics) == ("0", ("lines",))
    assert upstream.repartition_sink_topics == ("app-words-repartition",)
    assert downstream.repartition_source_topics == (TopicInfo("app-words-repartition", 0, -1, REPARTITION),)
    changelog = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
    assert downstream.state_changelog_topics == (TopicInfo("app-counted-changelog", 0, -1, changelog),)
    assert downstream.source_topics == ()
    assert upstream.copartition_groups == downstream.copartition_groups == ()


def test_joined_topics_are_one_copartition_group():
    def joining(builder: StreamsBuilder) -> None:
        left, right = (builder.stream(Topic(name, key=str, value=str)) for name in ("left", "right"))
        keyed = right.select_key(lambda key, value: value)
        joined = left.join(keyed, lambda one, two: one + two, JoinWindows.of(timedelta(seconds=1)), name="join")
        joined.to(Topic("out", key=str, value=str))

    _, plan = plans_of(joining, {"left": 2, "right": 2})
    (group,) = [sub for sub in group_topology(plan).subtopologies if sub.copartition_groups]
    assert group.source_topics == ("left",)
    assert group.copartition_groups == (CopartitionGroup((0,), (), (0,)),)


def test_partitions_follow_from_the_metadata_and_wait_for_it(assignment: BrokerAssignment, thread: Thread):
    count = thread.counts.pop("app-words-repartition")
    roles = TaskRoles((TaskId(0, 0), TaskId(1, 0)), (TaskId(1, 1),))
    assert assignment.partitions_of(roles) is None
    assert assignment.directive is None
    thread.counts["app-words-repartition"] = count
    assert assignment.partitions_of(roles) == tuple(sorted((LINES, WORDS)))
    directive = assignment.directive
    assert directive is not None
    assert (directive.active, directive.standby, directive.is_final) == (roles.active, roles.standby, True)
    assert assignment.partitions_of(TaskRoles((TaskId(0, 2),))) is None, (
        "the topic has grown, and this is not known yet"
    )
    assert assignment.directive is directive


def test_assignment_is_final_when_nothing_keeps_the_group_from_processing(assignment: BrokerAssignment):
    assignment.note_status([GroupStatus(StreamsStatus.ASSIGNMENT_DELAYED, "waits")], 0)
    assignment.partitions_of(TaskRoles())
    assert assignment.directive is not None
    assert not assignment.directive.is_final
    assert not assignment.has_news()
    assignment.note_status([], 1)
    assert assignment.has_news()
    assignment.partitions_of(TaskRoles())
    assert assignment.directive.is_final


@pytest.mark.parametrize("is_assigned", [False, True])
def test_request_for_a_shutdown_is_in_the_directive(assignment: BrokerAssignment, is_assigned: bool):
    if is_assigned:
        assignment.partitions_of(TaskRoles())
    assignment.note_status([GroupStatus(StreamsStatus.SHUTDOWN_APPLICATION, "one has failed")], 0)
    if is_assigned:
        assert assignment.has_news()
        assignment.partitions_of(TaskRoles())
    assert assignment.directive is not None
    assert assignment.directive.is_shutdown


def test_wrong_partition_counts_are_an_error_with_the_reason_of_the_broker(assignment: BrokerAssignment):
    with pytest.raises(TopologyError, match=r"a \(2\) and b \(3\); give co-partitioned topics equal counts"):
        assignment.note_status([GroupStatus(StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, "a (2) and b (3)")], 0)


def test_missing_source_topics_are_waited_for_and_then_an_error(
    assignment: BrokerAssignment, caplog: pytest.LogCaptureFixture
):
    missing = [GroupStatus(StreamsStatus.MISSING_SOURCE_TOPICS, "lines")]
    with caplog.at_level(logging.WARNING):
        for now_ms in (0, 300_000):
            assignment.note_status(missing, now_ms)
    assert [record.getMessage() for record in caplog.records] == [
        "application 'app': status of its group: MISSING_SOURCE_TOPICS: lines"
    ]
    assignment.note_status([], 300_001)
    assignment.note_status(missing, 400_000)
    with pytest.raises(TopologyError, match="source topics are missing for 300001 ms: lines; create them"):
        assignment.note_status(missing, 700_001)


def test_status_of_a_newer_broker_is_no_obstacle(assignment: BrokerAssignment):
    assignment.note_status([GroupStatus(100, "news")], 0)
    assignment.partitions_of(TaskRoles())
    assert assignment.directive is not None
    assert assignment.directive.is_final


def test_facts_are_those_of_the_instance(assignment: BrokerAssignment, thread: Thread):
    thread.server, thread.positions, thread.lags = "h:7", {TaskId(1, 0): 5, TaskId(1, 1): 9}, {TaskId(1, 1): 3}
    facts = assignment.host_facts()
    assert (facts.process_id, facts.endpoint, facts.client_tags) == ("process", Endpoint("h", 7), {"zone": "a"})
    assert assignment.changelog_sums() == ChangelogSums(thread.positions, {TaskId(1, 1): 12})


def test_places_are_those_of_this_thread_and_of_all_endpoints(assignment: BrokerAssignment, thread: Thread):
    thread.server = "h:7"
    assignment.partitions_of(TaskRoles((TaskId(1, 0),)))
    other = TopicPartition("app-words-repartition", 1)
    assignment.note_endpoints(
        [EndpointPartitions(Endpoint("h", 7), [WORDS]), EndpointPartitions(Endpoint("i", 8), [other], [WORDS])]
    )
    assert assignment.directive is not None
    assert assignment.directive.places == (
        AssignedTasks("thread", "process", "h:7", (TaskId(1, 0),)),
        AssignedTasks("h:7", "process", "h:7", (TaskId(1, 0),)),
        AssignedTasks("i:8", "i:8", "i:8", (TaskId(1, 1),), (TaskId(1, 0),)),
    )


def test_what_the_broker_cannot_do_is_refused_at_the_start():
    settings: dict[str, Any] = {"application_id": "app", "group_protocol": "streams"}
    with EmbeddedBroker() as broker:
        with pytest.raises(ConfigError, match="group_protocol=streams with grouper="):
            Streams(counting, broker=broker, grouper=SamePartitionGrouper(), **settings)

        def by_pattern(builder: StreamsBuilder) -> None:
            builder.stream(re.compile("l.*"), key=str, value=str).to(Topic("out", key=str, value=str))

        with pytest.raises(TopologyError, match=r"with the pattern .* of source topics"):
            Streams(by_pattern, broker=broker, **settings)
