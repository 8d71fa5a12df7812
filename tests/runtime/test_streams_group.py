"""Applications whose tasks the embedded broker assigns (KIP-1071): in process and over TCP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field

from streams import EmbeddedBroker, Streams
from streams.clients import Admin
from streams.clients.tcp import TcpCluster
from streams.core.blocks.records import TaskId
from streams.group import CoordinatorConfig
from streams.protocol.request import Request, Response
from streams.protocol.streams_group_messages import (
    Endpoint,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
)
from streams.protocol.transport import Cluster, Connection, Traits
from streams.testing.simulation.conditions import ANY_LENGTH
from tests.kafka.word_count import ASSIGNED, Counting, topology
from tests.waiting import NEVER_MS, until

TASKS = {TaskId(sub, number) for sub in (0, 1) for number in range(3)}


@pytest.fixture(params=["embedded", "served"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A broker whose members send heartbeats often."""
    config = CoordinatorConfig(**ANY_LENGTH, streams_heartbeat_interval_ms=20, streams_initial_rebalance_delay_ms=0)
    with EmbeddedBroker(auto_create_topics=False, group_config=config) as broker:
        if request.param == "embedded":
            yield broker
            return
        with broker.serve("127.0.0.1:0") as server:
            yield TcpCluster(server.bootstrap_servers)


def application(cluster: Cluster, **more: Any) -> Streams:
    """One instance of the word count."""
    settings: dict[str, Any] = {**ASSIGNED, "processing_guarantee": "exactly_once_v2", **more}
    return Streams(topology("app"), broker=cluster, application_id="app", **settings)


def tasks_of(streams: Streams) -> set[TaskId]:
    """The tasks that run on an instance."""
    return {task_id for thread in streams.instance.stream_threads for task_id in thread.tasks}


@pytest.mark.case
def test_tasks_move_between_instances_and_every_count_is_exact(cluster: Cluster, tmp_path: Path):
    with Counting(cluster, "app") as counting:
        counting.write(60)
        with application(cluster, num_stream_threads=2, state_dir=tmp_path / "one") as one:
            counting.finish()
            assert tasks_of(one) == TASKS
            with application(cluster, state_dir=tmp_path / "two") as two:
                counting.write(60)
                until(lambda: len(tasks_of(one)) == 4 and len(tasks_of(two)) == 2, counting.read)
                assert tasks_of(one) | tasks_of(two) == TASKS
                counting.finish()
            counting.write(60)
            until(lambda: tasks_of(one) == TASKS, counting.read)
            counting.finish()
        counting.check_exact()


@pytest.mark.slow
def test_owners_are_known_by_their_endpoints(cluster: Cluster):
    """As in Kafka Streams; the broker tells members which instance has which partitions."""
    with (
        Counting(cluster, "app") as counting,
        application(cluster, application_server="one:1") as one,
        application(cluster, application_server="two:2") as two,
    ):
        counting.write(60)
        counting.finish()
        until(lambda: tasks_of(one) | tasks_of(two) == TASKS and tasks_of(one) and tasks_of(two))

        def owners() -> set[str]:
            found = [one.owner_of("counted", f"w{number}").active for number in range(20)]
            return {owner.application_server for owner in found if owner is not None}

        until(lambda: owners() == {"one:1", "two:2"})


def test_a_group_is_described_with_its_members_and_their_tasks(cluster: Cluster):
    with Counting(cluster, "app"), application(cluster, application_server="one:1") as one, Admin(cluster) as admin:
        until(lambda: tasks_of(one) == TASKS and admin.describe_streams_group("app").state == "Stable")
        group = admin.describe_streams_group("app")

    assert [member.user_endpoint for member in group.members] == [Endpoint("one", 1)]
    assert {
        TaskId(int(sub), number)
        for sub, numbers in group.members[0].assignment.active_tasks.items()
        for number in numbers
    } == TASKS


@pytest.mark.slow
def test_group_of_an_embedded_broker_that_was_restarted_takes_its_members_back(tmp_path: Path):
    """The topology is in the log of the broker."""
    config = CoordinatorConfig(**ANY_LENGTH, streams_heartbeat_interval_ms=20, streams_initial_rebalance_delay_ms=0)
    for are_there in (False, True):
        with (
            EmbeddedBroker(tmp_path / "broker", auto_create_topics=False, group_config=config) as broker,
            Counting(broker, "app", are_there=are_there),
            application(broker) as one,
        ):
            until(lambda one=one: tasks_of(one) == TASKS, lambda one=one: one.wait(1))


@define(eq=False)
class WarmingCluster:
    """A broker whose standby tasks are called warm-up tasks, which it does not assign itself, as Kafka 4.4."""

    broker: EmbeddedBroker
    heartbeats: list[StreamsGroupHeartbeat] = field(factory=list)

    def connect(self, client_id: str) -> Connection:
        return WarmingConnection(self.broker.connect(client_id), self.heartbeats)


@define(eq=False)
class WarmingConnection:
    """Gives the members the other names, and the broker its own."""

    inner: Connection
    heartbeats: list[StreamsGroupHeartbeat]

    outage = None

    @property
    def traits(self) -> Traits:
        return self.inner.traits

    def send(self, node_id: int, request: Request) -> int:
        if isinstance(request, StreamsGroupHeartbeat):
            self.heartbeats.append(request)
            assert not request.standby_tasks
            request = evolve(request, standby_tasks=request.warmup_tasks, warmup_tasks=request.standby_tasks)
        return self.inner.send(node_id, request)

    def poll(self, timeout_ms: int) -> list[tuple[int, Response | Exception]]:
        return [(number, _warming(found)) for number, found in self.inner.poll(timeout_ms)]

    def give_up(self, correlation_id: int) -> None:
        self.inner.give_up(correlation_id)

    def wakeup(self) -> None:
        self.inner.wakeup()

    def close(self) -> None:
        self.inner.close()


def _warming(found: Response | Exception) -> Response | Exception:
    if not isinstance(found, StreamsGroupHeartbeatResponse) or found.standby_tasks is None:
        return found
    return evolve(found, standby_tasks={}, warmup_tasks=found.standby_tasks)


@pytest.mark.slow
def test_warmup_tasks_follow_the_changelog_are_reported_when_they_have_caught_up_and_take_over():
    """Transactions leave gaps before the end of a changelog: only the lag that the broker names says "caught up"."""
    config = CoordinatorConfig(
        **ANY_LENGTH,
        streams_heartbeat_interval_ms=20,
        streams_initial_rebalance_delay_ms=0,
        streams_num_standby_replicas=1,
        streams_task_offset_interval_ms=NEVER_MS,
    )
    with EmbeddedBroker(auto_create_topics=False, group_config=config) as broker, Counting(broker, "app") as counting:
        cluster = WarmingCluster(broker)
        with application(cluster) as one:
            counting.write(60)
            counting.finish()
            with application(cluster) as two:
                until(lambda: two.copies(), counting.read)
                until(lambda: any(_caught_up(beat) for beat in cluster.heartbeats), counting.read)
                until(lambda: tasks_of(one) | tasks_of(two) == TASKS and tasks_of(two), counting.read)
                copies = len(two.copies())
                taken_over = two.metrics.get("standby-takeover-total")
                one.close()
                until(lambda: tasks_of(two) == TASKS, counting.read)
                assert two.metrics.get("standby-takeover-total") == taken_over + copies
                counting.write(60)
                counting.finish()
        counting.check_exact()


def _caught_up(beat: StreamsGroupHeartbeat) -> set[TaskId]:
    """The warm-up tasks of which a heartbeat reports how far they are."""
    warmups = {TaskId(int(sub), number) for sub, numbers in (beat.warmup_tasks or {}).items() for number in numbers}
    return warmups & {TaskId(int(found.subtopology_id), found.partition) for found in beat.task_end_offsets or ()}
