"""What a live run loses is in its log: one warning per node and reason and minute, with counts."""

from datetime import timedelta

from streams import StreamsBuilder, TimeWindows, Topic
from streams.core.blocks.records import TaskId
from streams.core.clock import VirtualClock
from streams.core.metrics import DropReason, Metrics, table
from streams.runtime.plan.losses_told import LossesTold

words = Topic("words", key=str, value=str)
TASK = TaskId(0, 0)


def told(clock: VirtualClock) -> tuple[LossesTold, Metrics]:
    builder = StreamsBuilder()
    builder.stream(words).group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1))).count("counts")
    metrics = Metrics(clock)
    return LossesTold(builder.build(), metrics), metrics


def test_dropped_records_are_told_by_node_and_reason(caplog):
    clock = VirtualClock(0)
    losses, metrics = told(clock)
    for second in range(66):
        metrics.drop(DropReason.FAILED, 2, task=TASK, node="parse", example="words-0 at offset 7", error="ValueError")
        metrics.drop(DropReason.UNJOINED, task=TASK, node="join")
        losses.look(second * 1_000)
    losses.look(66_000, is_last=True)

    assert caplog.messages == [
        "2 records were dropped at parse: failed, ValueError (the first: words-0 at offset 7)",
        "110 records were dropped at parse: failed, ValueError (the first: words-0 at offset 7)",
        "20 records were dropped at parse: failed, ValueError (the first: words-0 at offset 7)",
    ]


def test_late_records_are_told_if_they_are_more_than_one_in_a_hundred(caplog):
    clock = VirtualClock(0)
    losses, metrics = told(clock)
    for second, late in ((0, 9), (70, 9), (140, 11)):
        metrics.counter(table.PROCESSED, task=TASK).value += 1_000
        metrics.drop(DropReason.LATE, late, task=TASK, node="counts")
        losses.look(second * 1_000)
        losses.look(second * 1_000 + 60_000)

    assert caplog.messages == [
        "counts: 11 of 1,000 records dropped as late (1.10%): their windows were already closed; increase grace"
    ]
