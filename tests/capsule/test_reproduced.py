"""What a live application did is done again, record for record, from what its flight recorder noted."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from streams import (
    EmbeddedBroker,
    ExceptionResponse,
    Processor,
    Producer,
    Record,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Topic,
)
from streams.capsule import Capsule, Reproduction, capture
from streams.clients import Admin
from streams.core.errors import InputError
from streams.runtime import recorder_topic
from streams.topology import PunctuationType
from tests.waiting import until

clicks = Topic("clicks", key=str, value=str, partitions=3)
users = Topic("users", key=str, value=str, partitions=3)
joined = Topic("joined", key=str, value=str, partitions=3)
counted = Topic("counted", key=str, value=int, partitions=3)
ticks = Topic("ticks", key=str, value=str, partitions=3)


class Ticking(Processor[str, str, str, str]):
    """Counts records, and writes the count whenever the wall clock fires."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.seen = 0
        context.schedule(timedelta(milliseconds=5), PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record[str, str]) -> None:
        self.seen += 1

    def tick(self, now_ms: int) -> None:
        self.context.forward(str(self.context.task_id), f"{self.seen} at {now_ms}")


class Once:
    """Fails once, when it is armed."""

    def __init__(self) -> None:
        self.is_armed = False
        self.failed = 0

    def __call__(self, word: str) -> str:
        if self.is_armed:
            self.is_armed = False
            self.failed += 1
            raise RuntimeError("once")
        return word


def topology_with(once: Once) -> Any:
    """A re-key, a join with a table, a count behind the record cache, and wall-clock punctuations."""

    def topology(builder: StreamsBuilder) -> None:
        names = builder.table(users, name="names")
        stream = builder.stream(clicks).map_values(once)
        rekeyed = stream.select_key(lambda _, value: value[:2])
        rekeyed.join(names, lambda value, name: f"{value} by {name}").to(joined)
        rekeyed.group_by_key().count("counts").to_stream().to(counted)
        stream.process(Ticking, name="ticking").to(ticks)

    return topology


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as found:
        yield found


def run(
    broker: EmbeddedBroker, once: Once, *, fails: bool = False, commits_meanwhile: bool = True, **settings: Any
) -> StreamsConfig:
    """Run three threads over records of two topics that arrive meanwhile; return the settings."""
    config = StreamsConfig.of(
        application_id="shop", num_stream_threads=3, flight_recorder=True, max_poll_records=7, **settings
    )
    given = {"flight_recorder": True, "max_poll_records": 7, "num_stream_threads": 3, **settings}
    streams = Streams(
        topology_with(once),
        broker=broker,
        application_id="shop",
        on_exception=lambda error: ExceptionResponse.REPLACE_THREAD,
        **given,
    )
    with streams, Producer(broker) as producer:
        for part in range(6):
            for number in range(60):
                producer.send(users, f"name {part}", key=f"{number % 20:02}", timestamp_ms=part * 60 + number)
                producer.send(
                    clicks, f"{number % 20:02} {part}", key=f"k{number % 13}", timestamp_ms=part * 60 + number
                )
            producer.flush()
            if commits_meanwhile:
                until(lambda part=part: committed(broker) >= 60 * (part + 1))
            if fails and part == 3:
                once.is_armed = True
        if not commits_meanwhile:
            until(lambda: streams.metrics.get("process-total") >= 720)
    return config


def committed(broker: EmbeddedBroker) -> int:
    """Return how many records of each topic are committed."""
    with Admin(broker) as admin:
        offsets = admin.committed_offsets("shop")
    return min(
        sum(found.offset for partition, found in offsets.items() if partition.topic == topic)
        for topic in ("clicks", "users")
    )


def captured(broker: EmbeddedBroker, config: StreamsConfig, **span: Any) -> Capsule:
    with Admin(broker) as admin:
        known = {topic.name: len(topic.leaders) for topic in admin.all_topics()}
    return capture(broker, built(), config, known, **span)


def built() -> Any:
    from streams.dsl import build_topology

    return build_topology(topology_with(Once()), StreamsConfig.of(application_id="shop"))


@pytest.mark.case
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("fails", [False, True], ids=["smooth", "failing"])
def test_a_live_run_of_three_threads_is_reproduced_record_for_record(broker, tmp_path, guarantee, fails):
    once = Once()
    config = run(broker, once, fails=fails, processing_guarantee=guarantee, commit_interval_ms=10)
    capsule = captured(broker, config)
    assert not capsule.notes
    capsule.write(tmp_path / "capsule")
    again = Capsule.read(tmp_path / "capsule")
    found = Reproduction(again, built(), config).compare()
    assert found.is_same, str(found)
    assert found.inputs >= 360 + 360
    assert found.outputs > 360
    assert found.changes > 20
    assert once.failed == fails


def test_another_order_of_the_inputs_is_found(broker):
    config = run(broker, Once(), commits_meanwhile=False, commit_interval_ms=600_000)
    capsule = captured(broker, config)
    task_id, number = next(
        (task_id, number)
        for task_id, span in capsule.spans.items()
        for number, frame in enumerate(span.frames)
        if len({step.index for step in frame.steps if step.kind == "took"}) == 2
    )
    frames = list(capsule.spans[task_id].frames)
    frames[number] = evolve(frames[number], inputs=list(reversed(frames[number].inputs)))
    capsule.spans[task_id] = evolve(capsule.spans[task_id], frames=tuple(frames))
    found = Reproduction(capsule, built(), config).compare()
    assert [difference.task_id for difference in found.differences] == [task_id]


def test_a_changed_output_is_found_with_its_offset(broker):
    config = run(broker, Once(), commits_meanwhile=False, commit_interval_ms=600_000)
    capsule = captured(broker, config)
    partition = next(place for place, block in capsule.records.items() if place.topic == "joined" and len(block))
    block = capsule.records[partition]
    capsule.records[partition] = evolve(block, values=[*block.values[:-1], b"another"])
    (difference,) = Reproduction(capsule, built(), config).compare().differences
    assert difference.where == f"{partition} offset {block.offsets[-1]}"
    assert "another" in difference.recorded


def test_nothing_is_recorded_by_default(broker):
    with Streams(topology_with(Once()), broker=broker, application_id="shop"):
        pass
    with pytest.raises(InputError, match="flight_recorder=true"):
        captured(broker, StreamsConfig.of(application_id="shop"))


def test_frames_are_kept_for_the_retention_time(broker):
    settings = {"flight_recorder": True, "flight_recorder_retention_ms": 7_200_000}
    with Streams(topology_with(Once()), broker=broker, application_id="shop", **settings), Admin(broker) as admin:
        topic = recorder_topic("shop")
        until(lambda: topic in admin.list_topics(include_internal=True))
        assert admin.describe_topics([topic])[topic].config["retention.ms"] == "7200000"


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_span_may_begin_and_end_within_a_run(broker, guarantee):
    config = run(broker, Once(), processing_guarantee=guarantee, commit_interval_ms=10)
    whole = captured(broker, config)
    # Tasks that read clicks keep a count outside of stores, which is not known within a run.
    tasks = [
        task_id
        for task_id, span in whole.spans.items()
        if all(place.topic != "clicks" for place in span.frames[0].inputs)
    ]
    times = sorted(frame.now_ms for task_id in tasks for frame in whole.spans[task_id].frames)
    since, until_ms = times[len(times) // 3], times[2 * len(times) // 3] + 1
    part = captured(broker, config, since_ms=since, until_ms=until_ms, tasks=tasks)
    assert any(span.before is not None for span in part.spans.values())
    found = Reproduction(part, built(), config).compare()
    assert found.is_same, str(found)
    assert 0 < found.commits < sum(len(span.frames) for span in whole.spans.values())
