"""Repartition topics that a live run does not read in step are named, with the reason; patience is set per topic."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams import EmbeddedBroker, Streams, StreamsBuilder, Topic, TopologyError
from streams.core.config import StreamsConfig
from streams.dsl import build_topology
from streams.runtime.in_step import out_of_step

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
    with caplog.at_level(logging.INFO, "streams.runtime.in_step"), EmbeddedBroker() as broker:
        for topic in ("words", "names", "cities", "counts"):
            broker.create_topic(topic, 2)
        with Streams(topology, application_id="live", broker=broker, **settings):
            return [record.getMessage() for record in caplog.records if record.name == "streams.runtime.in_step"]


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


def test_a_topic_has_a_patience_of_its_own() -> None:
    """It is that of the setting unless given, also if the setting is 0; 0 is as in Kafka Streams, for this topic."""

    def reasons(patience: timedelta | None, **settings: Any) -> dict[str, str]:
        config = StreamsConfig.of(application_id="live", **settings)
        return out_of_step(build_topology(counting(patience), config), config)

    assert reasons(None) == reasons(timedelta(seconds=5)) == {}
    assert reasons(timedelta(0)) == {"by-word-repartition": "its patience is 0"}
    assert reasons(None, repartition_patience_ms=0) == {"by-word-repartition": "repartition_patience_ms is 0"}
    assert reasons(timedelta(seconds=5), repartition_patience_ms=0) == {}


@pytest.mark.parametrize("patience", [timedelta(seconds=-1), 5_000, timedelta(microseconds=1)])
def test_patience_is_a_duration(patience: Any) -> None:
    with pytest.raises(TopologyError, match=r"repartition of .*: patience must"):
        build_topology(counting(patience), StreamsConfig.of(application_id="live"))
