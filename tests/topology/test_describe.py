"""Text and Mermaid of a topology; JSON is held by the conformance cases."""

from streams import StreamsBuilder, Topic, build_topology
from streams.core.config import StreamsConfig
from streams.topology.describe import describe

lines = Topic("lines", value=str)
counts = Topic("counts", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(lines).group_by(lambda _, line: line).count("store").to_stream().to(counts)


DESCRIPTION = describe(build_topology(topology, StreamsConfig.of(application_id="app")))


def test_text_is_that_of_kafka_streams():
    assert DESCRIPTION.to_text().splitlines()[:4] == [
        "Topologies:",
        "   Sub-topology: 0",
        "    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])",
        "      --> KSTREAM-KEY-SELECT-0000000001",
    ]
    assert "    Processor: store (stores: [store])" in DESCRIPTION.to_text()
    assert "Internal topics: store-repartition, store-changelog" in DESCRIPTION.to_text()


def test_mermaid_has_a_box_per_sub_topology_and_edges_to_topics_and_stores():
    chart = DESCRIPTION.to_mermaid()

    assert chart.startswith("flowchart LR\n")
    assert chart.count("subgraph") == 2
    assert '(["store-repartition"])' in chart
    assert '[("store")]' in chart
