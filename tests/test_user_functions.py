"""Every place of the public interface that takes a function refuses one that nobody would run to its end.

A coroutine that is not awaited does nothing, and says nothing: its record would count as processed.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from streams import (
    ConfigError,
    Consumer,
    EmbeddedBroker,
    JoinWindows,
    ParallelConsumer,
    ProcessingError,
    Processor,
    Producer,
    PunctuationType,
    Serde,
    SessionWindows,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    TimeWindows,
    Topic,
    TopicPartition,
    Topology,
    TopologyError,
    UnawaitedError,
    ValueTransformer,
    build_topology,
    key_value_store,
    punctuate,
)
from streams.clients import RebalanceListener
from streams.group import GroupClient, GroupListener, LeaderElection, MemberNumber, TaskDistribution
from streams.replay import Plan, archive_topic, publish, replay
from streams.testing import TopologyTestDriver, simulate

words = Topic("words", key=str, value=str)
others = Topic("others", key=str, value=str)
copies = Topic("copies", key=str, value=str)
HOUR = timedelta(hours=1)
NEAR = JoinWindows.of(HOUR)


async def later(*arguments: object) -> Any:
    return None


def items(*arguments: object) -> Iterator[Any]:
    yield arguments


async def later_items(*arguments: object) -> AsyncIterator[Any]:
    yield arguments


KINDS = {"is async": later, "is a generator": items, "is an async generator": later_items}


def stream() -> Any:
    return StreamsBuilder().stream(words)


def table() -> Any:
    return StreamsBuilder().table(words)


def two_streams() -> tuple[Any, Any]:
    builder = StreamsBuilder()
    return builder.stream(words), builder.stream(others)


def two_tables() -> tuple[Any, Any]:
    builder = StreamsBuilder()
    return builder.table(words), builder.table(others)


def stream_and_table() -> tuple[Any, Any]:
    builder = StreamsBuilder()
    return builder.stream(words), builder.table(others)


def stream_and_global() -> tuple[Any, Any]:
    builder = StreamsBuilder()
    return builder.stream(words), builder.global_table(others)


def grouped() -> Any:
    return stream().group_by_key()


def windowed() -> Any:
    return grouped().windowed_by(TimeWindows.of(HOUR))


def sessions() -> Any:
    return grouped().windowed_by(SessionWindows.of(HOUR))


def grouped_table() -> Any:
    return table().group_by(lambda key, value: (key, value))


def joined(sides: tuple[Any, Any], joiner: Any, *arguments: Any, verb: str = "join", **options: Any) -> None:
    one, other = sides
    getattr(one, verb)(other, joiner, *arguments, **options)


def both(left: Any, right: Any) -> Any:
    return left


def make(method: str, function: Any, base: type = Processor) -> Any:
    return type("Made", (base,), {"process": lambda self, record: None, method: function})


def timer(function: Any) -> Any:
    return make("tick", punctuate(HOUR)(function))


def scheduled(function: Any) -> None:
    class Scheduling(Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            context.schedule(HOUR, PunctuationType.STREAM_TIME, function)

    TopologyTestDriver(lambda builder: builder.stream(words).process(Scheduling).to(copies))


class Extractor:
    def __init__(self, one: Any) -> None:
        self.one = one

    def block(self, values: Any, timestamps: Any) -> None:
        return None


def broker() -> EmbeddedBroker:
    made = EmbeddedBroker(maintenance_interval_ms=None)
    made.create_topic("words")
    return made


def listener(name: str, function: Any, base: type) -> Any:
    return type("Listening", (base,), {name: function})()


def delivered(function: Any) -> None:
    with broker() as cluster, Producer(cluster) as producer:
        producer.send(words, "v", key="k").add_done_callback(function)


def streams(**settings: Any) -> None:
    Streams(lambda builder: builder.stream(words).to(copies), application_id="app", **settings)


def config(**settings: Any) -> None:
    StreamsConfig.of(application_id="app", **settings)


Give = Callable[[Any], object]

#: What takes a function, and how it is given one.
DECLARED: dict[str, Give] = {
    "a topology": build_topology,
    "a topology of the driver": TopologyTestDriver,
    "a simulated topology": lambda f: simulate(f, {words: [("k", "v", 0)]}, seeds=[1]),
    "a replayed topology": lambda f: replay(f, {words: "none"}, executor="local", application_id="app"),
    "Topic timestamp": lambda f: Topic("t", value=str, timestamp=f),
    "Topic key_from": lambda f: Topic("t", key=str, value=str, key_from=f),
    "Serde serialize": lambda f: Serde("own", f, bytes),
    "Serde deserialize": lambda f: Serde("own", bytes, f),
    "stream timestamp": lambda f: StreamsBuilder().stream(words, timestamp=f),
    "stream extractor": lambda f: StreamsBuilder().stream(words, timestamp=Extractor(f)),
    "table timestamp": lambda f: StreamsBuilder().table(words, timestamp=f),
    "global_table timestamp": lambda f: StreamsBuilder().global_table(words, timestamp=f),
    "add_global_store supplier": lambda f: StreamsBuilder().add_global_store(key_value_store(str, str, "s"), words, f),
    "add_global_store processor": lambda f: StreamsBuilder().add_global_store(
        key_value_store(str, str, "s"), words, make("process", f)
    ),
    "filter": lambda f: stream().filter(f),
    "deduplicate": lambda f: stream().deduplicate(f, within=HOUR),
    "join_latest": lambda f: joined(two_streams(), f, verb="join_latest", tolerance=HOUR),
    "filter_not": lambda f: stream().filter_not(f),
    "map": lambda f: stream().map(f),
    "map_values": lambda f: stream().map_values(f),
    "flat_map": lambda f: stream().flat_map(f),
    "flat_map_values": lambda f: stream().flat_map_values(f),
    "select_key": lambda f: stream().select_key(f),
    "peek": lambda f: stream().peek(f),
    "for_each": lambda f: stream().for_each(f),
    "branch": lambda f: stream().split().branch(f),
    "group_by": lambda f: stream().group_by(f),
    "to": lambda f: stream().to(f),
    "to partitioner": lambda f: stream().to(copies, partitioner=f),
    "repartition partitioner": lambda f: stream().repartition(partitioner=f),
    "process supplier": lambda f: stream().process(f),
    "process": lambda f: stream().process(make("process", f)),
    "process, made by a function": lambda f: build_topology(
        lambda builder: builder.stream(words).process(lambda: make("process", f)())
    ),
    "process_values": lambda f: stream().process_values(make("process", f)),
    "Processor init": lambda f: stream().process(make("init", f)),
    "Processor close": lambda f: stream().process(make("close", f)),
    "Processor punctuate": lambda f: stream().process(timer(f)),
    "context schedule": scheduled,
    "stream-stream join": lambda f: joined(two_streams(), f, NEAR),
    "stream-stream left_join": lambda f: joined(two_streams(), f, NEAR, verb="left_join"),
    "stream-stream outer_join": lambda f: joined(two_streams(), f, NEAR, verb="outer_join"),
    "stream-table join": lambda f: joined(stream_and_table(), f),
    "stream-table left_join": lambda f: joined(stream_and_table(), f, verb="left_join"),
    "stream-global join": lambda f: joined(stream_and_global(), f, key=lambda k, v: v),
    "stream-global join key": lambda f: joined(stream_and_global(), both, key=f),
    "table-table join": lambda f: joined(two_tables(), f),
    "table-table left_join": lambda f: joined(two_tables(), f, verb="left_join"),
    "table-table outer_join": lambda f: joined(two_tables(), f, verb="outer_join"),
    "foreign-key join": lambda f: joined(two_tables(), f, foreign_key=lambda k, v: v),
    "foreign-key left_join": lambda f: joined(two_tables(), f, verb="left_join", foreign_key=lambda k, v: v),
    "foreign_key": lambda f: joined(two_tables(), both, foreign_key=f),
    "foreign-key partitioner": lambda f: joined(two_tables(), both, foreign_key=lambda k, v: v, partitioner=f),
    "foreign-key other_partitioner": lambda f: joined(
        two_tables(), both, foreign_key=lambda k, v: v, other_partitioner=f
    ),
    "table filter": lambda f: table().filter(f),
    "table filter_not": lambda f: table().filter_not(f),
    "table map_values": lambda f: table().map_values(f),
    "table group_by": lambda f: table().group_by(f),
    "transform_values supplier": lambda f: table().transform_values(f, value=str),
    "transform_values": lambda f: table().transform_values(make("transform", f, ValueTransformer), value=str),
    "to_stream": lambda f: table().to_stream(f),
    "reduce": lambda f: grouped().reduce(f),
    "aggregate initializer": lambda f: grouped().aggregate(f, lambda k, v, a: a),
    "aggregate": lambda f: grouped().aggregate(str, f),
    "cogroup": lambda f: grouped().cogroup(f),
    "cogrouped initializer": lambda f: grouped().cogroup(lambda k, v, a: a).aggregate(f),
    "windowed reduce": lambda f: windowed().reduce(f),
    "windowed aggregate initializer": lambda f: windowed().aggregate(f, lambda k, v, a: a),
    "windowed aggregate": lambda f: windowed().aggregate(str, f),
    "windowed cogrouped initializer": lambda f: (
        grouped().cogroup(lambda k, v, a: a).windowed_by(TimeWindows.of(HOUR)).aggregate(f)
    ),
    "session reduce": lambda f: sessions().reduce(f),
    "session aggregate initializer": lambda f: sessions().aggregate(f, lambda k, v, a: a, lambda k, a, b: a),
    "session aggregate": lambda f: sessions().aggregate(str, f, lambda k, a, b: a),
    "session merger": lambda f: sessions().aggregate(str, lambda k, v, a: a, f),
    "session cogrouped initializer": lambda f: (
        grouped().cogroup(lambda k, v, a: a).windowed_by(SessionWindows.of(HOUR)).aggregate(f, lambda k, a, b: a)
    ),
    "session cogrouped merger": lambda f: (
        grouped().cogroup(lambda k, v, a: a).windowed_by(SessionWindows.of(HOUR)).aggregate(str, f)
    ),
    "table adder of reduce": lambda f: grouped_table().reduce(f, both),
    "table subtractor of reduce": lambda f: grouped_table().reduce(both, f),
    "table aggregate initializer": lambda f: grouped_table().aggregate(f, lambda k, v, a: a, lambda k, v, a: a),
    "table adder of aggregate": lambda f: grouped_table().aggregate(str, f, lambda k, v, a: a),
    "table subtractor of aggregate": lambda f: grouped_table().aggregate(str, lambda k, v, a: a, f),
    "add_source timestamp": lambda f: Topology().add_source("source", words, timestamp=f),
    "add_source extractor": lambda f: Topology().add_source("source", words, timestamp=Extractor(f)),
    "add_processor supplier": lambda f: Topology().add_source("source", words).add_processor("p", f, "source"),
    "add_processor": lambda f: Topology().add_source("source", words).add_processor("p", make("process", f), "source"),
    "add_sink": lambda f: Topology().add_source("source", words).add_sink("sink", f, "source"),
    "add_sink partitioner": lambda f: (
        Topology().add_source("source", words).add_sink("sink", copies, "source", partitioner=f)
    ),
    "setting default_timestamp_extractor": lambda f: config(default_timestamp_extractor=f),
    "setting processing_handler": lambda f: config(processing_handler=f),
    "setting deserialization_handler": lambda f: config(deserialization_handler=f),
    "setting production_handler": lambda f: config(production_handler=f),
    "Streams on_state": lambda f: streams(on_state=f),
    "Streams on_restore": lambda f: streams(on_restore=f),
    "Streams on_exception": lambda f: streams(on_exception=f),
    "Streams grouper": lambda f: streams(grouper=type("Own", (), {"groups": f})()),
    "Producer partitioner": lambda f: Producer(broker(), partitioner=f),
    "Delivery callback": delivered,
    "rebalance listener, assigned": lambda f: Consumer(broker(), "g").subscribe(
        ["words"], listener("on_partitions_assigned", f, RebalanceListener)
    ),
    "rebalance listener, revoked": lambda f: Consumer(broker(), "g").subscribe(
        ["words"], listener("on_partitions_revoked", f, RebalanceListener)
    ),
    "rebalance listener, lost": lambda f: Consumer(broker(), "g").subscribe(
        ["words"], listener("on_partitions_lost", f, RebalanceListener)
    ),
    "commit_async callback": lambda f: Consumer(broker(), "g").commit_async(callback=f),
    "ParallelConsumer handler": lambda f: ParallelConsumer(broker(), "g", words, f),
    "ParallelConsumer batch_handler": lambda f: ParallelConsumer(broker(), "g", words, batch_handler=f),
    "ParallelConsumer until": lambda f: ParallelConsumer(broker(), "g", words, print).run(f),
    "broker's partitioner of a topic": lambda f: broker().create_topic("own", partitioner=f),
    "broker's partitioners": lambda f: EmbeddedBroker(partitioners={"words": f}),
    "GroupListener": lambda f: GroupClient(broker(), "g", listener("on_assigned", f, GroupListener)),
    "LeaderElection on_elected": lambda f: LeaderElection(broker(), "g", on_elected=f),
    "LeaderElection on_deposed": lambda f: LeaderElection(broker(), "g", on_deposed=f),
    "TaskDistribution on_assigned": lambda f: TaskDistribution(broker(), "g", ["a"], on_assigned=f),
    "TaskDistribution on_revoked": lambda f: TaskDistribution(broker(), "g", ["a"], on_revoked=f),
    "MemberNumber on_numbered": lambda f: MemberNumber(broker(), "g", on_numbered=f),
    "replay progress": lambda f: Plan(progress=f),
    "publish on_progress": lambda f: publish("none", broker(), on_progress=f),
    "archive_topic on_progress": lambda f: archive_topic(broker(), "words", "none", on_progress=f),
}
#: Where a function may be a generator: what it yields is iterated.
ITERATED = ("flat_map", "flat_map_values")


@pytest.mark.case(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", DECLARED)
def test_function_that_nobody_would_run_is_refused_where_it_is_given(place: str, kind: str) -> None:
    if kind == "is a generator" and place in ITERATED:
        DECLARED[place](KINDS[kind])
        return

    with pytest.raises((TopologyError, ConfigError), match=re.escape(kind)):
        DECLARED[place](KINDS[kind])


def fed(topology: Any, **settings: Any) -> TopologyTestDriver:
    driver = TopologyTestDriver(topology, **settings)
    driver.pipe(words, "v", key="k", timestamp_ms=0)
    return driver


class ReturningOne(Processor[str, str, str, str]):
    def process(self, record: Any) -> Any:
        return later(record)


class StartingOne(Processor[str, str, str, str]):
    def init(self, context: Any) -> Any:
        return later(context)


class EndingOne(Processor[str, str, str, str]):
    def process(self, record: Any) -> None: ...

    def close(self) -> Any:
        return later()


class TickingOne(Processor[str, str, str, str]):
    def process(self, record: Any) -> None: ...

    @punctuate(timedelta(milliseconds=1))
    def tick(self, now_ms: int) -> Any:
        return later(now_ms)


#: Where what a function returns is not looked at, or only for its truth: a lambda may return a coroutine.
DISCARDED: dict[str, Callable[[StreamsBuilder], object]] = {
    "for_each": lambda builder: builder.stream(words).for_each(lambda k, v: later(v)),
    "peek": lambda builder: builder.stream(words).peek(lambda k, v: later(v)).to(copies),
    "filter": lambda builder: builder.stream(words).filter(lambda k, v: later(v)).to(copies),
    "deduplicate": lambda builder: builder.stream(words).deduplicate(lambda k, v: later(v), within=HOUR).to(copies),
    "filter_not": lambda builder: builder.stream(words).filter_not(lambda k, v: later(v)).to(copies),
    "branch": lambda builder: builder.stream(words).split().branch(lambda k, v: later(v)).to(copies),
    "map_values": lambda builder: builder.stream(words).map_values(lambda v: later(v)).for_each(lambda k, v: None),
    "table filter": lambda builder: builder.table(words).filter(lambda k, v: later(v)).to_stream().to(copies),
    "process": lambda builder: builder.stream(words).process(ReturningOne),
    "init": lambda builder: builder.stream(words).process(StartingOne),
    "punctuate": lambda builder: builder.stream(words).process(TickingOne),
}


@pytest.mark.parametrize("place", DISCARDED)
def test_coroutine_that_a_plain_function_returns_is_refused_at_its_first_record(place: str) -> None:
    with pytest.raises(StreamsError, match=r"returned a coroutine .later., which nothing here awaits"):
        fed(DISCARDED[place])


def test_coroutine_that_close_returns_is_refused() -> None:
    driver = fed(lambda builder: builder.stream(words).process(EndingOne))

    with pytest.raises(StreamsError, match=r"close of processor EndingOne returned a coroutine"):
        driver.close()


def test_action_that_returns_a_coroutine_for_some_records_is_refused_at_the_first_of_them() -> None:
    driver = TopologyTestDriver(lambda builder: builder.stream(words).for_each(lambda k, v: v == "b" and later(v)))
    driver.pipe(words, "a", timestamp_ms=0)

    with pytest.raises(ProcessingError, match=r"returned a coroutine .later.") as caught:
        driver.pipe(words, "b", timestamp_ms=0)
    assert isinstance(caught.value.__cause__, UnawaitedError)


def test_generator_of_flat_map_and_value_of_map_values_are_iterated() -> None:
    driver = fed(
        lambda builder: (
            builder.stream(words)
            .map_values(lambda value: (letter for letter in value * 2))
            .flat_map_values(lambda letters: letters)
            .flat_map(items_of)
            .to(copies)
        )
    )

    assert driver.read(copies) == [("k", "v")] * 2


def items_of(key: str, value: str) -> Iterator[tuple[str, str]]:
    yield key, value


def test_parallel_consumer_commits_nothing_where_its_handler_returns_a_coroutine() -> None:
    with broker() as cluster:
        with Producer(cluster) as producer:
            producer.send(words, "v", key="k").result()
        consumer = ParallelConsumer(cluster, "g", words, lambda record: later(record), auto_offset_reset="earliest")

        with pytest.raises(UnawaitedError, match="handler of a parallel consumer returned a coroutine"):
            consumer.run()

        assert consumer.handled == 0
        with Consumer(cluster, "g") as other:
            assert not other.committed([TopicPartition("words", 0)])
