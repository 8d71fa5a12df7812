"""The price of the DSL against hand-written loops over the same broker: bytecodes per record, not time.

The interpreter counts what it executes, so the figures are the same on a busy machine and on a slow one.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import inf
from types import FrameType
from typing import Any

import pytest

from streams import StreamsBuilder
from streams.bounded import run_bounded
from streams.core.blocks.records import Block
from tests.bench.__main__ import bids, count, stateless, tumbling
from tests.bench.fused import Loop, counting, mapping, run_fused
from tests.bench.harness import PARTITIONS, blocks_of

#: Nexmark events, of which 92 % are bids.
EVENTS = 5_000
#: By how much the second run of a measurement is larger: a turn of a thread more or less, of which a busy machine makes
#: some, is then 0.2 % of the records' cost.
TIMES = 12
#: Runs of which the least counts, where the bound is as narrow as what polls cost on a busy machine.
LEAST_RUNS, MOST_RUNS = 2, 15
SETTINGS = {"default_store": "in_memory"}
Blocks = Sequence[tuple[int, Block]]
Run = Callable[[Blocks], None]


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


def least_per_record(*runs: Run) -> Iterator[list[float]]:
    """Yield bytecodes per record of each run, again and again: the least of all measurements so far.

    A thread polls more often on a busy machine, never less often, so the least is the cost.  It is what ``TIMES`` the
    records cost more, so that the costs of a start do not count.
    """
    inputs = [blocks_of(bids, events) for events in (EVENTS, TIMES * EVENTS)]
    records = [sum(len(block) for _, block in blocks) for blocks in inputs]
    for run in runs:
        # The first run compiles, imports and fills caches.
        run(inputs[0])
    least: list[list[float]] = [[inf, inf] for _ in runs]
    while True:
        for run, counts in zip(runs, least, strict=True):
            for place, blocks in enumerate(inputs):
                counts[place] = min(counts[place], bytecodes(lambda run=run, blocks=blocks: run(blocks)))
        yield [(many - few) / (records[1] - records[0]) for few, many in least]


def bounded(topology: Callable[[StreamsBuilder], object], **settings: Any) -> Run:
    def run(blocks: Blocks) -> None:
        inputs = {"bids": lambda count, skip: ([item] for item in blocks)}
        chosen = SETTINGS | settings
        with run_bounded(topology, inputs, application_id="cost", partitions=PARTITIONS, settings=chosen):
            pass

    return run


def by_hand(make: Callable[[], Loop]) -> Run:
    def run(blocks: Blocks) -> None:
        thread = threading.Thread(target=run_fused, args=(make, {"bids": blocks}))
        thread.start()
        thread.join()

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "make", "most"), [(stateless, mapping, 1.78), (count, counting, 1.7), (tumbling, counting, 2.85)]
)
def test_dsl_executes_little_more_than_a_loop_by_hand(topology, make, most):
    """The loop by hand counts in windows, so a plain count has to cost far less than a windowed one."""
    pytest.importorskip("streams.state.compiled_loops", reason="bounds are those of the compiled loops")

    for ours, hand in islice(least_per_record(bounded(topology), by_hand(make)), MOST_RUNS):
        print(f"{topology.__name__}: {ours:.1f} bytecodes per record, by hand {hand:.1f}, ratio {ours / hand:.3f}")
        if ours < most * hand:
            return
    pytest.fail(f"a ratio of {ours / hand:.3f}, not below {most}")


@pytest.mark.slow
@pytest.mark.seeds("topology", [stateless, count, tumbling])
def test_recording_of_metrics_executes_little_more(topology):
    """Measured are 0.2 to 0.8 %; the bound leaves room for turns that a thread takes more on a busy machine."""
    runs = [bounded(topology, metrics_recording_level=level) for level in ("off", "info")]
    for off, info in islice(least_per_record(*runs), LEAST_RUNS, MOST_RUNS):
        if info <= 1.015 * off:
            return
    pytest.fail(f"{info:.1f} bytecodes per record with metrics, {off:.1f} without")
