"""Windows into a type of other windows are refused when the topology is built: their ends would be wrong."""

from datetime import timedelta

import pytest

from streams import (
    JoinWindows,
    Processor,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    TopologyError,
    UnlimitedWindows,
    Window,
    Windowed,
    session_windowed,
    time_windowed,
)
from streams.testing import TopologyTestDriver

HOUR, HALF = timedelta(hours=1), timedelta(minutes=30)
words = Topic("words", key=str, value=str)
hours = Topic("hours", key=time_windowed(str, HOUR), value=int)
halves = Topic("halves", key=time_windowed(str, HALF), value=int)
sessions = Topic("sessions", key=session_windowed(str), value=int)
ever = Topic("ever", key=time_windowed(str, timedelta.max), value=int)
pairs = Topic("pairs", key=str, value=int)

WINDOWS = {
    "tumbling": (TimeWindows.of(HOUR, grace=HOUR), hours),
    "hopping": (TimeWindows.of(HOUR, advance=HALF, grace=HOUR), hours),
    "sliding": (SlidingWindows.of(HALF, grace=HOUR), halves),
    "sessions": (SessionWindows.of(HOUR, grace=HOUR), sessions),
    "unlimited": (UnlimitedWindows.of(), ever),
}


def counted(builder, windows=None):
    return builder.stream(words).group_by_key().windowed_by(windows or TimeWindows.of(HOUR, grace=HOUR)).count()


@pytest.mark.parametrize("sink", [hours, halves, sessions, ever], ids=lambda topic: topic.name)
@pytest.mark.parametrize("kind", WINDOWS)
def test_only_windows_of_the_same_kind_and_size_go_into_a_topic(kind, sink):
    windows, right = WINDOWS[kind]
    stream = counted(StreamsBuilder(), windows).to_stream()

    if sink is right:
        stream.to(sink)
        return
    with pytest.raises(TopologyError, match="windows would get wrong ends") as refused:
        stream.to(sink)
    assert f"the key of topic '{sink.name}' is of " in str(refused.value)


def test_both_windows_and_the_declaration_that_fits_are_named():
    with pytest.raises(
        TopologyError,
        match=r"KTABLE-TOSTREAM-\d+ has keys of time windows of 0:30:00, but the key of topic 'hours' is of time "
        r"windows of 1:00:00: .* declare time_windowed\(..., datetime.timedelta\(seconds=1800\)\), or change the key",
    ):
        counted(StreamsBuilder(), TimeWindows.of(HALF)).to_stream().to(hours)
    with pytest.raises(TopologyError, match=r"keys of session windows, .* declare session_windowed\(\.\.\.\)"):
        counted(StreamsBuilder(), SessionWindows.of(HALF)).to_stream().to(hours)


class Same(Processor):
    def process(self, record):
        self.context.forward(record.key, record.value)


#: What keeps the key, and so the window.
KEEPING = {
    "filter": lambda stream: stream.filter(lambda k, v: True),
    "filter_not": lambda stream: stream.filter_not(lambda k, v: False),
    "map_values": lambda stream: stream.map_values(lambda v: v),
    "flat_map_values": lambda stream: stream.flat_map_values(lambda v: [v]),
    "peek": lambda stream: stream.peek(lambda k, v: None),
    "branch": lambda stream: stream.split().branch(lambda k, v: True),
    "process_values": lambda stream: stream.process_values(Same, value=int),
    "repartition": lambda stream: stream.repartition("again"),
    "to_table": lambda stream: stream.to_table("table").to_stream(),
    "merge": lambda stream: stream.merge(stream.filter(lambda k, v: True)),
    "count": lambda stream: stream.group_by_key().count().to_stream(),
}


@pytest.mark.parametrize("way", KEEPING)
def test_windows_are_followed_through_what_keeps_the_key(way):
    with pytest.raises(TopologyError, match="has keys of time windows of 1:00:00, but"):
        KEEPING[way](counted(StreamsBuilder()).to_stream()).to(sessions)
    KEEPING[way](counted(StreamsBuilder()).to_stream()).to(hours)


TABLES = {
    "suppress": lambda table: table.suppress(Suppressed.until_window_closes()),
    "filter": lambda table: table.filter(lambda k, v: True),
    "map_values": lambda table: table.map_values(lambda v: v),
    "join": lambda table: table.join(table.filter(lambda k, v: True), lambda one, other: one),
}


@pytest.mark.parametrize("way", TABLES)
def test_windows_are_followed_through_tables(way):
    with pytest.raises(TopologyError, match="has keys of time windows of 1:00:00, but"):
        TABLES[way](counted(StreamsBuilder())).to_stream().to(halves)
    TABLES[way](counted(StreamsBuilder())).to_stream().to(hours)


#: Where a type may be declared besides.
DECLARING = {
    "to by name": lambda stream, key: stream.to("out", key=key, value=int),
    "repartition": lambda stream, key: stream.repartition(key=key),
    "to_table": lambda stream, key: stream.to_table("table", key=key),
    "group_by_key": lambda stream, key: stream.group_by_key(key=key),
    "aggregation": lambda stream, key: stream.group_by_key().count(key=key),
    "join": lambda stream, key: stream.join(stream, lambda a, b: a, JoinWindows.of(HOUR), key=key),
}


@pytest.mark.parametrize("place", DECLARING)
def test_declared_windows_are_those_of_the_keys(place):
    with pytest.raises(TopologyError, match="but the type declared here is of session windows"):
        DECLARING[place](counted(StreamsBuilder()).to_stream(), session_windowed(str))
    DECLARING[place](counted(StreamsBuilder()).to_stream(), time_windowed(str, HOUR))


def test_windows_of_a_topic_are_followed_too():
    for source in (lambda b: b.stream(hours), lambda b: b.table(hours).to_stream()):
        with pytest.raises(TopologyError, match="but the key of topic 'halves' is of time windows of 0:30:00"):
            source(StreamsBuilder()).to(halves)
        source(StreamsBuilder()).to("copy", key=time_windowed(str, HOUR), value=int)


def test_merged_windows_of_two_sizes_go_into_no_windowed_topic():
    builder = StreamsBuilder()
    merged = builder.stream(hours).merge(builder.stream(halves))

    for sink in (Topic("one", key=time_windowed(str, HOUR), value=int), sessions):
        with pytest.raises(TopologyError, match="keys of time windows of 0:30:00 and time windows of 1:00:00"):
            merged.to(sink)


def test_tables_of_other_windows_have_no_keys_in_common():
    builder = StreamsBuilder()
    one, other = counted(builder), counted(builder, SessionWindows.of(HOUR))

    with pytest.raises(TopologyError, match=r"keys of time windows of 1:00:00, .* of session windows: .* same keys"):
        one.join(other, lambda a, b: a)


def test_windows_behind_a_changed_key_are_the_users_affair():
    builder = StreamsBuilder()
    half = counted(builder, TimeWindows.of(HALF)).to_stream()

    half.map(lambda key, count: (Windowed(key.key, Window(0, 3_600_000)), count)).to(hours)
    half.select_key(lambda key, _: key).to(sessions)
    half.process(Same, key=session_windowed(str), value=int).to("processed")
    half.map(lambda key, count: (key.key, count)).to(pairs)


def test_unlimited_windows_can_be_written_and_read():
    driver = TopologyTestDriver(lambda builder: counted(builder, UnlimitedWindows.of()).to_stream().to(ever))
    driver.pipe(words, "v", key="k", timestamp_ms=5)

    assert driver.read(ever) == [(Windowed("k", Window(0, (1 << 63) - 1)), 1)]
