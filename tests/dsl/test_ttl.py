"""Tables whose rows expire: options, the changelog, optimization, processors and idle inputs."""

from datetime import timedelta

import pytest

from streams import (
    Processor,
    Record,
    StreamsBuilder,
    Topic,
    TopologyError,
    key_value_store,
    session_store,
    window_store,
)
from streams.testing import TopologyTestDriver

SECOND = timedelta(seconds=1)
events = Topic("events", key=str, value=int)
other = Topic("other", key=str, value=int)
out = Topic("out", key=str, value=int | None)


def test_deletions_are_in_the_changelog_with_the_time_of_expiry():
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(events).group_by_key().count("counts", ttl=SECOND).to_stream().to(out)

    with TopologyTestDriver(topology, application_id="app") as driver:
        driver.pipe(events, 1, key="a", timestamp_ms=0)
        driver.pipe(events, 1, key="b", timestamp_ms=1100)
        changes = [(row.key, row.value, row.timestamp_ms) for row in driver.read_bytes("app-counts-changelog")]

    assert changes[1:] == [(b"b", (1).to_bytes(8, "big"), 1100), (b"a", None, 1000)]


def test_table_with_a_ttl_has_a_changelog_of_its_own_also_if_optimized():
    builder = StreamsBuilder()
    builder.table(events, ttl=SECOND).to_stream().to(out)

    topology = builder.build(topology_optimization="all")

    assert not topology.source_changelogs
    assert [spec.ttl_ms for spec in topology.stores.values()] == [1000]


def test_store_of_a_processor_forgets_what_was_not_put_for_so_long():
    class Seen(Processor[str, int, str, int | None]):
        last = key_value_store(str, int, ttl=SECOND)

        def process(self, record: Record[str, int]) -> None:
            self.context.forward(record.key, self.last.get(record.key))
            self.last.put(record.key, record.value)

    with TopologyTestDriver(lambda builder: builder.stream(events).process(Seen).to(out)) as driver:
        for time_ms in (0, 999, 1998, 2998):
            driver.pipe(events, time_ms, key="a", timestamp_ms=time_ms)
        driver.pipe(events, 0, key="b", timestamp_ms=9000)

        assert driver.read(out) == [("a", None), ("a", 0), ("a", 999), ("a", None), ("b", None)]
        assert list(driver.store("last").all()) == [("b", 0)]


def test_rows_expire_while_inputs_are_idle():
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(events, idle_close=SECOND).group_by_key().count(ttl=10 * SECOND).to_stream().to(out)

    with TopologyTestDriver(topology) as driver:
        driver.pipe(events, 1, key="a", timestamp_ms=0)
        driver.advance_wall_clock(9_000)
        assert driver.read(out) == [("a", 1)]
        driver.advance_wall_clock(3_000)

        assert [(row.key, row.value, row.timestamp_ms) for row in driver.read_records(out)] == [("a", None, 10_000)]


def test_rows_of_a_processor_expire_while_inputs_are_idle():
    class Last(Processor[str, int, str, int]):
        last = key_value_store(str, int, ttl=10 * SECOND)

        def process(self, record: Record[str, int]) -> None:
            self.last.put(record.key, record.value)

    with TopologyTestDriver(lambda builder: builder.stream(events, idle_close=SECOND).process(Last).to(out)) as driver:
        driver.pipe(events, 1, key="a", timestamp_ms=0)
        driver.advance_wall_clock(9_000)
        assert list(driver.store("last").all()) == [("a", 1)]
        driver.advance_wall_clock(1_000)

        assert list(driver.store("last").all()) == []


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("store", [None, "joined"])
@pytest.mark.parametrize("verb", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("updated_ms", [None, 1050])
def test_join_of_tables_is_deleted_with_the_rows_that_expire(verb, updated_ms, store, caching):
    """The other row may have expired too, or may change between the expiry of a row and its deletion."""

    def topology(builder: StreamsBuilder) -> None:
        left, right = (builder.table(topic, ttl=SECOND, caching=caching) for topic in (events, other))
        joined = getattr(left, verb)(right, lambda one, two: 100 * (one or 0) + (two or 0), store=store)
        joined.to_stream().to(out)
        joined.group_by(lambda key, value: ("all", value)).reduce(
            lambda total, value: total + value, lambda total, value: total - value, store="total"
        )

    with TopologyTestDriver(topology) as driver:
        driver.pipe(events, 1, key="a", timestamp_ms=0)
        driver.pipe(other, 2, key="a", timestamp_ms=0)
        if updated_ms is not None:
            driver.pipe(other, 5, key="a", timestamp_ms=updated_ms)
        for time_ms in (1150, 2350):
            driver.pipe(events, None, key="z", timestamp_ms=time_ms)

        assert [value for key, value in driver.read(out) if key == "a"][-1] is None
        assert driver.store("total").get("all").value == 0
        assert store is None or list(driver.store(store).all()) == []


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda builder: builder.table(events, ttl=timedelta(0)), "ttl of store .* must be at least 1 ms"),
        (lambda builder: builder.table(events, ttl=5), "must be a timedelta"),
        (lambda builder: builder.table(events, ttl=SECOND, history=SECOND), "either history= or ttl="),
        (lambda builder: builder.global_table(events, ttl=SECOND), "of a global table, do not expire"),
        (lambda builder: builder.table(events).filter(lambda k, v: v, store="f", ttl=SECOND), "derived from others"),
        (lambda builder: key_value_store(str, int, "s", ttl=timedelta(0)), "ttl must be at least 1 ms"),
        (lambda builder: key_value_store(str, int, "s", ttl=5), "store 's': ttl must be a timedelta, not 5"),
        (lambda builder: session_store(str, int, "s", retention=5), "session store 's': retention must be a timedelta"),
        (
            lambda builder: window_store(str, int, "s", size=timedelta(1), retention=-timedelta(1)),
            "window store 's': retention must be at least 0 ms, not -1 day",
        ),
    ],
)
def test_wrong_ttl_is_refused_when_it_is_given(declare, message):
    with pytest.raises(TopologyError, match=message):
        declare(StreamsBuilder())
