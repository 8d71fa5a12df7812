"""The wire codec: nanoseconds a record and a message, `python -m tests.bench.codec`.

1,000 records of 141 bytes in one uncompressed batch, in cache; medians of several runs.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from random import Random

from streams.core.blocks.records import Block, TopicPartition
from streams.protocol import batch
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import Heartbeat
from streams.protocol.messages import Fetch, FetchedPartition, FetchResponse, Produce
from streams.protocol.wire import EncodedBlock, fetched, mapping, produced, read_request, read_response
from streams.protocol.wire.codec import request_coder, response_coder
from streams.protocol.wire.framing import encode_request, encode_response
from tests.bench.harness import machine

RECORDS = 1_000
PARTITION = TopicPartition("bench", 0)


def block(*, with_headers: bool = False) -> Block:
    """Return records with keys of 4 to 5 bytes and values of 130, a millisecond apart."""
    rng = Random(1)
    return Block(
        [b"%d" % rng.randint(1000, 99_999) for _ in range(RECORDS)],
        [rng.randbytes(130) for _ in range(RECORDS)],
        range(1_700_000_000_000, 1_700_000_000_000 + RECORDS),
        [(("trace", b"0123456789abcdef"),)] * RECORDS if with_headers else None,
        range(RECORDS),
    )


def frame_of(chunks: list[bytes]) -> bytes:
    """Return a frame without its length, as a reader gives it."""
    return b"".join(chunks)[4:]


def measured(call: Callable[[], object], runs: int, loops: int) -> tuple[float, float]:
    """Return median and spread of a call in nanoseconds."""
    times = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        for _ in range(loops):
            call()
        times.append((time.perf_counter_ns() - start) / loops)
    median = statistics.median(times)
    return median, (max(times) - min(times)) / median


def cases() -> dict[str, tuple[Callable[[], object], int]]:
    """Return what is measured, and how many records it is about."""
    plain, headers = block(), block(with_headers=True)
    data, with_headers = batch.encode(plain, 0), batch.encode(headers, 0)
    heartbeat = Heartbeat("group", 5, "member-0123456789", None)
    beat = frame_of(encode_request(12, 3, 7, "client", mapping.build_request(heartbeat, 3)[1]))
    beaten = frame_of(encode_response(12, 3, 7, {"error_code": 0}))
    produce = Produce({PARTITION: (EncodedBlock.of(plain, 0),)})
    sent = request_coder(0, 8).to_bytes(mapping.build_request(produce, 8)[1])
    fetch = mapping.parse_request(1, 11, mapping.build_request(Fetch({PARTITION: 0}), 11)[1] | {"max_bytes": 1 << 30})
    stored = FetchResponse({PARTITION: FetchedPartition(ErrorCode.NONE, RECORDS, 0, chunks=[data])})
    answer = mapping.build_response(fetch, [stored], mapping.Serving("bench", {}))
    got = response_coder(1, 11).to_bytes(answer)
    return {
        "batch: encode": (lambda: batch.encode(plain, 0), RECORDS),
        "batch: decode": (lambda: batch.decode(data), RECORDS),
        "batch: encode, one header each": (lambda: batch.encode(headers, 0), RECORDS),
        "batch: decode, one header each": (lambda: batch.decode(with_headers), RECORDS),
        "batch: check, not decoded": (lambda: produced(data), RECORDS),
        "batch: base offset rewritten": (lambda: batch.moved(data, 7), RECORDS),
        "Produce 8, bytes to messages, not decoded": (
            lambda: mapping.parse_request(0, 8, request_coder(0, 8).whole(sent)),
            RECORDS,
        ),
        "Fetch 11, messages to bytes, batch as kept": (
            lambda: response_coder(1, 11).encode(mapping.build_response(fetch, [stored], mapping.Serving("bench", {}))),
            RECORDS,
        ),
        "Fetch 11, bytes to decoded blocks": (
            lambda: fetched(response_coder(1, 11).whole(got)["responses"][0]["partitions"][0]["records"])[0].keys,
            RECORDS,
        ),
        "Heartbeat 3, request to frame": (
            lambda: encode_request(12, 3, 7, "client", mapping.build_request(heartbeat, 3)[1]),
            1,
        ),
        "Heartbeat 3, frame to request": (lambda: mapping.parse_request(12, 3, read_request(beat)[1]), 1),
        "Heartbeat 3, frame to response": (
            lambda: mapping.parse_response(heartbeat, 3, read_response(12, 3, beaten)[1]),
            1,
        ),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    print(machine())
    for name, (call, records) in cases().items():
        loops = 100 if records > 1 else 10_000
        median, spread = measured(call, runs, loops)
        unit = "ns a record" if records > 1 else "ns a message"
        print(f"{name:45} {median / records:9.1f} {unit}  (spread {spread:.0%})")


if __name__ == "__main__":
    main()
