"""What a replay is compared to: the task alone, and what Spark's users write themselves."""

import time
from collections.abc import Iterator
from typing import Any

from attrs import evolve
from msgspec.json import Decoder

from streams import TopicPartition
from streams.core.blocks.records import NO_TIMESTAMP, Block
from streams.core.metrics import Metrics
from streams.replay.calls.work import StageWork, TaskWork
from streams.replay.run.session import ReplaySession
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.tasks.checkpoint import Checkpoint
from streams.runtime.tasks.task import TaskState
from streams.state.opening import open_store
from topology_examples.nexmark import Bid

TEN_SECONDS_MS = 10_000
#: Groups of ``applyInPandas``: a group lies in memory as a whole.
_GROUPS = 32


class Watch:
    """Seconds of wall and CPU time of this thread, stopped now and then."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def start(self) -> None:
        self.wall -= time.perf_counter()
        self.cpu -= time.thread_time()

    def stop(self) -> None:
        self.wall += time.perf_counter()
        self.cpu += time.thread_time()


def task_alone(session: ReplaySession) -> tuple[Watch, int]:
    """Run the first stage's tasks one by one, stores in memory: blocks are read off the clock, outputs thrown away."""
    watch, count = Watch(), 0
    steps = session.steps()
    for work in next(steps):
        assert isinstance(work, StageWork)
        plan = work.application.plan()
        for item in work.tasks:
            count += _run_alone(session, plan, item, watch)
    steps.close()
    return watch, count


def _run_alone(session: ReplaySession, plan: ApplicationPlan, item: TaskWork, watch: Watch) -> int:
    stores = {spec.name: open_store(evolve(spec, has_changelog=False)) for spec in plan.stores_of(item.task_id)}
    task = plan.open_task(
        item.task_id,
        TaskState(stores, {}, Checkpoint()),
        Metrics(),
        is_bounded=True,
    )
    feeds: dict[TopicPartition, Iterator[Block]] = {}
    for given in item.inputs:
        task.seek(given.partition, given.position)
        feeds[given.partition] = session.segments.blocks(given.extents, given.position, given.end)
    ends = {given.partition: given.end for given in item.inputs}
    count = 0
    watch.start()
    while feeds:
        for partition in [partition for partition in feeds if task.queues[partition].size <= 1000]:
            watch.stop()
            block = next(feeds[partition], None)
            watch.start()
            if block is None:
                del feeds[partition]
                task.note_position(partition, ends[partition])
                task.note_end(partition, ends[partition], is_ended=True)
            else:
                task.add(partition, block)
        while done := task.process(NO_TIMESTAMP, 10_000):
            count += done
            task.take_outputs()
            if task.uncommitted_bytes > 8 << 20:
                task.take_changes()
                task.write_state({})
    watch.stop()
    task.close()
    return count


def sql_count(spark: Any, archive: str, out: str) -> None:
    """Count bids per auction and ten seconds, as Spark's own SQL does it: two fields of the JSON."""
    from pyspark.sql import functions as F  # noqa: N812

    found = spark.read.parquet(f"{archive}/archived-bids*.parquet")
    bid = F.from_json(F.col("value").cast("string"), "auction long, date_time long")
    rows = found.select(bid.alias("bid")).select(
        F.col("bid.auction").alias("auction"),
        (F.floor(F.col("bid.date_time") / TEN_SECONDS_MS) * TEN_SECONDS_MS).cast("long").alias("window"),
    )
    counted = rows.groupBy("auction", "window").count()
    counted.write.parquet(out)


def pandas_count(spark: Any, archive: str, out: str) -> None:
    """Count the same by a plain Python loop in ``applyInPandas``, which gives every update as a stream task does."""
    from pyspark.sql import functions as F  # noqa: N812

    def loop(frame: Any) -> Any:
        import pandas as pd

        decode = Decoder(Bid).decode
        counts: dict[tuple[int, int], int] = {}
        auctions, windows, updates = [], [], []
        for value in frame["value"]:
            bid = decode(value)
            slot = (bid.auction, bid.date_time // TEN_SECONDS_MS * TEN_SECONDS_MS)
            counts[slot] = count = counts.get(slot, 0) + 1
            auctions.append(slot[0])
            windows.append(slot[1])
            updates.append(count)
        return pd.DataFrame({"auction": auctions, "window": windows, "count": updates})

    found = spark.read.parquet(f"{archive}/archived-bids*.parquet").select("key", "value")
    groups = found.groupBy(F.pmod(F.hash("key"), F.lit(_GROUPS)).alias("group"))
    groups.applyInPandas(loop, "auction long, window long, count long").write.parquet(out)
