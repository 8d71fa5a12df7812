"""The places of the boxes of a topology."""

from streams.topology import TopologyDescription
from streams.topology.descriptions import NodeDescription, SubTopologyDescription
from streams.web.graph import Graph


def graph_of(*subs: tuple[NodeDescription, ...]) -> Graph:
    parts = tuple(SubTopologyDescription(number, nodes) for number, nodes in enumerate(subs))
    return Graph.of(TopologyDescription(parts, (), ()))


def node(name: str, *after: str, kind: str = "processor", **more: object) -> NodeDescription:
    return NodeDescription(kind, name, (), after, **more)  # type: ignore[arg-type]


def test_each_edge_goes_to_a_later_rank_and_no_two_boxes_share_a_place():
    graph = graph_of(
        (
            node("in", "a", "b", kind="source", topics=("t",)),
            node("a", "c"),
            node("b", "d", stores=("s",)),
            node("d", "c"),
            node("c", "out"),
            node("out", kind="sink", topic="u"),
        ),
        (node("second", "last", kind="source", topics=("u",)), node("last")),
    )

    assert all(graph.boxes[start].rank < graph.boxes[end].rank for start, end in graph.edges)
    places = [(box.rank, box.lane) for box in graph.boxes]
    assert len(set(places)) == len(places)
    # Blocks do not overlap; a topic between them is a box in both.
    lanes = {number: [box.lane for box in graph.boxes if box.block == number] for number in (0, 1)}
    assert max(lanes[0]) < min(lanes[1])
    assert [box.block for box in graph.boxes if box.name == "u"] == [0, 1]


def test_a_loop_within_a_sub_topology_is_cut_at_one_edge():
    graph = graph_of(
        (
            node("in", "step", kind="source", topics=("t",)),
            node("step", "out"),
            node("out", kind="sink", topic="t"),
        ),
    )

    back = [edge for edge in graph.edges if graph.boxes[edge[0]].rank >= graph.boxes[edge[1]].rank]
    assert len(back) == 1
