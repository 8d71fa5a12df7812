"""Repartition topics that a live run does not read in step are named, with the reason; patience is set per topic."""

import logging
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams import Admin, EmbeddedBroker, Streams, StreamsBuilder, Topic, TopologyError
from streams.core.settings.config import StreamsConfig
from streams.dsl import build_topology
from streams.protocol.messages import TopicSpec
from streams.runtime.plan.in_step import out_of_step, steps
from tests.runtime.test_in_step import until

WORDS = Topic("words", key=str, value=str)
NAMES = Topic("names", key=str, value=str)
COUNTS = Topic("counts", key=str, value=int)


def counting(patience: timedelta | None = None) -> Callable[[StreamsBuilder], None]:
    def topology(builder: StreamsBuilder) -> None:
        by_word = builder.stream(WORDS).select_key(lambda _, word: word).repartition("by-word", patience=patience)
        by_word.group_by_key().count("counts-by-word").to_stream().to(COUNTS)

    return topology


def with_foreign_keys(builder: StreamsBuilder) -> None:
    cities = builder.table(Topic("cities", key=str, value=str))
    cities.join(builder.table(NAMES), lambda city, name: name, foreign_key=lambda _, city: city)
    counting()(builder)


def at_the_start(topology: Callable[[StreamsBuilder], None], caplog: Any, **settings: Any) -> list[str]:
    """Start an application, and return what the log says of steps."""
    with caplog.at_level(logging.INFO, "streams.runtime.plan.in_step"), EmbeddedBroker() as broker:
        for topic in ("words", "names", "cities", "counts"):
            broker.create_topic(topic, 2)
        with Streams(topology, application_id="live", broker=broker, **settings):
            return [record.getMessage() for record in caplog.records if record.name == "streams.runtime.plan.in_step"]


def test_nothing_is_said_if_all_topics_are_in_step(caplog: pytest.LogCaptureFixture) -> None:
    assert at_the_start(counting(), caplog) == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"repartition_patience_ms": 0}, "repartition_patience_ms is 0"),
        ({"max_task_idle_ms": -1}, "max_task_idle_ms is -1"),
        ({"flight_recorder": True}, "the flight recorder records the order of offsets"),
    ],
)
def test_the_start_names_the_topics_that_are_not_in_step(
    settings: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert at_the_start(counting(), caplog, **settings) == [
        "application 'live': not read in step by event time, but as records come, as in Kafka Streams: "
        f"by-word-repartition ({reason})"
    ]


def test_cycles_are_named_beside_topics_that_are_in_step(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = at_the_start(with_foreign_keys, caplog)

    assert "KTABLE-FK-JOIN" in line
    assert "intermediate results are not promised" in line
    assert "by-word" not in line


def through(topic: str, *, as_table: bool = False) -> Callable[[StreamsBuilder], None]:
    """Write a topic and read it again."""

    def topology(builder: StreamsBuilder) -> None:
        again = Topic(topic, key=str, value=str)
        builder.stream(WORDS).to(again)
        if as_table:
            builder.table(again, store="words-by-key")
        else:
            builder.stream(again).group_by_key().count("counts-by-word").to_stream().to(COUNTS)

    return topology


@pytest.mark.parametrize(("policy", "in_step"), [("delete", {"names"}), ("compact,delete", set())])
def test_a_topic_that_tasks_write_and_read_is_in_step_if_it_is_not_compacted(
    policy: str, in_step: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker() as broker, Admin(broker) as admin, caplog.at_level(logging.WARNING):
        admin.create_topics([TopicSpec("words", 2), TopicSpec("names", 2, {"cleanup.policy": policy})])
        with Streams(through("names"), application_id="live", broker=broker) as live:
            (thread,) = live.instance.stream_threads
            until(lambda: bool(thread.tasks), live)
            assert thread.task_set.plan.in_step() == in_step
    lines = [record.getMessage() for record in caplog.records if record.name == "streams.runtime.plan.in_step"]
    assert ["names (it is compacted (cleanup.policy)" in line for line in lines] == [True] * (not in_step)


@pytest.mark.parametrize(
    ("topology", "reason"),
    [(through("words"), "from a cycle"), (through("names", as_table=True), "words-by-key is restored")],
)
def test_a_topic_that_feeds_itself_or_restores_a_store_is_not_in_step(
    topology: Callable[[StreamsBuilder], None], reason: str
) -> None:
    config = StreamsConfig.of(application_id="live", topology_optimization="all")
    ((_, why),) = out_of_step(steps(build_topology(topology, config), config)).items()
    assert re.search(reason, why)


def test_a_topic_has_a_patience_of_its_own() -> None:
    """It is that of the setting unless given, also if the setting is 0; 0 is as in Kafka Streams, for this topic."""

    def reasons(patience: timedelta | None, **settings: Any) -> dict[str, str]:
        config = StreamsConfig.of(application_id="live", **settings)
        return out_of_step(steps(build_topology(counting(patience), config), config))

    assert reasons(None) == reasons(timedelta(seconds=5)) == {}
    assert reasons(timedelta(0)) == {"by-word-repartition": "its patience is 0"}
    assert reasons(None, repartition_patience_ms=0) == {"by-word-repartition": "repartition_patience_ms is 0"}
    assert reasons(timedelta(seconds=5), repartition_patience_ms=0) == {}


@pytest.mark.parametrize("patience", [timedelta(seconds=-1), 5_000, timedelta(microseconds=1)])
def test_patience_is_a_duration(patience: Any) -> None:
    with pytest.raises(TopologyError, match=r"repartition of .*: patience must"):
        build_topology(counting(patience), StreamsConfig.of(application_id="live"))
