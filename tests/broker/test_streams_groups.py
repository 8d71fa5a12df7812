"""What the broker does for streams groups and the settings of groups: topics are created, settings kept."""

from random import Random

import pytest
from attrs import evolve

from streams.broker.assignable import AssignableTopics
from streams.broker.handlers import HANDLERS
from streams.broker.logs.config import BrokerConfig
from streams.broker.service import Broker
from streams.broker.topics import Storages, Topics
from streams.group import Coordinator, CoordinatorConfig
from streams.protocol.admin_messages import (
    ChangedConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    DescribeConfigs,
    IncrementalAlterConfigs,
    ListConfigResources,
    ResourceType,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.streams_group_messages import StreamsGroupDescribe, StreamsStatus
from tests.group.test_streams_groups import request

NAME = "streams.num.standby.replicas"
NAME_OF_BROKER = "group.streams.num.standby.replicas"


class Desk:
    """A broker that is asked directly."""

    def __init__(self, topics: Topics | None = None, config: CoordinatorConfig | None = None) -> None:
        found = topics or Topics(Storages())
        coordinator = Coordinator(config or CoordinatorConfig(), Random(1), AssignableTopics(found))
        self.machine = Broker(found, coordinator, BrokerConfig(maintenance_interval_ms=None), handlers=HANDLERS)
        self.machine.load(1_000)

    def ask(self, request_):
        answers = []
        self.machine.handle(request_, 1_000, answers.append)
        return answers[0]

    def restarted(self) -> "Desk":
        return Desk(self.machine.topics.reopened())

    def alter(self, name: str, value: str | None, operation: int = ConfigOperation.SET, **more):
        """Change a setting of group g; the result is the error and the message."""
        changed = ChangedConfigs(ResourceType.GROUP, "g", (ConfigChange(name, operation, value),))
        (found,) = self.ask(IncrementalAlterConfigs((changed,), **more)).responses
        return found.error, found.message

    def described(self) -> tuple[str, int]:
        """The value and the source of the setting."""
        (found,) = self.ask(DescribeConfigs((ConfigResource(ResourceType.GROUP, "g", (NAME,)),))).results
        (config,) = found.configs
        return config.value, config.config_source


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_settings_of_the_broker_that_concern_groups_are_shown():
    desk = Desk(config=CoordinatorConfig(streams_num_standby_replicas=1))
    (found,) = desk.ask(DescribeConfigs((ConfigResource(ResourceType.BROKER, "0"),))).results
    shown = {config.name: config.value for config in found.configs}
    assert shown[NAME_OF_BROKER] == "1"
    assert desk.described() == ("1", ConfigSource.DEFAULT)


def test_settings_of_a_group_are_kept_over_a_restart_and_validated(desk: Desk):
    assert desk.described() == ("0", ConfigSource.DEFAULT)
    assert desk.alter(NAME, "1", validate_only=True) == (ErrorCode.NONE, "")
    assert desk.described() == ("0", ConfigSource.DEFAULT)
    assert desk.alter(NAME, "1") == (ErrorCode.NONE, "")
    desk = desk.restarted()
    assert desk.described() == ("1", ConfigSource.GROUP)
    (listed,) = desk.ask(ListConfigResources((ResourceType.GROUP,))).config_resources
    assert (listed.resource_name, listed.resource_type) == ("g", ResourceType.GROUP)
    assert desk.alter(NAME, "-1")[0] is ErrorCode.INVALID_CONFIG
    error, message = desk.alter("retention.ms", "1")
    assert (error, message.startswith("groups have no setting retention.ms")) == (ErrorCode.INVALID_CONFIG, True)
    assert desk.alter(NAME, "1", ConfigOperation.APPEND)[0] is ErrorCode.INVALID_CONFIG
    assert desk.described() == ("1", ConfigSource.GROUP)
    assert desk.alter(NAME, None, ConfigOperation.DELETE) == (ErrorCode.NONE, "")
    assert desk.restarted().described() == ("0", ConfigSource.DEFAULT)


def test_internal_topics_are_there_with_their_settings_before_the_first_response(desk: Desk):
    desk.machine.topics.create("t", 2)
    response = desk.ask(request())
    assert [status.code for status in response.status] == [StreamsStatus.MISSING_INTERNAL_TOPICS]
    topic = desk.machine.topics.topic("g-counts")
    assert (len(topic.logs), topic.config.own) == (2, {"cleanup.policy": "compact"})
    assert desk.ask(request()).active_tasks == {"0": [0, 1], "1": [0, 1]}
    assert desk.restarted().ask(StreamsGroupDescribe("g")).state == "Stable"


def test_internal_topic_that_the_broker_refuses_is_named_in_the_status(desk: Desk):
    desk.machine.topics.create("t", 2)
    topology = request().topology
    one, two = topology.subtopologies
    changelog = evolve(two.state_changelog_topics[0], configs={"cleanup.policy": "nonsense"})
    topology = evolve(topology, subtopologies=(one, evolve(two, state_changelog_topics=(changelog,))))
    desk.ask(request(topology=topology))
    (status,) = desk.ask(request(topology=topology)).status
    assert status.code == StreamsStatus.MISSING_INTERNAL_TOPICS
    assert "creation of g-counts failed: " in status.detail
    assert "g-words" not in status.detail
