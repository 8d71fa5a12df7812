"""User mistakes: what the message says, and when."""

from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from typing import Any

import pytest

from streams.core.errors import TopologyError
from streams.core.event_time.windows import JoinWindows, TimeWindows, UnlimitedWindows
from streams.core.topic import Topic
from streams.dsl import EmitStrategy, StreamsBuilder, Suppressed, build_topology
from streams.topology import Processor, Topology, key_value_store, window_store

orders = Topic("orders", key=str, value=int)
names = Topic("names", key=str, value=str)
named_by_number = Topic("names", key=int, value=str)
SECOND = timedelta(seconds=1)


class Pass(Processor[str, int, str, int]):
    pass


async def fetched(key: str, amount: int) -> int:
    return amount


@cache
def cached_pass() -> Pass:
    return Pass()


def add(left: int, right: int) -> int:
    return left + right


MISTAKES: list[tuple[str, Callable[[StreamsBuilder], Any], str]] = [
    ("no windows", lambda b: b.stream(orders).join(b.stream(names), add), r"join of .* needs windows=JoinWindows.of"),
    (
        "wrong windows",
        lambda b: b.stream(orders).join(b.stream(names), add, TimeWindows.of(SECOND)),
        "needs windows=JoinWindows",
    ),
    (
        "another builder",
        lambda b: b.stream(orders).join(StreamsBuilder().stream(names), add, JoinWindows.of(SECOND)),
        "belong to different StreamsBuilders",
    ),
    ("merge with a table", lambda b: b.stream(orders).merge(b.table(names)), "merge of .* needs another stream"),
    ("join with a topic", lambda b: b.stream(orders).join(names, add), "needs a stream, a table or a global table"),
    ("outer join with a table", lambda b: b.stream(orders).outer_join(b.table(names), add), "needs another stream"),
    (
        "table join with a stream",
        lambda b: b.table(orders).join(b.stream(names), add),
        "join of .* needs another table",
    ),
    (
        "global join without key",
        lambda b: b.stream(orders).join(b.global_table(names), add),
        r"needs key=: a function from \(key, value\)",
    ),
    (
        "outer foreign-key join",
        lambda b: b.table(orders).outer_join(b.table(names), add, foreign_key=add),
        "does not take foreign_key=",
    ),
    (
        "unknown argument",
        lambda b: b.stream(orders).join(b.table(names), add, windows=JoinWindows.of(SECOND)),
        "join does not take 'windows' with this kind of other side",
    ),
    (
        "grace without history",
        lambda b: b.stream(orders).join(b.table(names), add, grace=SECOND),
        "grace= needs a versioned table; give the table history=",
    ),
    (
        "grace longer than history",
        lambda b: b.stream(orders).join(b.table(names, history=SECOND), add, grace=2 * SECOND),
        "is longer than the history of store",
    ),
    ("suppress a number", lambda b: b.table(orders).suppress(3), "needs Suppressed.until_"),
    (
        "suppress without windows",
        lambda b: b.table(orders).suppress(Suppressed.until_window_closes()),
        "needs the result of a windowed aggregation",
    ),
    (
        "suppress a versioned table",
        lambda b: b.table(orders, history=SECOND).filter(add).suppress(Suppressed.until_time_limit(SECOND)),
        "a versioned table cannot be suppressed",
    ),
    (
        "unlimited windows on close",
        lambda b: (
            b.stream(orders)
            .group_by_key()
            .windowed_by(UnlimitedWindows.of())
            .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        ),
        "unlimited windows never close",
    ),
    (
        "short retention",
        lambda b: b.stream(orders).group_by_key().windowed_by(TimeWindows.of(2 * SECOND)).count("c", retention=SECOND),
        "store 'c': a retention of 1000 ms is shorter than .* 2000 ms",
    ),
    (
        "windowed by a duration",
        lambda b: b.stream(orders).group_by_key().windowed_by(SECOND),
        "needs TimeWindows, Slid",
    ),
    ("no type", lambda b: b.stream("orders"), "stream of orders: give key="),
    ("nothing to read", lambda b: b.stream(3), "needs a Topic or a topic's name"),
    ("types differ", lambda b: b.stream(orders, names), "values have different types .* merge"),
    ("a topic twice", lambda b: b.stream(orders, orders), "a topic is given twice"),
    ("a bad name", lambda b: b.stream(orders).filter(add, name="white space"), "name 'white space' is not possible"),
    ("a name twice", lambda b: b.stream(orders).peek(add, name="p").peek(add, name="p"), "node 'p' is added twice"),
    (
        "a repartition topic twice",
        lambda b: (b.stream(orders).repartition("r"), b.stream(names).repartition("r")),
        r"two repartition topics of the name 'r', .* give each its own name=",
    ),
    (
        "two groupings of a cogroup with one topic",
        lambda b: (
            b.stream(orders)
            .group_by(lambda key, _: key)
            .cogroup(lambda key, value, total: total, value=int)
            .cogroup(b.stream(names).group_by(lambda key, _: key), lambda key, value, total: total)
            .aggregate(int, name="c")
        ),
        r"two repartition topics of the name 'c'",
    ),
    (
        "a store twice",
        lambda b: (b.stream(orders).group_by_key().count("c"), b.table(names, store="c")),
        "two stores of the name 'c'",
    ),
    ("an instance as processor", lambda b: b.stream(orders).process(Pass()), "not an instance: each task has its own"),
    (
        "an async function",
        lambda b: b.stream(orders).map_values(fetched),
        r"awaits it; use map_values_async\(\) of a stream$",
    ),
    ("an async predicate", lambda b: b.stream(orders).filter(fetched), r"awaits it; give a plain function, .*run\(\)$"),
    (
        "a window in a plain key",
        lambda b: b.stream(orders).group_by_key().windowed_by(TimeWindows.of(SECOND)).count().to_stream().to(orders),
        r"keys of time windows of 0:00:01, but the key of topic 'orders' is 'string', which has no window: declare "
        r"time_windowed\(.*1\)\), or change the key before",
    ),
    (
        "one processor for all tasks",
        lambda b: b.stream(orders).process(cached_pass),
        "cached_pass.* makes the same Pass each time; make a new one: each task has its own",
    ),
    ("an unknown store", lambda b: b.stream(orders).process(Pass, stores=["s"]), "there is no state store 's'"),
    ("a text as stores", lambda b: b.stream(orders).process(Pass, stores="s"), "must be a list of names"),
    ("no partitions", lambda b: b.stream(orders).repartition(partitions=0), "partitions must be an int of at least 1"),
    ("a sink of nothing", lambda b: b.stream(orders).to(None), "needs a Topic, a topic's name or a function"),
    (
        "types told twice",
        lambda b: b.stream(orders).to(orders, value=str),
        r"also has value=: a Topic declares its types",
    ),
    (
        "an unknown option",
        lambda b: b.table(orders, cashing=True),
        "unknown option 'cashing' of store .*; did you mean 'caching'. there are caching, changelog, history, logging",
    ),
    ("a versioned global table", lambda b: b.global_table(orders, history=SECOND), "cannot be versioned"),
    ("a table read twice", lambda b: (b.table(orders), b.stream(orders)), "topic 'orders' is already read"),
    (
        "a topic of two types",
        lambda b: (b.stream(orders), b.stream(Topic("orders", key=str, value=str))),
        "topic 'orders' is declared twice with values of different types, 'long' and 'string'; declare it once",
    ),
    (
        "a sink of two types",
        lambda b: (b.stream(orders).to("by-name"), b.stream(orders).to(names), b.stream(orders).to(named_by_number)),
        "topic 'names' is declared twice with keys of different types, 'string' and 'long'",
    ),
    (
        "a topic of two partition counts",
        lambda b: [b.stream(Topic("clicks", value=str, partitions=count)) for count in (2, 3)],
        "topic 'clicks' is declared twice with different partitions: 2 and 3",
    ),
    (
        "a topic of two types by name",
        lambda b: [b.stream("clicks", key=str, value=form) for form in (str, int)],
        "two streams of 'clicks' have values of different types: 'string' and 'long'",
    ),
    (
        "a topic with and without event time",
        lambda b: (b.stream(orders), b.stream(Topic("orders", key=str, value=int, timestamp=abs))),
        "two streams of 'orders' have different sources of event time",
    ),
    (
        "a wrong joiner",
        lambda b: b.table(orders).join(b.table(names), lambda one: one),
        r"join: '.*lambda>' .*takes .one.; give a function",
    ),
    ("store options without store", lambda b: b.table(orders).filter(add, history=SECOND), "name it with store="),
]


@pytest.mark.parametrize(("declare", "message"), [mistake[1:] for mistake in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_says_what_and_where(declare: Callable[[StreamsBuilder], Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        build_topology(declare)


def test_two_declarations_of_a_topic_add_up() -> None:
    def declare(builder: StreamsBuilder) -> None:
        stream = builder.stream(Topic("clicks", key=str, value=str, partitions=3))
        stream.to(Topic("clicks", key=str, value=str, key_from=str.lower))

    (topic,) = build_topology(declare).topics.values()

    assert (topic.partitions, topic.key_from) == (3, str.lower)


def test_copies_of_a_declaration_agree() -> None:
    """Spark's workers have a topic twice if a function that came pickled uses it, and a module that they import."""

    def clicks(way: Callable[[Any], Any]) -> Topic[str, int]:
        return Topic("clicks", key=str, value=int, timestamp=lambda number: way(number), key_from=partial(pow, 2))

    def of(number: int) -> Callable[[Any], Any]:
        return lambda _: number

    def declare(builder: StreamsBuilder, other: int = 1) -> None:
        builder.stream(clicks(of(1))).merge(builder.stream(clicks(of(other)))).to(clicks(of(other)))

    (topic,) = build_topology(declare).topics.values()
    assert topic.key_from(3) == 8
    with pytest.raises(TopologyError, match="topic 'clicks' is declared twice with different timestamp"):
        build_topology(lambda builder: declare(builder, 2))


def test_a_sink_that_was_refused_declares_nothing() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(orders)
    with pytest.raises(TopologyError, match="white space"):
        stream.to(named_by_number, name="white space")

    stream.to(names)


def test_a_source_without_the_dsl_reads_topics_of_one_type() -> None:
    timed = Topic("timed", key=str, value=int, timestamp=abs)
    with pytest.raises(TopologyError, match="values of 'orders' and 'names' have different types, 'long' and 'string'"):
        Topology().add_source("in", orders, names)
    with pytest.raises(TopologyError, match="'orders' and 'timed' have different sources of event time"):
        Topology().add_source("in", orders, timed)


def test_branches_after_the_default_branch_are_refused() -> None:
    split = StreamsBuilder().stream(orders).split()
    split.default_branch()

    with pytest.raises(TopologyError, match="default branch must come last"):
        split.branch(lambda _, amount: amount > 1)
    with pytest.raises(TopologyError, match="has a default branch already"):
        split.default_branch()


def test_nothing_is_added_after_the_topology_is_built() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(orders)
    topology = builder.build()

    assert builder.build() is topology
    with pytest.raises(TopologyError, match=r"declare operators before build\(\)"):
        stream.to("out")


def test_a_topology_function_may_build_itself_and_a_built_one_passes_through() -> None:
    def declare(builder: StreamsBuilder) -> Any:
        builder.add_state_store(key_value_store(str, int, "s"))
        return builder.build()

    topology = build_topology(declare)

    assert list(topology.stores) == ["s"]
    assert build_topology(topology) is topology
    with pytest.raises(TopologyError, match=r"the topology needs a function of \(builder\), got 3"):
        build_topology(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda stream: stream.group_by_key().count("counts", logging=5), "logging= of store 'counts'"),
        (lambda stream: stream.group_by_key().count("counts", caching="no"), "caching= of store 'counts'"),
        (lambda stream: stream.deduplicate(within=timedelta(1), logging=5), "logging= of deduplicate"),
        (lambda stream: stream.look_up(str, logging=5), "logging= of look_up"),
        (lambda stream: stream.join_latest(stream, max, tolerance=timedelta(1), logging=5), "logging= of join_latest"),
        (lambda stream: stream.join(stream, max, JoinWindows.of(timedelta(1)), logging=5), "logging= of join"),
        (lambda stream: JoinWindows.of(timedelta(1), eager="no"), "eager= of JoinWindows"),
        (lambda stream: Suppressed.until_window_closes(logging=5), "logging= of Suppressed"),
        (
            lambda stream: window_store(str, int, "s", size=SECOND, retention=SECOND, retain_duplicates=5),
            "retain_duplicates= of",
        ),
    ],
)
def test_flag_that_is_neither_true_nor_false_is_refused(build: Callable[[Any], Any], what: str) -> None:
    with pytest.raises(TopologyError, match=rf"{what}.* must be True or False, not (5|'no')"):
        build(StreamsBuilder().stream(Topic("numbers", key=str, value=int)))


def test_changelog_settings_must_be_a_mapping() -> None:
    stream = StreamsBuilder().stream(Topic("numbers", key=str, value=int))
    with pytest.raises(TopologyError, match="changelog= of store 'counts' must be a mapping of topic settings"):
        stream.group_by_key().count("counts", changelog=5)  # type: ignore[call-overload, arg-type]
