"""``python -m tests.bench [--events N] [--runs N] [--only NAME] [--write]``: the table of the embedded path."""

import argparse
from datetime import timedelta

from streams import (
    CalendarWindows,
    EmitStrategy,
    JoinWindows,
    StreamsBuilder,
    TimeWindows,
    Topic,
    session_windowed,
    time_windowed,
)
from tests.bench import model
from tests.bench.clients import TRANSFERS, measure_transfer
from tests.bench.figures import Table, add_write_option
from tests.bench.harness import Measure, Pipeline, machine, measure
from topology_examples.nexmark import Auction, Bid

TEN_SECONDS = timedelta(seconds=10)
GRACE = timedelta(seconds=5)

# Event time is the record's own: nothing is extracted.
bids = Topic("bids", key=int, value=Bid)
auctions = Topic("auctions", key=int, value=Auction)
out = Topic("out", key=int, value=Bid)
counts = Topic("counts", key=time_windowed(int, TEN_SECONDS), value=int)
by_day = Topic("by-day", key=session_windowed(int), value=int)
pairs = Topic("pairs", key=int, value=Bid)
totals = Topic("totals", key=int, value=int)


def in_euro(bid: Bid) -> Bid:
    return Bid(bid.auction, bid.bidder, bid.price * 908 // 1000, bid.channel, bid.url, bid.date_time, bid.extra)


def stateless(builder: StreamsBuilder) -> None:
    builder.stream(bids).map_values(in_euro).to(out)


def select(builder: StreamsBuilder) -> None:
    builder.stream(bids).filter(lambda _, bid: bid.auction % 123 == 0).to(out)


def count(builder: StreamsBuilder) -> None:
    builder.stream(bids).group_by_key().count("counts").to_stream().to(totals)


def count_by_bidder(builder: StreamsBuilder) -> None:
    """The repartition topic has the bids of four tasks in each partition, in step."""
    builder.stream(bids).group_by(lambda _, bid: bid.bidder).count("counts").to_stream().to(totals)


def tumbling(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(TEN_SECONDS, grace=GRACE)
    builder.stream(bids).group_by_key().windowed_by(windows).count("counts").to_stream().to(counts)


def tumbling_on_close(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(TEN_SECONDS, grace=GRACE)
    grouped = builder.stream(bids).group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    grouped.count("counts").to_stream().to(counts)


def days(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(timedelta(days=1), grace=GRACE)
    builder.stream(bids).group_by_key().windowed_by(windows).count("counts").to_stream().to("by-day")


def calendar_days(builder: StreamsBuilder) -> None:
    windows = CalendarWindows.days("America/New_York", grace=GRACE)
    builder.stream(bids).group_by_key().windowed_by(windows).count("counts").to_stream().to(by_day)


def windowed_join(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of(TEN_SECONDS, grace=GRACE)
    builder.stream(auctions).join(builder.stream(bids), lambda auction, bid: bid, windows).to(pairs)


def count_expiring(builder: StreamsBuilder) -> None:
    builder.stream(bids).group_by_key().count("counts", ttl=TEN_SECONDS).to_stream(tombstones=False).to(totals)


def deduplicated(builder: StreamsBuilder) -> None:
    """A third of the bids by a bidder for an auction are his second or later within a minute."""
    builder.stream(bids).deduplicate(lambda _, bid: bid.bidder, within=timedelta(minutes=1), id=int).to(out)


def latest_auction(builder: StreamsBuilder) -> None:
    left, right = builder.stream(bids), builder.stream(auctions)
    left.join_latest(right, lambda bid, auction: bid, tolerance=TEN_SECONDS, grace=GRACE).to(pairs)


def classified(builder: StreamsBuilder) -> None:
    builder.stream(bids).map_values(model.class_of).to(totals)


def classified_in_batches(builder: StreamsBuilder) -> None:
    builder.stream(bids).map_values_batches(model.classes, max_records=1_000).to(totals)


async def in_dollars(bid: Bid) -> int:
    return bid.price


def called(builder: StreamsBuilder) -> None:
    """Calls that return at once: what remains is the cost of the operator."""
    builder.stream(bids).map_values_async(in_dollars, concurrency=500).to(totals)


PIPELINES = (
    Pipeline("stateless map", stateless, [bids], ["out"]),
    Pipeline("filter", select, [bids], ["out"]),
    Pipeline("count, memory", count, [bids], ["totals"]),
    Pipeline("count, cached", count, [bids], ["totals"], settings={"cache_max_bytes": 10_000_000}),
    Pipeline("count, repartitioned", count_by_bidder, [bids], ["totals"]),
    Pipeline(
        "count, repartitioned, exactly once",
        count_by_bidder,
        [bids],
        ["totals"],
        settings={"processing_guarantee": "exactly_once_v2"},
    ),
    Pipeline("tumbling count, memory", tumbling, [bids], ["counts"]),
    Pipeline("tumbling count on close, memory", tumbling_on_close, [bids], ["counts"]),
    Pipeline("tumbling count, RocksDB", tumbling, [bids], ["counts"], on_disk=True),
    Pipeline(
        "tumbling count, exactly once",
        tumbling,
        [bids],
        ["counts"],
        settings={"processing_guarantee": "exactly_once_v2"},
    ),
    Pipeline("count by UTC day, memory", days, [bids], ["by-day"]),
    Pipeline("count by day in New York, memory", calendar_days, [bids], ["by-day"]),
    Pipeline("windowed join, memory", windowed_join, [auctions, bids], ["pairs"]),
    Pipeline("count with TTL, memory", count_expiring, [bids], ["totals"]),
    Pipeline("count with TTL, RocksDB", count_expiring, [bids], ["totals"], on_disk=True),
    Pipeline("deduplicate, memory", deduplicated, [bids], ["out"]),
    Pipeline("deduplicate, RocksDB", deduplicated, [bids], ["out"], on_disk=True),
    Pipeline("as-of join, memory", latest_auction, [auctions, bids], ["pairs"]),
    Pipeline("async map", called, [bids], ["totals"], calls=True),
    Pipeline("numpy model, by record", classified, [bids], ["totals"]),
    Pipeline("numpy model, in batches", classified_in_batches, [bids], ["totals"]),
)


COLUMNS = ("pipeline", "records in", "records out", "records/s", "ns per record", "CPU ns per record", "spread")


def row(result: Measure) -> list[str]:
    return [
        result.name,
        *(f"{count:,}" for count in (result.records_in, result.records_out)),
        *(f"{figure:,.0f}" for figure in (result.records_per_second, result.wall_ns, result.cpu_ns)),
        f"{result.spread:.0%}",
    ]


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench")
    options.add_argument("--events", type=int, default=300_000, help="Nexmark events, 46 of 50 of them bids")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--only", default="", help="pipelines whose name has this in it")
    add_write_option(options)
    chosen = options.parse_args()
    conditions = (
        f"{machine()}; {chosen.events:,} Nexmark events, 4 partitions, one thread; median of {chosen.runs} runs"
    )
    table = Table("embedded", COLUMNS, conditions)
    table.open()
    for pipeline in PIPELINES:
        if chosen.only in pipeline.name:
            table.add(row(measure(pipeline, chosen.events, chosen.runs)))
    for transfer in TRANSFERS:
        if chosen.only in transfer.name:
            table.add(row(measure_transfer(transfer, chosen.runs)))
    if chosen.write:
        table.write()


if __name__ == "__main__":
    main()
