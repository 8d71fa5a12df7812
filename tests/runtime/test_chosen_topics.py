"""A topic name that a function chooses, and no topic can have, is an error of the record that a handler may skip."""

import pytest

from streams import (
    EmbeddedBroker,
    HandlerError,
    HandlerResponse,
    ProcessingError,
    Producer,
    ProducerRecord,
    Streams,
    StreamsBuilder,
    Topic,
)
from streams.testing import TopologyTestDriver
from tests.waiting import WATCHDOG_MS

FAST = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10, "metadata_max_age_ms": 20}
names = Topic("names", key=str, value=str)
good = Topic("good", key=str, value=str)
dead = Topic("dead", key=bytes, value=bytes)
#: What the error says: sink, record and name.
PLACE = (
    r"node 'sink' at names-0 offset 1: sink 'sink': its topic function chose a name that no topic can have: "
    r"topic name 'bad name' has ' '"
)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(names).map_values(lambda value: value, name="map").to(lambda key, value: value, name="sink")


def _pipe(driver, *values):
    for value in values:
        driver.pipe(names, value, key="k", timestamp_ms=1)


def test_the_error_names_sink_record_and_name_and_records_before_it_are_written():
    with TopologyTestDriver(topology) as driver:
        with pytest.raises(ProcessingError, match=PLACE) as caught:
            _pipe(driver, "good", "bad name")

        assert (caught.value.node, caught.value.topic, caught.value.offset) == ("sink", "names", 1)
        assert driver.read(good) == [("k", "good")]


@pytest.mark.parametrize("name", ["bad name", "", "..", "a/b", "x" * 250])
def test_the_production_handler_may_skip_the_record(name):
    settings = {"production_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}
    with TopologyTestDriver(topology, **settings) as driver:
        _pipe(driver, "good", name, "good")

        assert driver.read(good) == [("k", "good")] * 2
        assert driver.read(dead) == [(b"k", name.encode())]
        [drop] = driver.drops()
        assert (drop.node, drop.reason, drop.count) == ("sink", "unwritable, ProcessingError", 1)
        assert drop.example.startswith("names-0 at offset 1: ProcessingError: sink 'sink': its topic function chose")


def test_a_function_is_asked_with_the_record_and_what_failed():
    asked = []

    def handler(context, record, error):
        asked.append((context.node, context.topic, context.offset, context.origin, record))
        return HandlerResponse.resume()

    with TopologyTestDriver(topology, production_handler=handler) as driver:
        _pipe(driver, "bad name")

    assert asked == [("sink", "names", 0, "topic", ProducerRecord("bad name", "k", "bad name", 1))]


def test_the_processing_handler_skips_the_record_at_the_node_before_the_sink():
    with TopologyTestDriver(topology, processing_handler="continue") as driver:
        _pipe(driver, "bad name", "good")

        assert driver.read(good) == [("k", "good")]
        assert [(drop.node, drop.count) for drop in driver.drops()] == [("map", 1)]


def test_what_is_no_text_is_the_same_error():
    def numbered(builder: StreamsBuilder) -> None:
        builder.stream(names).to(lambda key, value: None if value == "none" else 5, name="sink")

    for value, told in (("none", "must be text, not NoneType"), ("number", "topic name 5 must be text, not int")):
        with TopologyTestDriver(numbered) as driver, pytest.raises(ProcessingError, match=told):
            _pipe(driver, value)
        with TopologyTestDriver(numbered, production_handler="continue") as driver:
            _pipe(driver, value)
            assert [drop.count for drop in driver.drops()] == [1]


def test_a_dead_letter_for_such_a_topic_is_an_error_of_the_handler():
    def handler(context, record, error):
        return HandlerResponse.resume([context.dead_letter(error, topic="bad name")])

    with (
        TopologyTestDriver(topology, production_handler=handler) as driver,
        pytest.raises(HandlerError, match="must be a ProducerRecord with the name of a topic"),
    ):
        _pipe(driver, "bad name")


def test_a_live_application_ends_with_the_error():
    with EmbeddedBroker() as broker:
        for topic in (names, good):
            broker.create_topic(topic.name, 1)
        with Producer(broker) as producer:
            for value in ("good", "bad name"):
                producer.send(names, value, key="k", timestamp_ms=1)
        streams = Streams(topology, application_id="app", broker=broker, **FAST)
        with pytest.raises(ProcessingError, match=PLACE), streams:
            streams.wait(WATCHDOG_MS)
