"""Objects that users print, and that failing assertions show, have short reprs."""

import pytest

from streams import Admin, Consumer, EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic
from streams.replay import replay
from streams.testing import TopologyTestDriver
from tests.waiting import until

orders = Topic("orders", key=str, value=int)
totals = Topic("totals", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(orders).group_by_key().count("counts").to_stream().to(totals)


def test_parts_of_a_live_application() -> None:
    with EmbeddedBroker() as broker, Producer(broker, client_id="shop") as producer, Admin(broker):
        broker.create_topic(orders, 1)
        assert repr(broker) == "<EmbeddedBroker in memory>"
        assert repr(producer) == "<Producer 'shop'>"
        with Consumer(broker, "readers", client_id="reader") as consumer:
            assert repr(consumer) == "<Consumer 'reader' of group 'readers'>"
        with Streams(topology, application_id="app", broker=broker) as streams:
            until(lambda: streams.tasks())
            assert repr(streams) in ("<Streams 'app' running>", "<Streams 'app' rebalancing>")
            assert repr(streams.topology) == "<Topology: 4 nodes, 1 stores>"
            (tasks,) = streams.instance.ask(lambda thread: [repr(thread), repr(list(thread.tasks.values()))])
            assert max(map(len, [repr(streams.instance), *tasks])) < 200


def test_driver_and_its_stores() -> None:
    driver = TopologyTestDriver(topology)
    for number in range(1_000):
        driver.pipe(orders, number, key=str(number))

    assert repr(driver) == "<TopologyTestDriver of <Topology: 4 nodes, 1 stores>>"
    assert repr(driver.store("counts")) == "<TimestampedKeyValueStore 'counts'>"


def test_results_of_a_replay(tmp_path) -> None:
    (tmp_path / "orders.records.jsonl").write_text('{"key":"a","value":1,"timestamp":1}\n')

    with replay(topology, {orders: tmp_path / "orders.records.jsonl"}, executor="local") as result:
        assert repr(result.outputs) == "<Outputs totals>"
        assert repr(result.stores) == "<Stores counts>"
        assert repr(result.stores["counts"]) == "StoreContents('counts', 1 entries)"


@pytest.mark.parametrize("count", [0, 1_000])
def test_topologies_do_not_list_their_nodes(count: int) -> None:
    def wide(builder: StreamsBuilder) -> None:
        for number in range(count):
            builder.stream(Topic(f"input-{number}", value=int)).to(Topic("all", value=int))

    builder = StreamsBuilder()
    wide(builder)
    assert len(repr(builder.build())) < 60
