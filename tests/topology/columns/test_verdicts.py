"""``describe --format columns`` says of each node whether columns compute it, and if not, why and where."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from streams import SessionWindows, StreamsBuilder, TimeWindows, Topic
from streams.topology.columns.paths import verdicts


class Trade(msgspec.Struct, frozen=True):
    price: float
    size: int
    venue: str


class Bar(msgspec.Struct, frozen=True):
    high: float = 0.0
    n: int = 0


trades = Topic("trades", key=str, value=Trade)
texts = Topic("texts", key=str, value=list[str])


def add(_, trade, bar):
    return Bar(max(bar.high, trade.price), bar.n + sorted([trade.size])[0])


def line_of(text: str) -> int:
    return 1 + next(at for at, line in enumerate(Path(__file__).read_text().splitlines()) if text in line)


def filtered(builder):
    builder.stream(trades).filter(lambda _, trade: trade.size > 2, name="large")


def bars(builder):
    windows = builder.stream(trades).group_by_key().windowed_by(TimeWindows.of(timedelta(minutes=1)))
    windows.aggregate(Bar, lambda _, trade, bar: Bar(max(bar.high, trade.price), bar.n + 1), name="bars", value=Bar)


def sorted_bars(builder):
    builder.stream(trades).group_by_key().aggregate(Bar, add, name="bars", value=Bar)


def counted(builder):
    builder.stream(texts).group_by_key().count("counts")


def largest(builder):
    values = builder.stream(trades).map_values(lambda trade: trade.price * trade.size, name="value")
    values.group_by_key().reduce(max, name="top", value=float)


def behind_rows(builder):
    venues = builder.stream(trades).map_values(lambda trade: trade.venue.split(), name="venues")
    venues.filter(lambda _, words: words, name="some")


def sessions(builder):
    builder.stream(trades).group_by_key().windowed_by(SessionWindows.of(timedelta(minutes=1))).count("visits")


def undeclared(builder):
    builder.stream(texts).filter(lambda _, words: words, name="some")


@pytest.mark.parametrize(
    ("topology", "lines"),
    [
        (filtered, ["large: rows, since large has no nodes behind it"]),
        (bars, ["bars: columns (price)"]),
        (counted, ["counts: rows, since values of KSTREAM-SOURCE-0000000000 are no objects of JSON: list[str]"]),
        (largest, ["value: columns (price, size)", "top: columns (value)"]),
        (sessions, ["visits: rows, since session_aggregate is not computed in columns"]),
        (undeclared, ["some: rows, since it has values of list[str], which is no class with fields"]),
    ],
)
def test_each_node_has_a_verdict(topology, lines):
    builder = StreamsBuilder()
    topology(builder)

    assert list(map(str, verdicts(builder.build()))) == lines


def test_a_refusal_names_the_line():
    builder = StreamsBuilder()
    sorted_bars(builder)

    (verdict,) = verdicts(builder.build())
    assert str(verdict) == f"bars: rows, since add (test_verdicts.py:{line_of('sorted([trade')}) calls sorted()"


def test_what_follows_rows_is_rows():
    builder = StreamsBuilder()
    behind_rows(builder)

    first, second = map(str, verdicts(builder.build()))
    place = f"<lambda> (test_verdicts.py:{line_of('venue.split')})"
    assert first == f"venues: rows, since {place} uses .split of .venue"
    assert second == "some: rows, since its values come from venues, which is computed by rows"
