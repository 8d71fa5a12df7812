"""Which nodes a record cache concerns: those behind a cached table that see only the last update of each commit."""

from datetime import timedelta

import pytest

from streams import JoinWindows, KStream, KTable, Processor, Record, StreamsBuilder, TimeWindows
from streams.topology import behind_caches

MINUTE = timedelta(minutes=1)


class Pass(Processor[str, int, str, int]):
    """Forwards what it gets."""

    def process(self, record: Record[str, int]) -> None:
        """Forward the record."""
        self.context.forward(record.key, record.value)


def add(one: int, two: int) -> int:
    return one + two


def found(build, **options) -> dict[str, tuple[str, ...]]:
    """Return the nodes behind a count of a stream; ``build`` takes the stream and the table."""
    builder = StreamsBuilder()
    stream: KStream[str, int] = builder.stream("visits", key=str, value=int)
    build(stream, stream.group_by_key().count("counts", **options))
    return dict(behind_caches(builder.build()))


@pytest.mark.parametrize(
    "build",
    [
        lambda stream, table: table.to_stream().map_values(add).peek(print).select_key(str).to("out"),
        lambda stream, table: table.map_values(lambda count: count + 1).to_stream().to("out"),
        # The table itself is always current.
        lambda stream, table: stream.join(table, add).to("out"),
        lambda stream, table: stream.filter(lambda key, value: True).to("out"),
    ],
)
def test_nodes_that_forward_each_update_once_do_not_depend_on_commits(build):
    assert found(build) == {}


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (lambda stream, table: table.to_stream().filter(lambda key, count: count == 3, name="third"), ["third"]),
        (lambda stream, table: table.filter(lambda key, count: count == 3, name="third"), ["third"]),
        (lambda stream, table: table.to_stream().flat_map_values(range, name="each"), ["each"]),
        (lambda stream, table: table.to_stream().process(Pass, name="pass"), ["pass"]),
        (lambda stream, table: table.to_stream().group_by_key().count(name="again"), ["again"]),
    ],
)
def test_filters_aggregates_and_processors_behind_a_cached_table_do(build, names):
    assert found(build) == dict.fromkeys(names, ("counts",))


def test_nodes_behind_repartition_topics_and_topics_of_the_application_do():
    def build(stream: KStream[str, int], table: KTable[str, int]) -> None:
        table.group_by(lambda key, count: (key[0], count), name="regroup").count("by-letter")

    assert found(build) == {"regroup": ("counts",), "by-letter": ("counts",)}


def test_a_topic_of_the_application_leads_on():
    builder = StreamsBuilder()
    builder.stream("visits", key=str, value=int).group_by_key().count("counts").to_stream().to("numbers")
    builder.stream("numbers", key=str, value=int).filter(lambda key, count: count == 3, name="third").to("out")

    assert behind_caches(builder.build()) == {"third": ("counts",)}


def test_so_does_a_join_with_what_is_stored_behind_the_cache():
    """The stream is not behind the cache, the table is."""

    def build(stream: KStream[str, int], table: KTable[str, int]) -> None:
        sums = table.group_by(lambda key, count: (key[0], count), name="regroup").reduce(add, add, name="sums")
        stream.select_key(lambda key, value: key[0], name="letter").join(sums, add, name="joined").to("out")

    assert found(build) == {"regroup": ("counts",), "sums": ("counts",), "joined": ("counts",)}


def test_a_windowed_join_of_the_updates_depends_on_them_on_both_sides():
    def build(stream: KStream[str, int], table: KTable[str, int]) -> None:
        stream.join(table.to_stream(), add, JoinWindows.of(MINUTE), name="both")

    assert {*found(build)} == {"both-other-windowed", "both-this-join", "both-other-join"}


def test_a_node_behind_two_caches_names_both():
    builder = StreamsBuilder()
    one, two = (builder.table(name, key=str, value=int, store=name) for name in ("one", "two"))
    one.join(two, add, store="both").to_stream().filter(lambda key, value: True, name="kept").to("out")

    assert behind_caches(builder.build())["kept"] == ("one", "two", "both")


def test_stores_that_are_exempt_or_cannot_be_cached_hold_nothing_back():
    def third(stream: KStream[str, int], table: KTable[str, int]) -> None:
        table.to_stream().filter(lambda key, count: count == 3, name="third")

    def windowed(stream: KStream[str, int], table: KTable[str, int]) -> None:
        windows = stream.group_by_key().windowed_by(TimeWindows.of(MINUTE)).emit(early_every=2)
        windows.count("early").to_stream().filter(lambda key, count: count == 3, name="third")

    assert found(third, caching=False) == {}
    assert found(windowed) == {}
