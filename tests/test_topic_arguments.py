"""What takes a topic says so when it is given something else, and knows which topics there are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams import (
    Admin,
    ConfigError,
    Consumer,
    EmbeddedBroker,
    ParallelConsumer,
    Processor,
    Producer,
    StreamsBuilder,
    Topic,
    Topology,
    TopologyError,
    UnknownTopicError,
    key_value_store,
)
from streams.replay import archive_topic, replay
from streams.testing import TopologyTestDriver, simulate

words = Topic("words", key=str, value=str)
copies = Topic("copies", key=str, value=str)
ROWS = [("k", "v", 0)]
INTERNAL = ("app-counts-repartition", "app-counts-changelog", "dead")


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).to(copies)


def driver() -> TopologyTestDriver:
    return TopologyTestDriver(topology)


def broker() -> EmbeddedBroker:
    made = EmbeddedBroker(maintenance_interval_ms=None, auto_create_topics=False)
    made.create_topic(words)
    return made


Give = Callable[[Any], object]

#: What takes a ``Topic`` or a name.
EITHER: dict[str, Give] = {
    "pipe_bytes": lambda topic: driver().pipe_bytes(topic, None, b"v"),
    "read_bytes": lambda topic: driver().read_bytes(topic),
    "send": lambda topic: Producer(broker()).send(topic, b"v" if isinstance(topic, str) else "v"),
    "subscribe": lambda topic: Consumer(broker(), "g").subscribe([topic]),
    "subscribe to one": lambda topic: Consumer(broker(), "g").subscribe(topic),
    "ParallelConsumer": lambda topic: ParallelConsumer(broker(), "g", [topic], print).run(lambda: True),
    "describe_topics": lambda topic: Admin(broker()).describe_topics([topic]),
    "delete_topics": lambda topic: Admin(broker()).delete_topics([topic]),
    "create_partitions": lambda topic: Admin(broker()).create_partitions({topic: 2}),
    "create_topic": lambda topic: EmbeddedBroker(maintenance_interval_ms=None).create_topic(topic),
    "add_source": lambda topic: Topology().add_source("source", topic),
    "add_sink": lambda topic: Topology().add_source("source", "in").add_sink("sink", topic, "source"),
    "stream": lambda topic: StreamsBuilder().stream(topic, key=str, value=str),
    "table": lambda topic: StreamsBuilder().table(topic, key=str, value=str),
    "global_table": lambda topic: StreamsBuilder().global_table(topic, key=str, value=str),
    "add_global_store": lambda topic: StreamsBuilder().add_global_store(
        key_value_store(str, str, "s"), topic, Processor, key=str, value=str
    ),
    "to": lambda topic: StreamsBuilder().stream(words).to(topic),
}
#: What takes a ``Topic`` alone: its types say how values become bytes.
TYPED: dict[str, Give] = {
    "pipe": lambda topic: driver().pipe(topic, "v"),
    "pipe_all": lambda topic: driver().pipe_all(topic, ROWS),
    "read": lambda topic: driver().read(topic),
    "read_records": lambda topic: driver().read_records(topic),
    "read_partitions": lambda topic: driver().read_partitions(topic),
    "simulate": lambda topic: simulate(topology, {topic: ROWS}, seeds=[1]),
}


@pytest.mark.parametrize("wrong", [None, 5, b"words"])
@pytest.mark.parametrize("place", [*EITHER, *TYPED])
def test_what_is_no_topic_is_refused_by_name(place: str, wrong: Any) -> None:
    with pytest.raises((TopologyError, ConfigError), match=r"needs .*opic"):
        (EITHER | TYPED)[place](wrong)


@pytest.mark.parametrize("place", EITHER)
def test_topic_is_taken_as_such_and_by_name(place: str) -> None:
    for topic in (words, "words"):
        EITHER[place](topic)


@pytest.mark.parametrize("place", TYPED)
def test_name_in_the_place_of_a_topic_is_refused_with_the_way_to_say_it(place: str) -> None:
    with pytest.raises(TopologyError, match=r"needs a Topic, got 'words'.*: Topic\('words', key=..., value=...\)"):
        TYPED[place]("words")


def test_topic_given_to_create_topic_says_its_partitions() -> None:
    with EmbeddedBroker() as made, Admin(made) as admin:
        made.create_topic(Topic("three", value=str, partitions=3))
        made.create_topic(Topic("four", value=str, partitions=3), 4)
        found = admin.describe_topics(["three", "four"])

    assert {name: len(topic.leaders) for name, topic in found.items()} == {"three": 3, "four": 4}


@pytest.mark.parametrize(
    "read",
    [
        lambda made, name: made.read(Topic(name, value=str)),
        lambda made, name: made.read_records(Topic(name, value=str)),
        lambda made, name: made.read_partitions(Topic(name, value=str)),
        lambda made, name: made.read_bytes(name),
    ],
)
def test_topic_that_the_topology_does_not_have_is_no_empty_topic(read: Callable[[Any, str], object]) -> None:
    with pytest.raises(UnknownTopicError, match=r"neither writes nor reads topic 'copys'; did you mean 'copies'\?"):
        read(driver(), "copys")
    with pytest.raises(UnknownTopicError, match="'xyz'; there are: copies, words"):
        read(driver(), "xyz")
    assert not read(driver(), "copies")
    assert not read(driver(), "words")


def test_internal_topics_and_dead_letters_can_be_read() -> None:
    def counting(builder: StreamsBuilder) -> None:
        builder.stream(words).group_by(lambda _, word: word).count("counts").to_stream().to("copies")

    made = TopologyTestDriver(counting, errors_dead_letter_queue_topic_name="dead")

    assert [made.read_bytes(topic) for topic in INTERNAL] == [[], [], []]
    made.pipe(words, "v")
    assert {"words", "copies", *INTERNAL} - {"dead"} == set(made.topics())


def test_every_topic_may_be_written_where_records_choose_it() -> None:
    made = TopologyTestDriver(lambda builder: builder.stream(words).to(lambda key, word: word))

    assert made.read_bytes("any") == []


def test_input_that_a_simulated_topology_does_not_read_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"does not read topic 'wrds'; did you mean 'words'\?"):
        simulate(topology, {Topic("wrds", key=str, value=str): ROWS}, seeds=[1])


def test_topic_that_is_not_read_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UnknownTopicError, match=r"does not read topic 'wrds'; did you mean 'words'\?"):
        driver().pipe(Topic("wrds", value=str), "v")


def test_input_of_a_replay_that_is_no_topic_is_refused() -> None:
    with pytest.raises(TopologyError, match="an input of a replay needs a Topic or a topic's name, got 5"):
        replay(topology, {5: "none.jsonl"}, executor="local", application_id="app")  # type: ignore[misc, dict-item]


def test_archive_takes_a_topic(tmp_path: Path) -> None:
    assert archive_topic(broker(), words, tmp_path).topic == "words"
    with pytest.raises(ConfigError, match="needs a Topic or a topic's name, got 5"):
        archive_topic(broker(), 5, tmp_path)  # type: ignore[arg-type]
