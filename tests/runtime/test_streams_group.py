"""Applications whose tasks the embedded broker assigns (KIP-1071): in process and over TCP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams import EmbeddedBroker, Streams
from streams.clients.tcp import TcpCluster
from streams.core.records import TaskId
from streams.group import CoordinatorConfig
from streams.protocol.transport import Cluster
from tests.kafka.word_count import ASSIGNED, Counting, topology
from tests.waiting import until

TASKS = {TaskId(sub, number) for sub in (0, 1) for number in range(3)}


@pytest.fixture(params=["embedded", "served"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A broker whose members send heartbeats often."""
    config = CoordinatorConfig(streams_heartbeat_interval_ms=20, streams_initial_rebalance_delay_ms=0)
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


def test_group_of_an_embedded_broker_that_was_restarted_takes_its_members_back(tmp_path: Path):
    """The topology is in the log of the broker."""
    config = CoordinatorConfig(streams_heartbeat_interval_ms=20, streams_initial_rebalance_delay_ms=0)
    for are_there in (False, True):
        with (
            EmbeddedBroker(tmp_path / "broker", auto_create_topics=False, group_config=config) as broker,
            Counting(broker, "app", are_there=are_there),
            application(broker) as one,
        ):
            until(lambda one=one: tasks_of(one) == TASKS, lambda one=one: one.wait(1))
