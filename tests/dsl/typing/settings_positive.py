"""Settings as users give them, handlers among them; must be clean.  Not run: see test_typing."""

from datetime import timedelta
from pathlib import Path
from typing import Literal

from streams import (
    ConsumerRecord,
    ErrorHandlerContext,
    HandlerResponse,
    ProducerRecord,
    Record,
    Streams,
    StreamsBuilder,
    Topic,
    run,
)
from streams.replay import replay
from streams.testing import TopologyTestDriver, simulate

lines = Topic("lines", key=str, value=str)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(lines).for_each(print)


def lenient(context: ErrorHandlerContext, record: Record[str, str] | None, error: Exception) -> HandlerResponse:
    return HandlerResponse.resume([context.dead_letter(error)])


def stop(context: ErrorHandlerContext, record: object, error: Exception) -> Literal["fail", "continue"]:
    return "fail" if context.topic is None else "continue"


def unread(
    context: ErrorHandlerContext, record: ConsumerRecord[bytes | None, bytes | None], error: Exception
) -> HandlerResponse:
    return HandlerResponse.fail([ProducerRecord("dead", record.key, record.value, record.timestamp_ms)])


def application(folder: Path) -> None:
    Streams(
        topology,
        application_id="app",
        state_dir=folder,
        commit_interval_ms=timedelta(seconds=1),
        acks="all",
        processing_handler=lenient,
        deserialization_handler=unread,
        production_handler=lambda context, record, error: "retry",
        processor_wrapper=lambda node, process: process,
        default_timestamp_extractor=lambda key, value, time, partition_time: time,
    )
    run(topology, application_id="app", bootstrap_servers=["a:9092", "b:9092"], processing_handler="continue")
    TopologyTestDriver(topology, partitions=3, processing_handler=stop)
    simulate(topology, {lines: [("k", "v", 1)]}, seeds=[1], processing_guarantee="exactly_once_v2")
    replay(topology, {lines: "lines.txt"}, executor="local", processing_handler=lambda *_: "continue")
