"""Many partitions, many tasks: 10,000 partitions and 1,000 tasks in one process."""

import argparse
import resource
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from streams import EmbeddedBroker, State, Streams, StreamsBuilder, Topic
from tests.bench.harness import machine
from tests.bench.scale_parts import note

_PATIENCE_MS = 300_000
_SETTLED_S = 5
_IDLE_S = 10

events = Topic("events", key=int, value=int)


def topology(topics: int) -> Any:
    """Count over so many topics, which are read together: a task has a partition of each."""

    def build(builder: StreamsBuilder) -> None:
        streams = [builder.stream(Topic(f"events-{number}", key=int, value=int)) for number in range(topics)]
        first, *others = streams
        for other in others:
            first = first.merge(other)
        first.group_by_key().count("counts")

    return build


def now() -> tuple[float, float]:
    """Return wall and CPU seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), used.ru_utime + used.ru_stime


def wait_for(instances: list[Streams], tasks: int) -> None:
    """Wait until the tasks are shared out and every instance runs."""
    deadline = time.monotonic() + _PATIENCE_MS / 1000
    while not all(streams.state is State.RUNNING for streams in instances) or (
        sum(len(streams.tasks()) for streams in instances) != tasks
    ):
        if any(streams.wait(20) for streams in instances):
            raise RuntimeError("an instance has ended")
        if time.monotonic() > deadline:
            raise TimeoutError(f"not settled after {_PATIENCE_MS} ms: {[streams.state for streams in instances]}")


def run(arguments: list[str]) -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.scale many")
    options.add_argument("--tasks", type=int, default=1_000)
    options.add_argument("--partitions", type=int, default=10_000, help="of all source topics together")
    options.add_argument("--on-disk", action="store_true", help="state in RocksDB")
    chosen = options.parse_args(arguments)
    topics = chosen.partitions // chosen.tasks
    rows: dict[str, tuple[float, float]] = {}

    def measured(name: str, begin: tuple[float, float]) -> None:
        wall, cpu = (after - before for after, before in zip(now(), begin, strict=True))
        rows[name] = (wall, cpu)
        print(f"| {name} | {wall:.2f} | {cpu:.2f} |", flush=True)

    print(f"{machine()}; {chosen.partitions:,} partitions, {chosen.tasks:,} tasks\n")
    print("| what | wall s | CPU s |\n|---|---|---|")
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker())
        begin = now()
        for number in range(topics):
            broker.create_topic(f"events-{number}", chosen.tasks)
        measured("topics", begin)

        def started() -> Streams:
            settings: dict[str, Any] = {}
            if chosen.on_disk:
                settings["state_dir"] = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            return stack.enter_context(Streams(topology(topics), application_id="many", broker=broker, **settings))

        begin = now()
        first = started()
        wait_for([first], chosen.tasks)
        measured("start", begin)
        # The first commit, and the last tasks that are restored, belong to the start.
        begin = now()
        first.wait(_SETTLED_S * 1000)
        measured(f"settling for {_SETTLED_S} s", begin)
        begin = now()
        first.wait(_IDLE_S * 1000)
        measured(f"idle for {_IDLE_S} s", begin)
        begin = now()
        second = started()
        wait_for([first, second], chosen.tasks)
        measured("a second instance joins", begin)
        begin = now()
        second.close()
        wait_for([first], chosen.tasks)
        measured("it leaves", begin)
        begin = now()
        first.close()
        measured("close", begin)
    note("many", {"tasks": chosen.tasks, "partitions": chosen.partitions, "on_disk": chosen.on_disk, "rows": rows})
