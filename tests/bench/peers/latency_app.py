"""``python -m tests.bench.peers.latency_app stateless|windowed INPUT OUTPUT``: what latency is measured of.

The price is converted, or records are counted per key in tumbling windows with the last record's `t` carried
along.  Records are sent at once, as the other systems are told to; else with the settings' defaults.
"""

import os
import sys
import tempfile
import uuid
from datetime import timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from streams import StreamsBuilder, TimeWindows, Topic, Windowed, run


class Bid(Struct, frozen=True):
    auction: int
    price: int
    t: float
    pad: str


class Count(Struct, frozen=True):
    count: int
    t: float


def start_of(key: Windowed[str], _: object) -> str:
    return f"{key.key}@{key.window.start_ms}"


def main() -> None:
    kind, source, sink = sys.argv[1:]
    bids = Topic(source, key=str, value=Bid)

    def stateless(builder: StreamsBuilder) -> None:
        converted = builder.stream(bids).map_values(lambda bid: replace(bid, price=bid.price * 908 // 1000))
        converted.to(Topic(sink, key=str, value=Bid))

    def windowed(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of(timedelta(seconds=10), grace=timedelta(seconds=5))
        counted = (
            builder.stream(bids)
            .group_by_key()
            .windowed_by(windows)
            .aggregate(lambda: Count(0, 0.0), lambda _, bid, seen: Count(seen.count + 1, bid.t), value=Count)
        )
        counted.to_stream(start_of).to(Topic(sink, key=str, value=Count))

    settings: dict[str, Any] = {"linger_ms": 0}
    with tempfile.TemporaryDirectory(dir=os.environ["LAB"]) as folder:
        run(
            stateless if kind == "stateless" else windowed,
            application_id=f"lat-{kind}-{uuid.uuid4().hex[:8]}",
            bootstrap_servers=os.environ["BOOTSTRAP"],
            state_dir=folder,
            **settings,
        )


if __name__ == "__main__":
    main()
