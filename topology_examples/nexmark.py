"""Nexmark's auction events from a seed: persons, auctions and bids in the ratio 1 : 3 : 46.

    python -m topology_examples.nexmark --events 100000 --out /tmp/nexmark

writes one file per topic.  The same events come as blocks of bytes for benchmarks (``blocks``) and
for bounded runs (``reader``).  Event time advances at ``rate`` events a second; half of the events
are late, by at most ``disorder_ms``.  The three topics have a random sequence each, so that one of
them can be made without the others; equal arguments give equal bytes on every machine.
"""

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

from attrs import field, frozen
from attrs.validators import ge, gt
from msgspec import Struct

from streams import Topic
from streams.core.blocks.partitioning import partitions_for
from streams.core.blocks.records import Block

#: Key, value and timestamp (epoch milliseconds) of one record, as on the topic.
Row: TypeAlias = tuple[bytes, bytes, int]

FIRST_ID: Final = 1000
FIRST_CATEGORY: Final = 10
#: The longest that an auction takes, from its own time to ``expires``.
LONGEST_AUCTION_MS: Final = 10_000

_EPOCH_EVENTS = 50  # One person, three auctions, 46 bids.
_AUCTIONS = 3
_HOT = 100  # Every hundredth auction and bidder is a favourite until the next one.
_STATES = (b"AZ", b"CA", b"ID", b"OR", b"WA", b"WY")
_CITIES = (b"Phoenix", b"Los Angeles", b"San Jose", b"Boise", b"Portland", b"Bend", b"Redmond", b"Seattle", b"Kent")
_FIRST_NAMES = (b"Peter", b"Paul", b"Luke", b"John", b"Saul", b"Vicky", b"Kate", b"Julie", b"Sarah", b"Walter")
_LAST_NAMES = (b"Shultz", b"Abrams", b"Spencer", b"White", b"Bartels", b"Walton", b"Smith", b"Jones", b"Noris")
_ITEMS = (b"lamp", b"chair", b"atlas", b"violin", b"kettle", b"camera", b"bicycle", b"globe")
_CHANNELS = (b"Apple", b"Baidu", b"Facebook", b"Google", b"channel-17", b"channel-433", b"channel-9051")
_PADDING = b"x" * 64


class Person(Struct, frozen=True):
    """Somebody who sells or bids; ``date_time`` is epoch milliseconds, here and below."""

    id: int
    name: str
    email: str
    city: str
    state: str
    date_time: int
    extra: str


class Auction(Struct, frozen=True):
    """An item for sale by ``seller`` from ``date_time`` until ``expires``."""

    id: int
    item: str
    initial_bid: int
    reserve: int
    date_time: int
    expires: int
    seller: int
    category: int
    extra: str


class Bid(Struct, frozen=True):
    """What ``bidder`` offers for ``auction``."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: int
    extra: str


persons = Topic(
    "persons", key=int, value=Person, timestamp=lambda person: person.date_time, key_from=lambda person: person.id
)
auctions = Topic(
    "auctions", key=int, value=Auction, timestamp=lambda auction: auction.date_time, key_from=lambda auction: auction.id
)
bids = Topic("bids", key=int, value=Bid, timestamp=lambda bid: bid.date_time, key_from=lambda bid: bid.auction)

#: All three, in the order in which they start.
TOPICS: Final[tuple[Topic[Any, Any], ...]] = (persons, auctions, bids)


@frozen
class Nexmark:
    """The events of one seed.

    ``rate`` is events per second of event time, all topics together; ``start_ms`` the time of the
    first event if it is not late.
    """

    seed: int = 7
    rate: int = field(default=1000, validator=gt(0))
    disorder_ms: int = field(default=2000, validator=ge(0))
    start_ms: int = field(default=1_790_000_000_000, validator=ge(0))

    def persons(self, events: int) -> Iterator[Row]:
        """Yield the persons among so many events."""
        rnd = random.Random(f"{self.seed} persons").random
        for number in range(-(-events // _EPOCH_EVENTS)):
            time = self._time(number * _EPOCH_EVENTS, rnd)
            person = FIRST_ID + number
            first = _FIRST_NAMES[int(rnd() * 10)]
            value = (
                b'{"city":"%b","date_time":%d,"email":"%b.%d@example.com","extra":"%b","id":%d,'
                b'"name":"%b %b","state":"%b"}'
                % (
                    _CITIES[int(rnd() * 9)],
                    time,
                    first.lower(),
                    person,
                    _PADDING[: int(rnd() * 60)],
                    person,
                    first,
                    _LAST_NAMES[int(rnd() * 9)],
                    _STATES[int(rnd() * 6)],
                )
            )
            yield person.to_bytes(8, "big"), value, time

    def auctions(self, events: int) -> Iterator[Row]:
        """Yield the auctions among so many events."""
        rnd = random.Random(f"{self.seed} auctions").random
        for index in _indexes(events, range(1, 1 + _AUCTIONS)):
            epoch, slot = divmod(index, _EPOCH_EVENTS)
            auction = FIRST_ID + epoch * _AUCTIONS + slot - 1
            time = self._time(index, rnd)
            value = (
                b'{"category":%d,"date_time":%d,"expires":%d,"extra":"%b","id":%d,"initial_bid":%d,'
                b'"item":"%b %d","reserve":%d,"seller":%d}'
                % (
                    FIRST_CATEGORY + int(rnd() * 5),
                    time,
                    time + 500 + int(rnd() * (LONGEST_AUCTION_MS - 500)),
                    _PADDING[: int(rnd() * 60)],
                    auction,
                    int(rnd() * 1000),
                    _ITEMS[int(rnd() * 8)],
                    auction,
                    int(rnd() * 5000),
                    _someone(epoch, rnd),
                )
            )
            yield auction.to_bytes(8, "big"), value, time

    def bids(self, events: int) -> Iterator[Row]:
        """Yield the bids among so many events."""
        rnd = random.Random(f"{self.seed} bids").random
        start_ms, disorder_ms, rate = self.start_ms, self.disorder_ms, self.rate
        for index in _indexes(events, range(1 + _AUCTIONS, _EPOCH_EVENTS)):
            epoch = index // _EPOCH_EVENTS
            # As ``_time``, in place: bids are nine events in ten.
            time = start_ms + index * 1000 // rate
            if rnd() < 0.5:
                time = max(0, time - int(rnd() * (disorder_ms + 1)))
            last = epoch * _AUCTIONS + _AUCTIONS - 1
            number = last // _HOT * _HOT if rnd() < 0.5 else max(0, last - int(rnd() * _HOT))
            auction = FIRST_ID + number
            value = (
                b'{"auction":%d,"bidder":%d,"channel":"%b","date_time":%d,"extra":"%b","price":%d,'
                b'"url":"https://www.example.com/item/%d"}'
                % (
                    auction,
                    _someone(epoch, rnd),
                    _CHANNELS[int(rnd() * 7)],
                    time,
                    _PADDING[: int(rnd() * 40)],
                    int(10 ** (rnd() * 6)) + 1,
                    auction,
                )
            )
            yield auction.to_bytes(8, "big"), value, time

    def rows(self, topic: Topic[Any, Any], events: int) -> Iterator[Row]:
        """Yield the records of one topic among so many events, in the order in which they happen to arrive."""
        makers = {"persons": self.persons, "auctions": self.auctions, "bids": self.bids}
        return makers[topic.name](events)

    def events(self, events: int) -> Iterator[tuple[str, Row]]:
        """Yield (topic name, record) of all topics, merged in order of arrival."""
        numbered = (
            zip(_indexes(events, slots), _named(topic, self.rows(topic, events)), strict=True)
            for topic, slots in zip(TOPICS, (range(1), range(1, 1 + _AUCTIONS), range(1 + _AUCTIONS, 50)), strict=True)
        )
        for _, event in merge(*numbered, key=itemgetter(0)):
            yield event

    def blocks(
        self, topic: Topic[Any, Any], events: int, *, partitions: int = 1, size: int = 5000, skip_rows: int = 0
    ) -> Iterator[list[tuple[int, Block]]]:
        """Yield batches of at most ``size`` records as (partition, block), in order of arrival.

        Keys are partitioned as every Kafka client does it; ``skip_rows`` leaves out the first records.
        """
        rows = self.rows(topic, events)
        ends = [0] * partitions
        batch = list(islice(rows, skip_rows))
        if batch:
            for partition in partitions_for([key for key, _, _ in batch], partitions):
                ends[partition] += 1
        while batch := list(islice(rows, size)):
            yield list(_split(batch, ends))

    def reader(self, topic: Topic[Any, Any], events: int) -> Callable[[int, int], Iterator[list[tuple[int, Block]]]]:
        """Return what a bounded run reads a topic by: a function of the partitions and the rows to skip."""

        def read(partitions: int, skip_rows: int) -> Iterator[list[tuple[int, Block]]]:
            return self.blocks(topic, events, partitions=partitions, skip_rows=skip_rows)

        return read

    def write(self, folder: Path, events: int, *, plain: bool = False) -> list[Path]:
        """Write ``TOPIC.records.jsonl`` (or, plain, values only as ``TOPIC.jsonl``) and return the paths."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for topic in TOPICS:
            path = folder / f"{topic.name}{'.jsonl' if plain else '.records.jsonl'}"
            rows = self.rows(topic, events)
            with path.open("wb") as file:
                if plain:
                    file.writelines(value + b"\n" for _, value, _ in rows)
                else:
                    file.writelines(
                        b'{"key":%d,"timestamp":%d,"value":%b}\n' % (int.from_bytes(key, "big"), time, value)
                        for key, value, time in rows
                    )
            paths.append(path)
        return paths

    def _time(self, index: int, rnd: Callable[[], float]) -> int:
        time = self.start_ms + index * 1000 // self.rate
        return max(0, time - int(rnd() * (self.disorder_ms + 1))) if rnd() < 0.5 else time


def _someone(epoch: int, rnd: Callable[[], float]) -> int:
    """Return a person's id: one time in four the favourite, otherwise one of the last thousand."""
    number = epoch // _HOT * _HOT if rnd() < 0.25 else max(0, epoch - int(rnd() * 1000))
    return FIRST_ID + number


def _indexes(events: int, slots: range) -> Iterator[int]:
    """Yield which of all events have these places among the fifty of an epoch."""
    for start in range(slots.start, events, _EPOCH_EVENTS):
        yield from range(start, min(start + len(slots), events))


def _named(topic: Topic[Any, Any], rows: Iterator[Row]) -> Iterator[tuple[str, Row]]:
    return ((topic.name, row) for row in rows)


def _split(rows: Sequence[Row], ends: list[int]) -> Iterator[tuple[int, Block]]:
    """Yield a block for each partition that has records, and move the partitions' ends."""
    partitions = partitions_for([key for key, _, _ in rows], len(ends))
    columns: dict[int, list[Row]] = {}
    for partition, row in zip(partitions, rows, strict=True):
        columns.setdefault(partition, []).append(row)
    for partition, part in sorted(columns.items()):
        keys, values, times = zip(*part, strict=True)
        end = ends[partition] + len(part)
        yield partition, Block(keys, values, times, None, range(ends[partition], end))
        ends[partition] = end


def main() -> None:
    """Write the files that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m topology_examples.nexmark", description="Nexmark's events.")
    defaults = Nexmark()
    parser.add_argument("--events", type=int, default=100_000, help="of all topics together (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("nexmark"), help="folder for the files (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--rate", type=int, default=defaults.rate, help="events per second of event time")
    parser.add_argument("--disorder-ms", type=int, default=defaults.disorder_ms, help="how late an event may be")
    parser.add_argument("--start-ms", type=int, default=defaults.start_ms, help="time of the first event")
    parser.add_argument("--plain", action="store_true", help="values only (.jsonl) instead of records (.records.jsonl)")
    options = parser.parse_args()
    generator = Nexmark(options.seed, options.rate, options.disorder_ms, options.start_ms)
    for path in generator.write(options.out, options.events, plain=options.plain):
        print(path)
    first = datetime.fromtimestamp(options.start_ms / 1000, UTC)
    print(f"{options.events} events from {first:%Y-%m-%d %H:%M:%S} UTC on")


if __name__ == "__main__":
    main()
