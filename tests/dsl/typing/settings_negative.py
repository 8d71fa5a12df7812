"""Mistakes in settings: the checkers must report every line that ends in ``# wrong``.  Not run: see test_typing."""

from streams import ErrorHandlerContext, HandlerResponse, Record, Streams, StreamsBuilder, run
from streams.replay import replay
from streams.testing import TopologyTestDriver, simulate


def topology(builder: StreamsBuilder) -> None: ...


def silent(context: ErrorHandlerContext, record: Record[str, str] | None, error: Exception) -> None: ...


def short(context: ErrorHandlerContext, error: Exception) -> HandlerResponse:
    return HandlerResponse.fail()


async def later(context: ErrorHandlerContext, record: Record[str, str] | None, error: Exception) -> HandlerResponse:
    return HandlerResponse.fail()


def application() -> None:
    Streams(topology, application_id="app", commit_intervall_ms=1)  # wrong
    Streams(topology, application_id="app", commit_interval_ms="often")  # wrong
    Streams(topology, application_id="app", processing_guarantee="exactly_once")  # wrong
    Streams(topology, application_id="app", processing_handler=silent)  # wrong
    Streams(topology, application_id="app", processing_handler=short)  # wrong
    Streams(topology, application_id="app", processing_handler=later)  # wrong
    Streams(topology, application_id="app", processing_handler=lambda context, record, error: "retry")  # wrong
    run(topology, application_id="app", num_stream_threads=1.5)  # wrong
    TopologyTestDriver(topology, partition=3)  # wrong
    simulate(topology, {}, seeds=[1], storm=3)  # wrong
    replay(topology, {"lines": "lines.txt"}, executor="local", cache_max_byte=1)  # wrong
