"""What a takeover says of results that differ from those in Java."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams import StreamsBuilder, Suppressed, TimeWindows, Topic
from streams.comparison import Level
from streams.core.settings.config import StreamsConfig
from streams.dsl import build_topology
from streams.takeover.semantics import of_semantics

WORDS = Topic("words", key=str, value=str)
OTHERS = Topic("others", key=str, value=str)
WINDOWS = TimeWindows.of(timedelta(minutes=1), grace=timedelta(0))


def said(topology: Callable[[StreamsBuilder], Any], level: Level = Level.BUT, **settings: Any) -> list[str]:
    config = StreamsConfig.of(application_id="shop", **settings)
    findings = of_semantics(build_topology(topology, config), config)
    return [f"{item.subject}: {item.says}" for item in findings if item.level is level]


def merged_with_itself(builder: StreamsBuilder) -> None:
    stream = builder.stream(WORDS)
    stream.merge(stream, name="twice").to(OTHERS)


def equal_sources(builder: StreamsBuilder) -> None:
    builder.stream(WORDS).merge(builder.stream(WORDS), name="twice").to(OTHERS)


def merged(builder: StreamsBuilder) -> None:
    builder.stream(WORDS).merge(builder.stream(OTHERS)).for_each(print)


@pytest.mark.parametrize(("topology", "is_said"), [(merged_with_itself, True), (equal_sources, True), (merged, False)])
def test_a_stream_merged_with_itself_is_named(topology: Callable[[StreamsBuilder], None], *, is_said: bool) -> None:
    lines = said(topology)

    assert len(lines) == is_said
    assert all("node twice: has each record of KSTREAM-SOURCE-0000000000 2 times" in line for line in lines)


def cogrouped(builder: StreamsBuilder, times: int) -> None:
    grouped = builder.stream(WORDS).group_by_key()
    others = builder.stream(OTHERS).group_by_key().cogroup(lambda _, value, total: total + len(value))
    for _ in range(times):
        others = others.cogroup(grouped, lambda _, value, total: total + len(value))
    others.aggregate(lambda: 0, name="totals")


@pytest.mark.parametrize("times", [1, 2])
def test_a_second_aggregator_of_a_grouped_stream_is_named(times: int) -> None:
    lines = said(lambda builder: cogrouped(builder, times))

    assert len(lines) == times - 1
    assert all(line.startswith("store totals: has 2 aggregators of KSTREAM-SOURCE-0000000000") for line in lines)


@pytest.mark.parametrize("has_filter", [True, False])
def test_a_filter_before_a_suppression_is_named(*, has_filter: bool) -> None:
    def topology(builder: StreamsBuilder) -> None:
        counts = builder.stream(WORDS).group_by_key().windowed_by(WINDOWS).count("counts")
        if has_filter:
            counts = counts.filter(lambda _, count: count > 2, name="many")
        counts.suppress(Suppressed.until_window_closes(), name="at-close")

    lines = said(topology)

    assert len(lines) == has_filter
    assert all(line.startswith("node at-close: closes windows also by rows that many does not pass") for line in lines)


@pytest.mark.parametrize(
    ("settings", "says"),
    [({}, "is read in step by event time"), ({"group_protocol": "streams"}, "may have members in Java")],
)
def test_topics_in_step_are_told_from_those_shared_with_java(settings: dict[str, Any], says: str) -> None:
    (line,) = said(lambda builder: builder.stream(WORDS).repartition("words"), Level.NOTE, **settings)

    assert line.startswith("topic words-repartition: ")
    assert says in line
