"""The metrics of an instance: its registry, and the values that are read from the instance itself."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.metrics import MetricPlace, Metrics, Reading, RecordingLevel, table
from streams.runtime.life import State
from streams.topology import describe

if TYPE_CHECKING:
    from streams.runtime.instance import Instance

#: The ordinals of the states in Kafka Streams.
_NUMBERS: Mapping[State, int] = {
    State.CREATED: 0,
    State.REBALANCING: 1,
    State.RUNNING: 2,
    State.PENDING_SHUTDOWN: 3,
    State.NOT_RUNNING: 4,
    State.PENDING_ERROR: 5,
    State.ERROR: 6,
}


def metrics_of(config: StreamsConfig, clock: Clock) -> Metrics:
    """Return an empty metrics registry with the recording level and the sample window from ``config``."""
    return Metrics(clock, RecordingLevel.of(config.metrics_recording_level), config.metrics_sample_window_ms)


def readings(instance: "Instance", now_ms: int) -> Iterator[Reading]:
    """Yield the current values of the metrics that are read from an instance."""
    place = MetricPlace(client=instance.client_name)
    state = instance.state
    yield table.VERSION, place, _version()
    yield table.APPLICATION_ID, place, instance.config.application_id
    yield table.TOPOLOGY_DESCRIPTION, place, str(describe(instance.topology))
    yield table.STATE, place, state.name
    yield table.CLIENT_STATE, place, _NUMBERS[state]
    yield table.RECORDING_LEVEL, place, int(instance.metrics.level)
    yield table.ALIVE_THREADS, place, instance.pool.alive
    yield table.FAILED_THREADS, place, instance.pool.failed


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("streams")
    except PackageNotFoundError:
        return "unknown"
