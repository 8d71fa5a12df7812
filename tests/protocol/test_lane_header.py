"""Lanes and places of records on the wire: one header on the first record of a batch, which nobody else sees."""

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.broker import EmbeddedBroker
from streams.core.blocks.records import NO_LANE, NO_TIMESTAMP, Block, Headers, Lanes, TopicPartition
from streams.protocol import batch
from streams.protocol.lane_header import LANE_HEADER


def block_of(
    times: Sequence[int], lanes: Sequence[int] | None, places: Sequence[int] = (), headers: list[Headers] | None = None
) -> Block:
    count = len(times)
    rows = None if lanes is None else Lanes(lanes, places)
    return Block([b"k"] * count, [b"v"] * count, times, headers, range(count), lanes=rows)


def rows_of(block: Block) -> list[tuple[int, int]]:
    rows = Lanes.of(block)
    return list(zip(rows.lanes, rows.places, strict=True))


times = st.integers(0, 2**48)
row = st.tuples(times, st.integers(0, 5), times, st.sampled_from([(), (("name", b"x"),), (("a", None), ("b", b""))]))


@given(st.lists(row, min_size=1, max_size=40), st.integers(0, 40))
def test_lanes_come_back_and_the_headers_of_users_stay(rows: list[tuple[int, int, int, Headers]], cut: int) -> None:
    event_times, lanes, places, headers = (list(column) for column in zip(*rows, strict=True))
    block = block_of(event_times, lanes, places, headers if any(headers) else None)

    for part in (block, block.slice(0, cut), block.slice(cut)):
        if len(part):
            decoded = batch.decode(batch.encode(part, 0))
            assert rows_of(decoded) == rows_of(part)
            assert decoded.headers == (None if part.headers is None or not any(part.headers) else list(part.headers))


def test_places_in_order_of_time_need_no_bytes() -> None:
    """Four records of one lane in order: the header has its name, a version and three numbers."""
    event_times = [10, 30, 20, 40]
    plain = batch.encode(block_of(event_times, None), 0)
    laned = batch.encode(block_of(event_times, [3] * 4, list(accumulate(event_times, max))), 0)

    assert len(laned) - len(plain) == len(LANE_HEADER) + 6


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"\x02\x02\x00\x00",
        pytest.param(b"\x01\x04\x00\x00", id="two records"),
        pytest.param(b"\x01\x02\x00", id="cut"),
        pytest.param(b"\x01\x01\x00\x00", id="negative"),
    ],
)
def test_a_header_that_does_not_match_its_batch_stays_a_header(content: bytes | None) -> None:
    """A tool has copied the first record of a batch into another one."""
    block = block_of([1], None, headers=[((LANE_HEADER, content),)])

    decoded = batch.decode(batch.encode(block, 0))

    assert decoded.lanes is None
    assert decoded.headers == [((LANE_HEADER, content),)]


@pytest.mark.parametrize("storage", ["array", "file"])
@pytest.mark.parametrize("sizes", [[1, 2, 1], [300, 2, 400]])
def test_a_log_keeps_lanes_beside_records_without(storage: str, sizes: list[int], tmp_path: object) -> None:
    partition = TopicPartition("grouped-repartition", 0)
    with EmbeddedBroker(tmp_path if storage == "file" else None) as broker:  # type: ignore[arg-type]
        broker.create_topic(partition.topic, 1)
        sent: list[tuple[int, int]] = []
        for number, size in enumerate(sizes):
            lanes = None if number == 1 else [number] * size
            block = block_of(list(range(size)), lanes, [7 + number] * size)
            sent += rows_of(block)
            broker.append(partition, block)

        blocks = broker.read(partition, 0, 10_000)

        assert [row for block in blocks for row in rows_of(block)] == sent
        middle = broker.read(partition, sizes[0], sizes[1])
        assert [row for block in middle for row in rows_of(block)][: sizes[1]] == [(NO_LANE, NO_TIMESTAMP)] * sizes[1]
