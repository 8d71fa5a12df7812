"""What a hand would write without the framework, over the same broker and clients: the measure of the DSL's price.

Two loops for the events of ``harness``: a mapped value, and a tumbling count that sends every update and
writes the last count of each key and window to a changelog at its commit.  They know their topics, serdes
and partitions beforehand, keep no order between partitions, and survive nothing.
"""

import gc
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from streams import Consumer, EmbeddedBroker, Producer, TopicPartition
from streams.core.blocks.records import Block
from tests.bench.harness import PARTITIONS
from topology_examples.nexmark import Bid

SIZE_MS, GRACE_MS = 10_000, 5_000
_LONG = struct.Struct(">q")
#: Takes the next block of bids of a partition; at the end, with None, gives what is left to be written.
Loop: TypeAlias = Callable[[int, Block | None], Sequence[tuple[str, Block]]]


def mapping() -> Loop:
    """Return the loop of a bid's price in another currency."""
    decode, encode = msgspec.json.Decoder(Bid).decode, msgspec.json.Encoder().encode

    def loop(_: int, block: Block | None) -> Sequence[tuple[str, Block]]:
        if block is None:
            return ()
        values = []
        for data in block.values:
            bid = decode(data)  # type: ignore[arg-type]
            price = bid.price * 908 // 1000
            values.append(encode(Bid(bid.auction, bid.bidder, price, bid.channel, bid.url, bid.date_time, bid.extra)))
        return [("out", Block(block.keys, values, block.timestamps, None, range(len(values))))]

    return loop


def counting() -> Loop:
    """Return the loop of a count per auction and ten seconds, every update sent."""
    decode = msgspec.json.Decoder(Bid).decode
    pack = _LONG.pack
    counts: list[dict[tuple[bytes, int], int]] = [{} for _ in range(PARTITIONS)]
    stream_times = [-1] * PARTITIONS

    def loop(number: int, block: Block | None) -> Sequence[tuple[str, Block]]:
        state = counts[number]
        if block is None:
            keys = [key + pack(start_ms) for key, start_ms in state]
            return [("log", Block(keys, [pack(count) for count in state.values()], [start for _, start in state]))]
        stream_time = stream_times[number]
        keys, values, timestamps = [], [], []
        for key, data, timestamp_ms in zip(block.keys, block.values, block.timestamps, strict=True):
            decode(data)  # type: ignore[arg-type]
            start_ms = timestamp_ms - timestamp_ms % SIZE_MS
            if timestamp_ms > stream_time:
                stream_time = timestamp_ms
            elif start_ms + SIZE_MS <= stream_time - GRACE_MS:
                continue
            assert key is not None
            slot = (key, start_ms)
            count = state[slot] = state.get(slot, 0) + 1
            keys.append(key + pack(start_ms))
            values.append(pack(count))
            timestamps.append(timestamp_ms)
        stream_times[number] = stream_time
        return [("out", Block(keys, values, timestamps, None, range(len(keys))))]

    return loop


def run_fused(make: Callable[[], Loop], blocks: Mapping[str, list[tuple[int, Block]]]) -> tuple[int, int]:
    """Return CPU nanoseconds and the number of output records of one run over all bids."""
    with EmbeddedBroker(default_partitions=PARTITIONS) as broker:
        for name in ("bids", "out", "log"):
            broker.create_topic(name, PARTITIONS)
        for number, block in blocks["bids"]:
            broker.append(TopicPartition("bids", number), block)
        gc.collect()
        gc.freeze()
        start = time.process_time_ns()
        _copy(broker, make(), len(blocks["bids"]) and sum(len(block) for _, block in blocks["bids"]))
        spent = time.process_time_ns() - start
        gc.unfreeze()
        return spent, sum(broker.end_offset(TopicPartition("out", number)) for number in range(PARTITIONS))


def _copy(broker: EmbeddedBroker, loop: Loop, records: int) -> None:
    partitions = [TopicPartition("bids", number) for number in range(PARTITIONS)]
    with (
        Consumer(broker, "fused", auto_offset_reset="earliest", enable_auto_commit=False) as consumer,
        Producer(broker) as producer,
    ):
        consumer.assign(partitions)
        done = 0
        while done < records:
            for partition, found in consumer.poll_blocks(100).items():
                for block in found:
                    done += len(block)
                    for topic, out in loop(partition.partition, block):
                        producer.send_block(TopicPartition(topic, partition.partition), out)
        for partition in partitions:
            for topic, out in loop(partition.partition, None):
                producer.send_block(TopicPartition(topic, partition.partition), out)
        producer.flush()
        consumer.commit_sync()
