"""The places of the boxes of a topology, and which boxes the simple view has."""

from datetime import timedelta
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from streams import JoinWindows, StreamsBuilder, Topic, build_topology
from streams.topology import Graph, TopologyDescription, describe, to_svg
from streams.topology.descriptions import NodeDescription, SubTopologyDescription


def graph_of(*subs: tuple[NodeDescription, ...]) -> Graph:
    parts = tuple(SubTopologyDescription(number, nodes) for number, nodes in enumerate(subs))
    return Graph.of(parts)


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


def described() -> TopologyDescription:
    orders, payments = (Topic(name, key=str, value=str, partitions=2) for name in ("orders", "payments"))

    def topology(builder: StreamsBuilder) -> None:
        sound = builder.stream(orders).filter(lambda key, value: bool(value), name="sound")
        names = builder.table(Topic("names", key=str, value=str, partitions=2), name="names-by-id")
        sound.map_values(str.upper).join(names, lambda one, other: one).to(Topic("named", key=str, value=str))
        sound.group_by(lambda key, value: value).count("per-value").to_stream().to(Topic("n", key=str, value=int))
        paid = sound.join(builder.stream(payments), str.__add__, JoinWindows.of(timedelta(seconds=1)), name="paid")
        paid.to(Topic("paid-orders", key=str, value=str))

    return describe(build_topology(topology))


def test_the_simple_view_has_a_box_for_what_a_user_has_written():
    whole, simple = described().graph(is_simple=False), described().graph()

    assert (len(whole.boxes), len(simple.boxes)) == (33, 14)
    assert {box.label for box in simple.boxes if box.kind == "processor"} == {
        *("sound", "names-by-id", "MAPVALUES-4", "JOIN-5", "paid", "per-value"),
    }
    (paid,) = (box for box in simple.boxes if box.label == "paid")
    assert (len(paid.nodes), len(paid.stores)) == (5, 2)
    # Each edge stands for some of the whole graph, whose numbers it has.
    assert all(0 <= edge < len(whole.edges) for path in simple.edges.values() for edge in path)
    # The join reads the table's store: it stands behind it.
    ((reader, owner),) = simple.uses
    assert simple.boxes[owner].rank < simple.boxes[reader].rank


@pytest.mark.parametrize("is_simple", [True, False])
def test_no_line_goes_through_a_box(is_simple: bool):
    graph = described().graph(is_simple=is_simple)

    for ways in graph.ways.values():
        for way in ways:
            assert all(
                abs(box.lane - way.lane) > 0.98
                for box in graph.boxes
                if (box.block, box.rank) == (way.block, way.rank)
            )  # fmt: skip
    places = sorted((box.block, box.rank, box.lane) for box in graph.boxes)
    assert all(one[:2] != other[:2] or other[2] - one[2] > 0.98 for one, other in pairwise(places))


def test_a_place_that_an_edge_passes_is_of_this_edge_only():
    builder = StreamsBuilder()
    for name, before, beside in [("deep", 8, 2), ("long", 1, 9)]:
        stream = builder.stream(Topic(name, value=str))
        for _ in range(before):
            stream = stream.map_values(lambda text: text)
        other = stream
        for _ in range(beside):
            other = other.map_values(lambda text: text)
        other.merge(stream).to(Topic(f"{name}-out", value=str))
    graph = describe(builder.build()).graph()

    numbers = [box.number for box in (*graph.boxes, *(way for ways in graph.ways.values() for way in ways))]
    assert len(set(numbers)) == len(numbers)


def test_a_drawing_names_each_box_in_full_and_takes_what_is_no_xml():
    part = graph_of((node("in", "a<b>&'\"" + "x" * 60, kind="source", topics=("t",)), node("a<b>&'\"" + "x" * 60)))
    drawing = ElementTree.fromstring(to_svg(part))
    titles = [title.text for title in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert "a<b>&'\"" + "x" * 60 in titles
    assert to_svg(part) == to_svg(part)
    assert "<style>" not in to_svg(part, has_style=False)
