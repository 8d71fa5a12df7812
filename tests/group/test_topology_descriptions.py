"""Descriptions of topologies that the coordinator asks members of streams groups for, and keeps (KIP-1331)."""

from streams.group import CoordinatorConfig, TopologyDescriptions
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import DeleteGroup
from streams.protocol.streams_group_messages import (
    DescriptionStatus,
    GroupTopologyDescription,
    NodeType,
    StreamsGroupDescribe,
    StreamsGroupTopologyDescriptionUpdate,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionSubtopology,
    TopologyNode,
)
from tests.group.desk import Desk
from tests.group.test_streams_groups import Client, settle

DESCRIPTION = GroupTopologyDescription(
    (
        TopologyDescriptionSubtopology(
            "0",
            (
                TopologyNode("in", NodeType.SOURCE, ("t",), successors=("out",)),
                TopologyNode("out", NodeType.SINK, sink_topic="g-words"),
            ),
        ),
    ),
    (
        TopologyDescriptionGlobalStore(
            TopologyNode("all", NodeType.SOURCE, ("a",), successors=("keep",)),
            TopologyNode("keep", NodeType.PROCESSOR, stores=("kept",)),
        ),
    ),
)
PATIENCE_MS = 30_000


def keeping(where: TopologyDescriptions = TopologyDescriptions.LOG) -> Desk:
    desk = Desk(StreamsGroupDescribe, CoordinatorConfig(streams_topology_descriptions=where))
    desk.topics.put("t", 2)
    return desk


def is_asked(client: Client) -> bool:
    assert client.beat() is ErrorCode.NONE
    assert client.last is not None
    return client.last.topology_description_required


def send(desk: Desk, member_id: str = "a", epoch: int = 0) -> ErrorCode:
    return desk.ask(StreamsGroupTopologyDescriptionUpdate("g", member_id, epoch, DESCRIPTION)).error


def described(desk: Desk) -> tuple[int, GroupTopologyDescription | None]:
    found = desk.ask(StreamsGroupDescribe("g", include_topology_description=True))
    return found.topology_description_status, found.topology_description


def test_one_member_at_a_time_is_asked_until_the_description_is_there():
    desk = keeping()
    a, b = Client(desk, "a"), Client(desk, "b")
    assert is_asked(a)
    assert not is_asked(b)
    desk.advance(PATIENCE_MS)
    assert is_asked(b)
    assert not is_asked(a)
    assert described(desk) == (DescriptionStatus.NOT_STORED, None)
    assert send(desk, "b") is ErrorCode.NONE
    desk.advance(PATIENCE_MS)
    assert not is_asked(a)
    assert described(desk) == (DescriptionStatus.AVAILABLE, DESCRIPTION)
    found = desk.ask(StreamsGroupDescribe("g"))
    assert (found.topology_description_status, found.topology_description) == (DescriptionStatus.NOT_REQUESTED, None)


def test_description_outlives_the_members_and_the_coordinator_but_not_the_group():
    desk = keeping()
    client = Client(desk, "a")
    settle(client)
    assert send(desk) is ErrorCode.NONE
    client.leave()
    desk.restart()
    assert described(desk) == (DescriptionStatus.AVAILABLE, DESCRIPTION)
    assert desk.ask(DeleteGroup("g")).error is ErrorCode.NONE
    again = Client(desk, "a")
    assert is_asked(again)
    desk.restart()
    assert described(desk) == (DescriptionStatus.NOT_STORED, None)


def test_description_of_another_topology_or_from_nobody_is_refused():
    desk = keeping()
    assert send(desk) is ErrorCode.GROUP_ID_NOT_FOUND
    settle(Client(desk, "a"))
    assert send(desk, "b") is ErrorCode.UNKNOWN_MEMBER_ID
    assert send(desk, epoch=1) is ErrorCode.INVALID_REQUEST
    assert described(desk) == (DescriptionStatus.NOT_STORED, None)


def test_broker_that_keeps_no_descriptions_asks_for_none():
    desk = keeping(TopologyDescriptions.NONE)
    assert not is_asked(Client(desk, "a"))
    assert send(desk) is ErrorCode.UNSUPPORTED_VERSION
