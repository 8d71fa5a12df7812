"""Text and Mermaid of a topology; JSON is held by the conformance cases."""

from datetime import timedelta

from streams import CountWindows, StreamsBuilder, TimeWindows, Topic, build_topology
from streams.core.settings.config import StreamsConfig
from streams.topology.describe import describe

lines = Topic("lines", value=str)
counts = Topic("counts", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(lines).group_by(lambda _, line: line).count("store").to_stream().to(counts)


DESCRIPTION = describe(build_topology(topology, StreamsConfig.of(application_id="app")))


def test_topics_that_are_not_in_step_have_the_reason_in_text_and_json():
    description = describe(
        build_topology(topology, StreamsConfig.of(application_id="app")), steps={"store-repartition": "a cycle"}
    )

    assert description.to_text().splitlines()[-1] == "Not in step: store-repartition: a cycle"
    assert description.to_dict()["out_of_step"] == {"store-repartition": "a cycle"}
    assert "in step" not in DESCRIPTION.to_text().lower()


def test_a_repartition_topic_with_a_patience_of_its_own_has_it_in_text_and_json():
    builder = StreamsBuilder()
    builder.stream(lines).repartition("by-line", patience=timedelta(seconds=5))
    description = describe(builder.build())

    assert "      patience: 5000 ms" in description.to_text().splitlines()
    assert description.to_dict()["subtopologies"][1]["nodes"][0]["patience_ms"] == 5000


def test_a_source_with_an_idle_time_of_its_own_has_it_in_text_and_json():
    for idle_close, found_ms in ((timedelta(seconds=5), 5000), (timedelta(0), 0)):
        builder = StreamsBuilder()
        builder.stream(lines, idle_close=idle_close)
        description = describe(builder.build())

        assert description.to_text().splitlines()[3] == f"      idle_close: {found_ms} ms"
        assert description.to_dict()["subtopologies"][0]["nodes"][0]["idle_close_ms"] == found_ms
    assert "idle_close" not in DESCRIPTION.to_text() + DESCRIPTION.to_json()


def test_declared_times_of_operators_and_stores_are_in_text_and_json():
    second, builder = timedelta(seconds=1), StreamsBuilder()
    stream = builder.stream("keyed", key=str, value=str).deduplicate(name="once", within=7 * second)
    joined = stream.join_latest(builder.stream("others", key=str, value=str), lambda one, two: one, tolerance=second)
    joined.group_by_key().count("counts", ttl=9 * second)
    description = describe(builder.build())

    times = [line.strip() for line in description.to_text().splitlines() if line.endswith(" ms")]
    assert times == ["within: 7000 ms", "tolerance: 1000 ms", "grace: 0 ms", "ttl: 9000 ms"]
    nodes = {node["name"]: node for node in description.to_dict()["subtopologies"][0]["nodes"]}
    assert (nodes["once"]["within_ms"], nodes["counts"]["ttl_ms"]) == (7000, 9000)


async def fetched(value: str) -> str:
    return value


def test_declared_limits_of_operators_are_in_text_and_json():
    builder = StreamsBuilder()
    keyed = builder.stream("keyed", key=str, value=str)
    keyed.map_values_async(fetched, name="calls", concurrency=7, timeout=timedelta(seconds=2), order="partition")
    keyed.map_values_batches(lambda values: values, name="batches", max_records=50)
    keyed.look_up(len, name="lengths", cache=9, order="partition")
    minute = timedelta(minutes=1)
    keyed.join_latest(keyed, lambda one, two: one, name="next", direction="forward", tolerance=minute)
    keyed.group_by_key().windowed_by(CountWindows.of(4, advance=2)).count("counts")
    windows = TimeWindows.of(minute)
    keyed.group_by_key().windowed_by(windows).emit(early_every=3).count("early")
    description = describe(builder.build())

    found = {node["name"]: node for node in description.to_dict()["subtopologies"][0]["nodes"]}
    calls = found["calls"]
    assert (calls["concurrency"], calls["order"], calls["retries"], calls["timeout_ms"]) == (7, "partition", 0, 2000)
    assert found["batches"]["max_records"] == 50
    assert (found["lengths"]["cache"], found["lengths"]["order"]) == (9, "partition")
    assert found["next-left"]["direction"] == "forward"
    assert (found["counts"]["size"], found["counts"]["advance"]) == (4, 2)
    assert found["early-early"]["early_every"] == 3
    assert "      concurrency: 7\n      order: partition\n" in description.to_text()


def test_nodes_that_depend_on_commits_name_the_cached_stores_if_there_is_a_cache():
    builder = StreamsBuilder()
    counted = builder.stream("keyed", key=str, value=str).group_by_key().count("counts")
    counted.to_stream().filter(lambda _, count: count == 3, name="third").to("out")
    built = builder.build()

    description = describe(built, has_cache=True)
    nodes = {node["name"]: node.get("behind_cache") for node in description.to_dict()["subtopologies"][0]["nodes"]}
    assert {name: stores for name, stores in nodes.items() if stores} == {"third": "counts"}
    assert "    Processor: third (stores: [])\n      behind_cache: counts\n" in description.to_text()
    assert "behind_cache" not in describe(built).to_text()


def test_mermaid_has_a_box_per_sub_topology_and_edges_to_topics_and_stores():
    chart = DESCRIPTION.to_mermaid()

    assert chart.startswith("flowchart LR\n")
    assert chart.count("subgraph") == 2
    assert '(["store-repartition"])' in chart
    assert '[("store")]' in chart
