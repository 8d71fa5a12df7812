"""Declared aggregates: results beside plain Python, states in stores, what queries show, and what is refused."""

import math
import re
import statistics
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from functools import reduce
from typing import Any, NamedTuple

import msgspec
import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from streams import (
    EmbeddedBroker,
    EmitStrategy,
    Producer,
    SessionWindows,
    Streams,
    StreamsBuilder,
    StreamsRebalancingError,
    TimeWindows,
    Topic,
    TopologyError,
    agg,
)
from streams.core.user_code import place_in_user_code
from streams.dsl.summaries import summarized
from streams.testing import TopologyTestDriver
from tests.waiting import until

MINUTE_MS = 60_000


class Trade(msgspec.Struct, frozen=True):
    price: float
    size: int
    venue: str
    fee: Decimal | None = None

    @property
    def notional(self) -> float:
        return self.price * self.size


class Bar(msgspec.Struct, frozen=True):
    open: float
    high: float
    low: float
    close: float
    volume: int
    n: int


class Report(NamedTuple):
    vwap: float
    top: float | None
    mean: float
    deviation: float | None
    fees: Decimal
    paid: int
    venues: int
    median: float | None


trades = Topic("trades", key=str, value=Trade)
one_trade = st.builds(
    Trade,
    st.floats(0.5, 1e6).map(lambda price: round(price, 2)),
    st.integers(1, 100),
    st.sampled_from(["XETR", "XNYS"]),
    st.one_of(st.none(), st.decimals("0", "9", places=2)),
)


def bar(trade: Any) -> Bar:
    return Bar(
        open=agg.first(trade.price),
        high=agg.max(trade.price),
        low=agg.min(trade.price),
        close=agg.last(trade.price),
        volume=agg.sum(trade.size),
        n=agg.count(),
    )


def report(trade: Any) -> Report:
    return Report(
        vwap=agg.sum(trade.price * trade.size) / agg.sum(trade.size),
        top=agg.max(trade.price, where=(trade.venue == "XETR") & (trade.size > 50)),
        mean=agg.mean(trade.price),
        deviation=agg.std(trade.price),
        fees=agg.sum(trade.fee),
        paid=agg.count(trade.fee),
        venues=agg.distinct(trade.venue),
        median=agg.quantile(trade.price, 0.5),
    )


def results(summary: Any, rows: list[tuple[Trade, int]], windows: Any = None, source: Any = trades) -> list[Any]:
    """Return the updates of a summary."""
    builder = StreamsBuilder()
    grouped = builder.stream(source).group_by_key()
    windowed = grouped if windows is None else grouped.windowed_by(windows)
    seen: list[Any] = []
    windowed.summarize(summary, "summary").to_stream().for_each(lambda key, value: seen.append((key, value)))
    with TopologyTestDriver(builder.build()) as driver:
        for value, time_ms in rows:
            driver.pipe(source, value, key="k", timestamp_ms=time_ms)
        return seen


def last(summary: Any, values: list[Any], source: Any = trades) -> Any:
    """Return the last result of a summary without windows."""
    return results(summary, [(value, 0) for value in values], source=source)[-1][1]


def plain(values: list[Trade]) -> tuple[Bar, Report]:
    """Return both summaries in plain Python, without estimates."""
    prices = [trade.price for trade in values]
    sizes = [trade.size for trade in values]
    tops = [trade.price for trade in values if trade.venue == "XETR" and trade.size > 50]
    fees = [trade.fee for trade in values if trade.fee is not None]
    return (
        Bar(prices[0], max(prices), min(prices), prices[-1], sum(sizes), len(values)),
        Report(
            vwap=sum(trade.notional for trade in values) / sum(sizes),
            top=max(tops, default=None),
            mean=sum(prices) / len(prices),
            deviation=statistics.stdev(prices) if len(prices) > 1 else None,
            fees=sum(fees, Decimal(0)),
            paid=len(fees),
            venues=len({trade.venue for trade in values}),
            median=None,
        ),
    )


def is_near(one: float | None, two: float | None) -> bool:
    return one is two is None or math.isclose(one, two, rel_tol=1e-6, abs_tol=1e-6)  # type: ignore[arg-type]


@given(st.lists(one_trade, min_size=1, max_size=20), st.data())
def test_results_are_those_of_plain_python_also_if_parts_are_merged(values, data):
    expected_bar, expected = plain(values)
    cut = data.draw(st.integers(0, len(values)))
    for summary in (bar, report):
        read = summarized(summary, Trade, "a test")
        show = read.result or (lambda state: state)
        parts = [
            reduce(lambda state, value: read.add(None, value, state), part, None)
            for part in (values[:cut], values[cut:])
        ]
        whole = show(reduce(lambda state, value: read.add(None, value, state), values, None))
        merged = parts[0] if parts[1] is None else read.merge(None, *parts)
        if summary is bar:
            assert whole == show(merged) == expected_bar
            continue
        assert whole._replace(deviation=None, median=None) == expected._replace(deviation=None)
        for shown in (whole, show(merged)):
            assert is_near(shown.deviation, expected.deviation)
            assert is_near(shown.vwap, expected.vwap)
            assert is_near(shown.mean, expected.mean)
            assert shown[4:7] == expected[4:7]
            assert shown.top == expected.top
            assert min(trade.price for trade in values) <= shown.median <= max(trade.price for trade in values)


def test_sessions_merge_without_a_merger():
    gap = SessionWindows.of(timedelta(seconds=30), grace=timedelta(hours=1))
    rows = [(Trade(price, 1, "A"), at * 1000) for price, at in [(1.0, 0), (5.0, 50), (3.0, 25), (4.0, 45)]]

    key, shown = results(report, rows, gap)[-1]
    assert key.window == (0, 50_000)
    assert (shown.mean, shown.venues) == (3.25, 1)
    assert is_near(shown.deviation, statistics.stdev([1, 3, 4, 5]))


def test_first_and_last_of_a_merged_session_are_those_of_the_parts_in_time():
    rows = [(Trade(1.0, 1, "A"), 0), (Trade(3.0, 1, "A"), 50_000), (Trade(2.0, 1, "A"), 25_000)]
    _, shown = results(
        lambda t: agg.first(t.price), rows, SessionWindows.of(timedelta(seconds=30), grace=timedelta(hours=1))
    )[-1]
    assert shown == 1.0


def test_an_average_of_whole_numbers_is_a_float_where_the_class_says_so():
    class Total(msgspec.Struct, frozen=True):
        total: float

    assert repr(last(lambda t: Total(agg.sum(t.size)), [Trade(1.0, 2, "A")])) == "Total(total=2.0)"


def test_values_without_a_declared_type_and_none():
    rows = Topic("rows", key=str, value=dict[str, Any])
    values = [{"price": 2, "kind": "a"}, {"price": None, "kind": "b"}, {"price": 5, "kind": "b"}]
    assert last(lambda row: agg.sum(row["price"]), values, rows) == 7
    assert last(lambda row: agg.count(row["price"], where=row["kind"] == "b"), values, rows) == 1


def test_equal_calls_share_a_state_and_a_result_of_states_is_stored_itself():
    builder = StreamsBuilder()
    grouped = builder.stream(trades).group_by_key()
    grouped.summarize(bar, "bars")
    grouped.summarize(report, "reports")
    topology = builder.build()

    with TopologyTestDriver(topology) as driver:
        driver.pipe(trades, Trade(2.0, 3, "XETR"), key="k", timestamp_ms=5)
        assert driver.store("bars").get("k") == (Bar(2.0, 2.0, 2.0, 2.0, 3, 1), 5)
        assert driver.store("reports").get("k").value.vwap == 2.0
        assert [value.value.mean for _, value in driver.store("reports").all()] == [2.0]
        (change,) = driver.read_bytes(next(name for name in driver.topics() if name.endswith("reports-changelog")))
        states = msgspec.json.decode(change.value)
    # Sum of products, sizes, top, price, count, spread, fees, number of fees, venues, digest.
    assert len(states) == 10
    assert states[:5] == [6.0, 3, None, 2.0, 1]


def test_an_aggregate_of_ones_own():
    longest = agg.Aggregate[str, str](
        start=lambda text: text, add=lambda one, text: max(one, text, key=len), merge=lambda a, b: max(a, b, key=len)
    )
    pairs = agg.Aggregate[int, float](
        start=lambda size: (size, size),
        add=lambda state, size: (min(state[0], size), max(state[1], size)),
        merge=lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
        result=lambda state: state[1] / state[0],
        state=tuple[int, int],
        value=float,
    )
    values = [Trade(1.0, 4, "A"), Trade(1.0, 8, "ABC"), Trade(1.0, 2, "AB")]

    class Both(msgspec.Struct, frozen=True):
        longest: str
        ratio: float

    assert last(lambda t: Both(longest(t.venue), pairs(t.size)), values) == Both("ABC", 4.0)


def test_results_once_when_a_window_closes():
    builder = StreamsBuilder()
    windowed = builder.stream(trades).group_by_key().windowed_by(TimeWindows.of(timedelta(minutes=1)))
    seen: list[Any] = []
    final = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).summarize(report, "reports")
    final.to_stream().for_each(lambda key, value: seen.append((key.window.start_ms, value.mean)))
    with TopologyTestDriver(builder.build()) as driver:
        for price, time_ms in [(1.0, 0), (3.0, 1), (5.0, MINUTE_MS)]:
            driver.pipe(trades, Trade(price, 1, "A"), key="k", timestamp_ms=time_ms)
    assert seen == [(0, 2.0)]


def test_a_live_application_restores_the_states_and_queries_show_results(tmp_path):
    builder = StreamsBuilder()
    builder.stream(trades).group_by_key().summarize(report, "reports")
    topology = builder.build()
    broker = EmbeddedBroker()
    broker.create_topic(trades.name, 1)

    def run(folder: str, *prices: float) -> list[Any]:
        with Streams(topology, application_id="summary", broker=broker, state_dir=str(tmp_path / folder)) as app:
            with Producer(broker) as producer:
                for price in prices:
                    producer.send(trades, Trade(price, 1, "A"), key="k")
            store = app.store("reports")

            def mean() -> float | None:
                with suppress(StreamsRebalancingError):
                    return next((row.value.mean for _, row in store.all()), None)
                return None

            until(lambda: mean() == 2.0)
            assert store.to_arrow()["value"].to_pylist()[0]["mean"] == store.get("k").value.mean
            return [store.get("k").value.mean, store.get("k").value.venues]

    assert run("first", 1.0, 2.0, 3.0) == [2.0, 1]
    # From the changelog.
    assert run("second") == [2.0, 1]


class Checked(BaseModel):
    high: float


@define
class Hooked:
    high: float

    def __attrs_post_init__(self) -> None:
        self.high += 1


class Mutable(msgspec.Struct):
    high: float


def test_a_class_that_can_change_is_no_state():
    """Its result is made anew each time, and may be changed."""
    assert last(lambda t: Mutable(agg.max(t.price)), [Trade(1.0, 1, "A"), Trade(2.0, 1, "A")]) == Mutable(2.0)


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        (lambda t: agg.sum(t.size) if t.price else agg.count(), "decides by v.price; give where= to an aggregate"),
        (lambda t: agg.sum(t.size if agg.count() else 0), "decides by a0"),
        (lambda t: agg.max(t.price, where=t.fee is None), "uses `is`"),
        (lambda t: agg.count(where=t.fee == None), "computes == of None"),  # noqa: E711
        (lambda t: agg.count(where=t.size > 50 & (t.price > 1)), "(50) & (v.price > (1)), of a condition and none"),
        (lambda t: agg.first(f"{t.venue}!"), "makes text"),
        (lambda t: agg.sum(sorted([t.size])[0]), "calls sorted()"),
        (lambda t: agg.sum(len(t.venue)), "calls len()"),
        (lambda t: agg.sum([size + 1 for size in (t.size, 2)]), "has a"),
        (lambda t: Bar(t.price, t.price, t.price, t.price, t.size, agg.count()), "returns v.price of a single value"),
        (lambda t: t.price, "returns v.price of a single value"),
        (lambda t: 5, "calls no aggregate"),
        (lambda t: agg.sum(agg.count()), "aggregates the result of an aggregate"),
        (lambda t: Checked(high=agg.max(t.price)), "uses `is`"),
        (lambda t: Hooked(agg.max(t.price)), "does something when it is created"),
        (lambda t: agg.quantile(t.price, 50), "q of agg.quantile is a share from 0 to 1, such as 0.99, not 50"),
        (lambda t: Bar(high=agg.max(t.price)), "raises TypeError when it is read: Missing required argument"),
        (lambda a, b: agg.count(), "takes (a, b); give a function of (value)"),
    ],
)
def test_what_cannot_be_read_is_refused_where_it_is_declared(summary, message):
    builder = StreamsBuilder()
    grouped = builder.stream(trades).group_by_key()
    with pytest.raises(TopologyError, match=re.escape(message)) as refusal:
        grouped.summarize(summary, "summary")
    assert "test_summarize.py" in str(refusal.value) or "quantile" in message


class Flags(msgspec.Struct, frozen=True):
    ok: bool
    size: int
    tags: dict[str, Any]


def test_not_is_that_of_conditions_and_of_numbers():
    rows = [Flags(False, 5, {"new": True}), Flags(True, 7, {"new": False}), Flags(True, 1, {"new": False})]
    flags = Topic("flags", key=str, value=Flags)

    def summary(flag):
        return Inverted(
            agg.count(where=~flag.ok),
            agg.count(where=~(flag.size > 2) & flag.ok),
            agg.count(where=~flag.tags["new"]),
            agg.sum(~flag.size),
        )

    assert results(summary, [(row, 0) for row in rows], source=flags)[-1][1] == Inverted(1, 1, 2, -16)


def test_conditions_that_may_be_none_have_the_logic_of_sql():
    rows = [Trade(1.0, 1, "A"), Trade(1.0, 9, "A"), Trade(1.0, 9, "A", Decimal(5)), Trade(1.0, 1, "A", Decimal(0))]

    def summary(trade):
        is_charged, is_small = trade.fee > 0, trade.size < 5
        return Inverted(
            agg.count(where=is_charged | is_small),
            agg.count(where=is_charged & is_small),
            agg.count(where=~(is_charged & is_small)),
            agg.count(where=~(is_charged | is_small)),
        )

    assert last(summary, rows) == Inverted(3, 0, 3, 0)


class Inverted(NamedTuple):
    ok: int
    large: int
    new: int
    bits: int


def test_an_aggregate_outside_of_a_summary_is_refused():
    with pytest.raises(TopologyError, match=r"outside of a summary; call it in summarize"):
        agg.count()


def test_an_error_of_an_expression_names_the_summary():
    def summary(trade):
        return agg.sum(trade.size // (trade.size - 1))

    with pytest.raises(Exception, match="ZeroDivisionError") as failure:
        last(summary, [Trade(1.0, 1, "A")])
    assert "def summary(trade):" in place_in_user_code(failure.value.__cause__)


def test_a_sum_of_floats_is_added_in_order():
    values = [Trade(price, 1, "A") for price in (1e16, 1.0, -1e16, -0.0)]
    assert last(lambda t: agg.sum(t.price), values) == 0.0
    assert math.copysign(1, last(lambda t: agg.sum(t.price), [Trade(-0.0, 1, "A")])) == -1
