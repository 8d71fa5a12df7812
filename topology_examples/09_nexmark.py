r"""Nexmark's auction queries 0 to 8 and 11: the field's standard workload, one function each.

Each query is a topology of its own, `09_nexmark.py:q5`; ``topology`` is all of them at once.  The
input comes from the generator beside this file, in the order and with the lateness of real
events; a grace of ten seconds is more than any event is late.  Where a query is a running answer,
its topic holds every update, and the last one of each key is the answer.

    python topology_examples/09_nexmark.py                                 # all queries on a few events
    python -m topology_examples.nexmark --events 100000 --out /tmp/nexmark
    streams run topology_examples/09_nexmark.py:q5 --input bids=/tmp/nexmark/bids.records.jsonl \
        --output q5=- --final-flush
"""

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from streams import (
    JoinWindows,
    KTable,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    session_windowed,
    time_windowed,
)

# The generator is found beside this script, wherever one stands.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from topology_examples.nexmark import LONGEST_AUCTION_MS, Auction, Bid, Nexmark, auctions, bids, persons

GRACE = timedelta(seconds=10)
TEN_SECONDS = timedelta(seconds=10)
HOP = timedelta(seconds=2)
CATEGORY = 10
LAST = 10


class Price(Struct, frozen=True):
    """An auction's price; for q2."""

    auction: int
    price: int


class LocalItem(Struct, frozen=True):
    """An auction of a seller nearby; for q3."""

    auction: int
    name: str
    city: str
    state: str


class Sale(Struct, frozen=True):
    """An auction with its highest bid in time; for q4 and q6."""

    auction: int
    category: int
    seller: int
    expires: int
    price: int


class Mean(Struct, frozen=True):
    """A sum and what it is the sum of."""

    total: int = 0
    count: int = 0


class HotItem(Struct, frozen=True):
    """The auction with the most bids; for q5."""

    auction: int
    bids: int


class NewSeller(Struct, frozen=True):
    """Somebody who came and sold at once; for q8."""

    name: str
    auctions: int


q0_out = Topic("q0", key=int, value=Bid)
q1_out = Topic("q1", key=int, value=Bid)
q2_out = Topic("q2", key=int, value=Price)
q3_out = Topic("q3", key=int, value=LocalItem)
q4_out = Topic("q4", key=int, value=float)
q5_out = Topic("q5", key=int, value=HotItem)
q6_out = Topic("q6", key=int, value=float)
q7_out = Topic("q7", key=int, value=Bid)
q8_out = Topic("q8", key=time_windowed(int, TEN_SECONDS), value=NewSeller)
q11_out = Topic("q11", key=session_windowed(int), value=int)


def q0(builder: StreamsBuilder) -> None:
    """Pass through: what it costs to decode and encode."""
    builder.stream(bids).map_values(lambda bid: bid).to(q0_out)


def in_euro(bid: Bid) -> Bid:
    """Return a bid with its price, in cents, converted at 0.908."""
    return Bid(bid.auction, bid.bidder, bid.price * 908 // 1000, bid.channel, bid.url, bid.date_time, bid.extra)


def q1(builder: StreamsBuilder) -> None:
    """Convert each price from dollars to euro."""
    builder.stream(bids).map_values(in_euro).to(q1_out)


def q2(builder: StreamsBuilder) -> None:
    """Select the bids on certain auctions."""
    (
        builder.stream(bids)
        .filter(lambda _, bid: bid.auction % 123 == 0)
        .map_values(lambda bid: Price(bid.auction, bid.price))
        .to(q2_out)
    )


def q3(builder: StreamsBuilder) -> None:
    """Who sells in Oregon, Idaho or California, in one category?

    Two tables joined by a foreign key: an auction and its seller meet whichever comes first.
    """
    people = builder.stream(persons).to_table().filter(lambda _, person: person.state in ("OR", "ID", "CA"))
    (
        builder.stream(auctions)
        .to_table()
        .filter(lambda _, auction: auction.category == CATEGORY)
        .join(
            people,
            lambda auction, person: LocalItem(auction.id, person.name, person.city, person.state),
            foreign_key=lambda _, auction: auction.seller,
        )
        .to_stream()
        .to(q3_out)
    )


def sale(auction: Auction, bid: Bid) -> Sale | None:
    """Return the sale that a bid would make, or None if it comes when the auction is over."""
    if not auction.date_time <= bid.date_time <= auction.expires:
        return None
    return Sale(auction.id, auction.category, auction.seller, auction.expires, bid.price)


def sales(builder: StreamsBuilder, name: str) -> KTable[int, Sale]:
    """Return the table of auctions and the highest bid of each so far."""
    return (
        builder.stream(auctions)
        .join(
            builder.stream(bids),
            sale,
            JoinWindows.of(before=timedelta(0), after=timedelta(milliseconds=LONGEST_AUCTION_MS), grace=GRACE),
        )
        .flat_map_values(lambda found: () if found is None else (found,))
        .group_by_key(value=Sale)
        .reduce(lambda best, other: other if other.price > best.price else best, name)
    )


def q4(builder: StreamsBuilder) -> None:
    """Give the average of the highest bids per category.  A higher bid takes the place of the one before."""
    (
        sales(builder, "q4-sales")
        .group_by(lambda _, found: (found.category, found.price), key=int, value=int)
        .aggregate(
            Mean,
            lambda _, price, mean: Mean(mean.total + price, mean.count + 1),
            lambda _, price, mean: Mean(mean.total - price, mean.count - 1),
            name="q4-means",
            value=Mean,
        )
        .filter(lambda _, mean: mean.count > 0)
        .map_values(lambda mean: mean.total / mean.count)
        .to_stream()
        .to(q4_out)
    )


def q5(builder: StreamsBuilder) -> None:
    """Which auction had the most bids in the last ten seconds?  Asked every two; the key is the window's start."""
    (
        builder.stream(bids)
        .group_by_key()
        .windowed_by(TimeWindows.of(TEN_SECONDS, advance=HOP, grace=GRACE))
        .count("q5-counts")
        .suppress(Suppressed.until_window_closes())
        .to_stream(tombstones=False)
        .map(lambda auction, count: (auction.window.start_ms, HotItem(auction.key, count)))
        .group_by_key(key=int, value=HotItem)
        .reduce(lambda best, other: max(best, other, key=lambda item: (item.bids, -item.auction)), name="q5-hottest")
        .to_stream()
        .to(q5_out)
    )


def latest(found: list[Sale], new: Sale) -> list[Sale]:
    """Return a seller's sales with one more, cut to the last ten by their end."""
    return sorted([*found, new], key=lambda one: (one.expires, one.auction))[-LAST:]


def q6(builder: StreamsBuilder) -> None:
    """Give each seller's average price over the last ten auctions."""
    (
        sales(builder, "q6-sales")
        .group_by(lambda _, found: (found.seller, found), key=int, value=Sale)
        .aggregate(
            list,
            lambda _, new, found: latest(found, new),
            lambda _, old, found: [one for one in found if one.auction != old.auction],
            name="q6-latest",
            value=list[Sale],
        )
        .filter(lambda _, found: bool(found))
        .map_values(lambda found: sum(one.price for one in found) / len(found))
        .to_stream()
        .to(q6_out)
    )


def higher(best: Bid, other: Bid) -> Bid:
    """Return the higher of two bids; of equal ones, the one with the highest auction, bidder and time."""
    return max(best, other, key=lambda bid: (bid.price, bid.auction, bid.bidder, bid.date_time))


def q7(builder: StreamsBuilder) -> None:
    """Give the highest bid of each ten seconds, first per auction, then over all; the key is the window's start."""
    (
        builder.stream(bids)
        .group_by_key()
        .windowed_by(TimeWindows.of(TEN_SECONDS, grace=GRACE))
        .reduce(higher, name="q7-per-auction")
        .to_stream()
        .map(lambda auction, bid: (auction.window.start_ms, bid))
        .group_by_key(key=int, value=Bid)
        .reduce(higher, name="q7-highest")
        .to_stream()
        .to(q7_out)
    )


def q8(builder: StreamsBuilder) -> None:
    """Who came and opened auctions in the same ten seconds?  Two windowed tables, joined."""
    windows = TimeWindows.of(TEN_SECONDS, grace=GRACE)
    newcomers = (
        builder.stream(persons).group_by_key().windowed_by(windows).reduce(lambda first, _: first, name="q8-newcomers")
    )
    opened = (
        builder.stream(auctions).group_by(lambda _, auction: auction.seller).windowed_by(windows).count("q8-opened")
    )
    (newcomers.join(opened, lambda person, count: NewSeller(person.name, count)).to_stream().to(q8_out))


def q11(builder: StreamsBuilder) -> None:
    """Count the bids in each session of a bidder: until no bid comes for ten seconds."""
    (
        builder.stream(bids)
        .group_by(lambda _, bid: bid.bidder)
        .windowed_by(SessionWindows.of(TEN_SECONDS, grace=GRACE))
        .count("q11-sessions")
        .to_stream()
        .to(q11_out)
    )


QUERIES: Final[dict[str, tuple[Callable[[StreamsBuilder], None], Topic[Any, Any]]]] = {
    "q0": (q0, q0_out),
    "q1": (q1, q1_out),
    "q2": (q2, q2_out),
    "q3": (q3, q3_out),
    "q4": (q4, q4_out),
    "q5": (q5, q5_out),
    "q6": (q6, q6_out),
    "q7": (q7, q7_out),
    "q8": (q8, q8_out),
    "q11": (q11, q11_out),
}


def topology(builder: StreamsBuilder) -> None:
    """Answer all queries at once, from one reading of the input."""
    for query, _ in QUERIES.values():
        query(builder)


def main() -> None:
    """Run all queries over fifty seconds of events, and print how much each answers, and its last answer."""
    from streams.testing import TopologyTestDriver

    driver = TopologyTestDriver(topology)
    topics: dict[str, Topic[Any, Any]] = {"persons": persons, "auctions": auctions, "bids": bids}
    for name, (_, value, _) in Nexmark(rate=100).events(5000):
        topic = topics[name]
        decoded = topic.value_serde.deserialize(value)
        driver.pipe(topic, decoded)
    for name, (query, output) in QUERIES.items():
        answers = driver.read(output)
        summary = (query.__doc__ or "").split("\n")[0]
        print(f"{name:4}{len(answers):5} answers  {summary}")
        if answers:
            print(f"               the last: {answers[-1]}")


if __name__ == "__main__":
    main()
