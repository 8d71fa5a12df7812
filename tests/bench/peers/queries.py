"""The nine queries of the comparison as a user of streams writes them.

Inputs `bids` and `auctions` have text keys and JSON values, event time is the record's own; results go to `out`,
windowed ones under ``key@start``, counts as 64-bit integers.  The Kafka Streams program of the comparison reads
and writes the same bytes, but for the order of the keys in a JSON object.
"""

import os
from collections.abc import Callable
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from streams import JoinWindows, SessionWindows, StreamsBuilder, TimeWindows, Topic, Windowed

TEN_SECONDS = timedelta(seconds=10)
TWO_SECONDS = timedelta(seconds=2)
GRACE = timedelta(seconds=5)


class Bid(Struct, frozen=True):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: int
    extra: str


class Auction(Struct, frozen=True):
    id: int
    item: str
    initial_bid: int
    reserve: int
    date_time: int
    expires: int
    seller: int
    category: int
    extra: str


class Enriched(Struct, frozen=True):
    auction: int
    bidder: int
    price: int
    seller: int
    category: int


#: Begins the names of the inputs; the peers know the same variable.
_PREFIX = os.environ.get("IN", "")

bids = Topic(f"{_PREFIX}bids", key=str, value=Bid)
auctions = Topic(f"{_PREFIX}auctions", key=str, value=Auction)
out = Topic("out", key=str, value=Bid)
counts = Topic("out", key=str, value=int)
pairs = Topic("out", key=str, value=Enriched)


def start_of(key: Windowed[str], _: object) -> str:
    return f"{key.key}@{key.window.start_ms}"


def enrich(bid: Bid, auction: Auction) -> Enriched:
    return Enriched(bid.auction, bid.bidder, bid.price, auction.seller, auction.category)


def passthrough(builder: StreamsBuilder) -> None:
    builder.stream(bids).to(out)


def in_euro(builder: StreamsBuilder) -> None:
    builder.stream(bids).map_values(lambda bid: replace(bid, price=bid.price * 908 // 1000)).to(out)


def some_auctions(builder: StreamsBuilder) -> None:
    builder.stream(bids).filter(lambda _, bid: bid.auction % 123 == 0).to(out)


def tumbling(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(TEN_SECONDS, grace=GRACE)
    builder.stream(bids).group_by_key().windowed_by(windows).count("counts").to_stream(start_of).to(counts)


def hopping(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(TEN_SECONDS, advance=TWO_SECONDS, grace=GRACE)
    builder.stream(bids).group_by_key().windowed_by(windows).count("counts").to_stream(start_of).to(counts)


def sessions(builder: StreamsBuilder) -> None:
    windows = SessionWindows.of(TEN_SECONDS, grace=GRACE)
    by_bidder = builder.stream(bids).select_key(lambda _, bid: str(bid.bidder)).repartition("bidders")
    by_bidder.group_by_key().windowed_by(windows).count("sessions").to_stream(start_of).to(counts)


def stream_join(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of(TEN_SECONDS, grace=GRACE)
    builder.stream(bids).join(builder.stream(auctions), enrich, windows).to(pairs)


def table_join(builder: StreamsBuilder) -> None:
    builder.stream(bids).join(builder.table(auctions, name="auctions"), enrich).to(pairs)


QUERIES: dict[str, Callable[[StreamsBuilder], None]] = {
    "Q0": passthrough,
    "Q1": in_euro,
    "Q2": some_auctions,
    "W1": tumbling,
    "W2": hopping,
    "S1": sessions,
    "J1": stream_join,
    "J2": table_join,
}
"""By name; W1 is run with and without record cache."""


def records_in(query: str, bids: int) -> int:
    """Records that a query reads: for each 46 bids three auctions, if it joins."""
    return bids + bids * 3 // 46 if query.startswith("J") else bids


def records_processed(query: str, bids: int) -> int:
    """Records that its tasks process: those of a repartition topic come on top."""
    return records_in(query, bids) * (2 if query == "S1" else 1)
