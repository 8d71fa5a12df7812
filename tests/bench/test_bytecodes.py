"""The price of the DSL against hand-written loops over the same broker: bytecodes per record, not time.

The interpreter counts what it executes, so the figures are the same on a busy machine and on a slow one.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from streams import StreamsBuilder
from streams.bounded import run_bounded
from streams.core.records import Block
from tests.bench.__main__ import bids, count, stateless, tumbling
from tests.bench.fused import Loop, counting, mapping, run_fused
from tests.bench.harness import PARTITIONS, blocks_of

#: Nexmark events, of which 92 % are bids.
EVENTS = 5_000
#: Runs of which the least counts, where the bound is as narrow as what polls cost on a busy machine.
LEAST_RUNS, MOST_RUNS = 2, 15
SETTINGS = {"cache_max_bytes": 0, "default_store": "in_memory"}
Blocks = Sequence[tuple[int, Block]]


def bytecodes(action: Callable[[], object]) -> int:
    """Return the number of bytecodes that the threads which ``action`` starts execute; its own thread only waits."""
    executed = 0

    def on_event(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal executed
        executed += event == "opcode"
        return on_event

    def on_call(frame: FrameType, _: str, __: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return on_event

    # Threads change only where they wait, so that how often each polls does not depend on the machine.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    threading.settrace(on_call)
    try:
        action()
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
        sys.setswitchinterval(interval)
    return executed


def per_record(run: Callable[[Blocks], object]) -> float:
    """Return bytecodes per record: what four times the records cost more, so that the costs of a start do not count."""
    few, many = (blocks_of(bids, events) for events in (EVENTS, 4 * EVENTS))
    # The first run compiles, imports and fills caches.
    run(few)
    counts = [bytecodes(lambda blocks=blocks: run(blocks)) for blocks in (few, many)]
    records = [sum(len(block) for _, block in blocks) for blocks in (few, many)]
    return (counts[1] - counts[0]) / (records[1] - records[0])


def bounded(topology: Callable[[StreamsBuilder], object], **settings: Any) -> Callable[[Blocks], None]:
    def run(blocks: Blocks) -> None:
        inputs = {"bids": lambda count, skip: ([item] for item in blocks)}
        chosen = SETTINGS | settings
        with run_bounded(topology, inputs, application_id="cost", partitions=PARTITIONS, settings=chosen):
            pass

    return run


def by_hand(make: Callable[[], Loop]) -> float:
    def run(blocks: Blocks) -> None:
        thread = threading.Thread(target=run_fused, args=(make, {"bids": blocks}))
        thread.start()
        thread.join()

    return per_record(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "make", "most"), [(stateless, mapping, 1.78), (count, counting, 1.7), (tumbling, counting, 2.85)]
)
def test_dsl_executes_little_more_than_a_loop_by_hand(topology, make, most):
    """The loop by hand counts in windows, so a plain count has to cost far less than a windowed one."""
    pytest.importorskip("streams.state.compiled_loops", reason="bounds are those of the compiled loops")

    ours, hand = per_record(bounded(topology)), by_hand(make)

    print(f"{topology.__name__}: {ours:.1f} bytecodes per record, by hand {hand:.1f}, ratio {ours / hand:.3f}")
    assert ours < most * hand


@pytest.mark.slow
@pytest.mark.parametrize("topology", [stateless, count, tumbling])
def test_recording_of_metrics_executes_little_more(topology):
    """Measured are 0.2 to 0.8 %; the bound leaves room for turns that a thread takes more on a busy machine.

    It takes more turns there, never fewer, so the least of many runs is the cost.
    """
    inputs = [blocks_of(bids, events) for events in (EVENTS, 4 * EVENTS)]
    runs = [bounded(topology, metrics_recording_level=level) for level in ("off", "info")]
    for run in runs:
        run(inputs[0])
    least = [[bytecodes(lambda run=run, blocks=blocks: run(blocks)) for blocks in inputs] for run in runs]
    for number in range(MOST_RUNS):
        # What more records cost more, so that the costs of a start do not count.
        off, info = (many - few for few, many in least)
        if number >= LEAST_RUNS and info <= 1.015 * off:
            return
        for run, counts in zip(runs, least, strict=True):
            for place, blocks in enumerate(inputs):
                counts[place] = min(counts[place], bytecodes(lambda run=run, blocks=blocks: run(blocks)))
    pytest.fail(f"{info:,} bytecodes with metrics, {off:,} without")
