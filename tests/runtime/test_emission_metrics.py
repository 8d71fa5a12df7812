"""The metrics of results that wait: suppression buffers, windows that close, and punctuations by task."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from streams import (
    CountWindows,
    EmitStrategy,
    Processor,
    PunctuationType,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    Windower,
)
from streams.core.blocks.records import Window
from streams.testing import TopologyTestDriver

words, out = Topic("words", key=str, value=str), Topic("out", key=str, value=str)
TEN = timedelta(milliseconds=10)


class Tens(Windower[str, str]):
    """Windows of ten milliseconds."""

    retention = timedelta(seconds=1)

    def assign(self, key: str, value: str, timestamp_ms: int, windows: Sequence[Window]) -> list[Window]:
        start_ms = timestamp_ms - timestamp_ms % 10
        return [Window(start_ms, start_ms + 10)]

    def close(self, window: Window) -> int:
        return window.end_ms


def fed(driver: TopologyTestDriver, *times: int) -> None:
    for key in ("a", "b"):
        driver.pipe(words, "", key=key, timestamp_ms=times[0])
    for time_ms in times[1:]:
        driver.pipe(words, "", key="later", timestamp_ms=time_ms)


@pytest.mark.parametrize(
    "windows",
    [
        TimeWindows.of(TEN),
        SessionWindows.of(TEN),
        SlidingWindows.of(TEN, grace=timedelta(0)),
        Tens(),
    ],
    ids=lambda windows: type(windows).__name__,
)
def test_results_of_closed_windows_are_counted_and_timed(windows: Any) -> None:
    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(words).group_by_key().windowed_by(windows)
        windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("kept").to_stream(lambda key, _: key.key).to("out")

    with TopologyTestDriver(topology, metrics_recording_level="debug") as driver:
        fed(driver, 0, 30)
        assert driver.metrics.get("window-aggregate-final-emit-total") == 2
        assert driver.metrics.get("window-aggregate-final-emit-rate") > 0
        assert driver.metrics.get("window-aggregate-final-emit-latency-max") >= 0


def test_full_windows_of_a_number_of_records_are_counted() -> None:
    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(words).group_by_key().windowed_by(CountWindows.of(2))
        windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("kept").to_stream(lambda key, _: key.key).to("out")

    with TopologyTestDriver(topology, metrics_recording_level="debug") as driver:
        fed(driver, 0, 1, 2, 3)
        assert driver.metrics.get("window-aggregate-final-emit-total") == 1


def suppressed(builder: StreamsBuilder) -> None:
    counts = builder.stream(words).group_by_key().windowed_by(TimeWindows.of(TEN)).count("kept")
    counts.suppress(Suppressed.until_window_closes()).to_stream(lambda key, _: key.key).to("out")


def test_a_suppression_has_the_size_of_its_buffer_and_what_it_emits() -> None:
    with TopologyTestDriver(suppressed, metrics_recording_level="debug") as driver:
        fed(driver, 0, 1, 30)
        # Three changes of the first window leave with the one of a later window.
        assert driver.metrics.get("suppression-emit-total") == 3
        assert driver.metrics.get("suppression-buffer-count-max") == 3
        assert driver.metrics.get("suppression-buffer-count-avg") == (1 + 2 + 3 + 1) / 4
        whole, average = (driver.metrics.get(f"suppression-buffer-size-{stat}") for stat in ("max", "avg"))
        assert whole > average > 0


class Ticking(Processor[str, str, str, str]):
    """Punctuates each ten milliseconds of stream time."""

    def init(self, context: Any) -> None:
        context.schedule(TEN, PunctuationType.STREAM_TIME, lambda _: None)

    def process(self, record: Record[str, str]) -> None:
        pass


def test_punctuations_of_a_task_are_timed() -> None:
    with TopologyTestDriver(
        lambda builder: builder.stream(words).process(Ticking), metrics_recording_level="debug"
    ) as driver:
        fed(driver, 0, 10, 20)
        assert driver.metrics.get("punctuate-total", task="0_0") == 3
        assert driver.metrics.get("punctuate-latency-max", task="0_0") >= 0
