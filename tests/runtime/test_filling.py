"""State directories of bounded runs with lanes: further runs, killed runs, and who comes after."""

import re
from typing import Any

import pytest
from attrs import define

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic
from streams.bounded import run_bounded
from streams.clients.admin import Admin
from streams.clients.consumer.consumer import Consumer
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import SystemClock
from streams.core.errors import TopologyError
from streams.core.settings.config import StreamsConfig
from streams.dsl.builder import build_topology
from streams.runtime.in_step.filling import LaneFilling
from streams.runtime.plan.plan import ApplicationPlan
from tests.runtime.bounded_runs import NUMBERS, Rows, count, reader, run, started

words = Topic("words", key=str, value=int)
middle = Topic("middle", key=str, value=int)
out = Topic("out", key=str, value=int)

WORDS: Rows = [(f"k{n * n % 13}", n, 10 * n) for n in range(120)]
MORE: Rows = [(f"m{n % 5}", 1000 + n, 25 * n) for n in range(40)]
EXACTLY_ONCE = {"processing_guarantee": "exactly_once_v2"}


def through(builder: StreamsBuilder) -> None:
    """One part writes what another reads."""
    builder.stream(words).select_key(lambda key, value: f"v{value % 4}").to(middle)
    builder.stream(middle).map_values(lambda value: value + 1).select_key(lambda key, value: f"w{value % 3}").to(out)


@pytest.mark.case
@pytest.mark.parametrize("settings", [{}, EXACTLY_ONCE], ids=["at least once", "exactly once"])
def test_further_run_appends_after_the_existing_records(tmp_path, settings: dict[str, Any]):
    """Existing records keep their offsets; the new records are those that a run over the new rows alone writes.

    The new rows are later than all others, so that their places do not depend on what the tasks have read before.
    """
    half: dict[str, Rows] = {"words": WORDS[:70], "middle": MORE[:28]}
    whole: dict[str, Rows] = {"words": WORDS, "middle": MORE}
    rest: dict[str, Rows] = {"words": WORDS[70:], "middle": MORE[28:]}

    first = run(through, half, "middle", "out", state_dir=tmp_path, **settings)
    second = run(through, whole, "middle", "out", state_dir=tmp_path, num_stream_threads=2, **settings)
    third = run(through, whole, "middle", "out", state_dir=tmp_path, **settings)

    assert list(map(count, first)) == [98, 98]
    assert list(map(count, second)) == [160, 160]
    assert third == second
    alone = run(through, rest, "middle", "out", **settings)
    for before, after, new in zip(first, second, alone, strict=True):
        assert after == {number: before.get(number, []) + new.get(number, []) for number in after}


def test_two_runs_over_ordered_rows_have_the_results_of_one_run(tmp_path):
    whole = run(through, {"words": WORDS}, "middle", "out")

    run(through, {"words": WORDS[:50]}, state_dir=tmp_path)

    assert run(through, {"words": WORDS}, "middle", "out", state_dir=tmp_path) == whole


def test_topics_chosen_for_records_are_taken_up_by_a_further_run(tmp_path):
    """Whether it chooses them itself or not."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).select_key(lambda key, value: "one").to(
            lambda key, value, context: f"tens-{value // 10}", key=str, value=int
        )

    topics = [f"tens-{number}" for number in range(12)]
    whole = run(topology, {"words": WORDS}, *topics)
    run(topology, {"words": WORDS[:55]}, state_dir=tmp_path)

    assert run(topology, {"words": WORDS}, *topics, state_dir=tmp_path) == whole
    assert run(topology, {"words": WORDS}, *topics, state_dir=tmp_path) == whole


# --- killed while filling ------------------------------------------------------------------


class Killed(Exception):
    """The process is gone."""


@define
class MortalBroker:
    """A broker whose process is killed before one of its appends, or when records are deleted."""

    broker: EmbeddedBroker
    appends: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.broker, name)

    def append(self, partition: TopicPartition, block: Block) -> int:
        """Append a block, or die."""
        if not self.appends:
            raise Killed
        self.appends -= 1
        return self.broker.append(partition, block)

    def delete_records(self, partition: TopicPartition, offset: int) -> int:
        """Die."""
        raise Killed


def rekeyed(builder: StreamsBuilder) -> None:
    """Two tasks write to one partition."""
    builder.stream(words).select_key(lambda key, value: "one").to(out)


def lanes_of(broker: EmbeddedBroker) -> ApplicationPlan:
    """Fill two lanes of a topic with blocks of a few records each."""
    config = StreamsConfig.of(application_id="app")
    plan = ApplicationPlan.make(
        build_topology(rekeyed, config), config, SystemClock(), {"words": 2, "out": 1}, has_lanes=True
    )
    broker.create_topic("out", 1)
    [it] = plan.internal_topics()
    broker.create_topic(it.name, it.partitions)
    more_lanes(broker, plan, 0)
    return plan


def more_lanes(broker: EmbeddedBroker, plan: ApplicationPlan, start_ms: int) -> None:
    """Append to both lanes."""
    for number, lane in enumerate(plan.stored_in(TopicPartition("out", 0))):
        for first in range(start_ms, start_ms + 100, 20):
            times = list(range(first + number, first + 20, 3 + number))
            broker.append(lane, Block([None] * len(times), [b"%d" % number] * len(times), times))


def out_of(broker: EmbeddedBroker) -> list[tuple[bytes | None, int]]:
    """Return values and times of the output."""
    blocks = broker.read(TopicPartition("out", 0), 0, 10_000)
    return [(value, time) for block in blocks for _, _, value, time, _ in block.rows()]


@pytest.mark.parametrize("appends", range(12))
def test_killed_filling_is_finished_by_the_next_run(appends: int):
    """Before any of its appends, or behind the last: each record is there once, in the one order."""
    with EmbeddedBroker() as broker, Admin(broker) as admin:
        plan = lanes_of(broker)
        LaneFilling(plan, broker, admin).fill()
        more_lanes(broker, plan, 100)
        LaneFilling(plan, broker, admin).fill()
        whole = out_of(broker)

    with EmbeddedBroker() as broker, Admin(broker) as admin:
        plan = lanes_of(broker)
        with pytest.raises(Killed):
            LaneFilling(plan, MortalBroker(broker, appends), admin).fill()
        filling = LaneFilling(plan, broker, admin)
        filling.take_up()
        more_lanes(broker, plan, 100)
        filling.fill()

        assert out_of(broker) == whole
    assert len(whole) == 2 * 5 * (7 + 5)


# --- those who come after --------------------------------------------------------------------


def test_live_run_goes_on_where_the_bounded_run_was(tmp_path):
    """It does not read again what tasks have written to each other."""
    run(through, {"words": WORDS}, state_dir=tmp_path)

    with (
        EmbeddedBroker(tmp_path / "broker") as broker,
        Consumer(broker, auto_offset_reset="earliest") as consumer,
        Producer(broker) as producer,
    ):
        consumer.assign([TopicPartition("out", number) for number in range(3)], [out])
        with Streams(
            through, application_id="app", broker=broker, state_dir=str(tmp_path / "state"), commit_interval_ms=10
        ):
            producer.send(words, 5000, key="k1", timestamp_ms=9000)
            producer.flush()
            values: list[int] = []
            while 5001 not in values:
                values += [record.value for record in consumer.poll(1000)]

    assert sorted(values) == [*range(1, 121), 5001]


def test_records_of_others_that_nobody_has_read_are_refused(tmp_path):
    """They are in no lane: a bounded run would pass them over."""
    run(through, {"words": WORDS}, state_dir=tmp_path)
    with EmbeddedBroker(tmp_path / "broker") as broker, Producer(broker) as producer:
        producer.send(middle, 5, key="k1", timestamp_ms=9000)

    with pytest.raises(TopologyError, match=re.escape("has 1 unread records of other producers")):
        run(through, {"words": WORDS}, state_dir=tmp_path)


def test_transaction_of_a_killed_run_is_waited_for(tmp_path):
    """Its records would hide those behind them; it ends with its timeout."""
    with EmbeddedBroker(tmp_path / "broker") as broker:
        broker.create_topic("out", 1)
        killed = Producer(broker, transactional_id="app-killed", transaction_timeout_ms=1_000)
        killed.init_transactions()
        killed.begin_transaction()
        killed.send(out, 666, key="k", timestamp_ms=0, partition=0)
        killed.flush()
        killed.abandon()

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).to(out)

    [whole] = run(topology, {"words": WORDS}, "out", partitions=1, state_dir=tmp_path)

    assert whole == {0: list(WORDS)}


def test_pattern_reads_a_topic_that_tasks_write():
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).to("mid-1", key=str, value=int)
        builder.stream(re.compile("mid-.*"), key=str, value=int).to(out)

    inputs = {"words": WORDS, "mid-2": MORE}
    with started(topology, inputs) as finished:
        values = [value for _, block in finished.read_output("out") for value in block.values]

    assert sorted(map(NUMBERS.value_serde.deserialize, values)) == sorted(
        value for rows in inputs.values() for _, value, _ in rows
    )


def test_progress_counts_what_comes_from_outside():
    seen: list[Any] = []
    inputs = {"words": reader(WORDS), "middle": reader(MORE)}

    run_bounded(through, inputs, application_id="app", partitions=3, progress=seen.append).close()

    assert (seen[-1].records_in, seen[-1].records_total) == (160, 160)
