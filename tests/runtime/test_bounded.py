"""Bounded runs: their ends, and what must not stand in their way."""

from collections.abc import Iterator

from streams import StreamsBuilder, Topic
from streams.bounded import run_bounded
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import Block

orders = Topic("orders", key=str, value=str)
customers = Topic("customers", key=str, value=int)
billed = Topic("billed", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    customer = builder.table(customers)
    (
        builder.table(orders)
        .join(customer, lambda order, rate: rate, foreign_key=lambda key, name: name, store="billed", value=int)
        .to_stream()
        .to(billed)
    )


def test_cycle_whose_queues_are_full_goes_on():
    """Each change of a customer sends more answers around the cycle than a task buffers."""
    names = [f"order-{number}".encode() for number in range(50)]
    rows = {
        "orders": Block(names, [b"ann"] * 50, list(range(50)), None, range(50)),
        "customers": Block(
            [b"ann"] * 3, [customers.value_serde.serialize(rate) for rate in (7, 8, 9)], [100, 200, 300], None, range(3)
        ),
    }

    def reader(topic: str):
        def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
            yield [(0, rows[topic])]

        return read

    with run_bounded(
        topology,
        {topic: reader(topic) for topic in rows},
        application_id="app",
        settings={"buffered_records_per_partition": 1, "max_poll_records": 5},
    ) as finished:
        written = [
            (billed.key_serde.deserialize(key), billed.value_serde.deserialize(value), time)
            for _, block in finished.read_output("billed")
            for key, value, time in zip(block.keys, block.values, block.timestamps, strict=True)
        ]

    assert len(written) == 150
    assert {(value, time) for _, value, time in written[-50:]} == {(9, 300)}


def test_cycle_ends_after_what_its_caches_give_out():
    """The rows wait in the record cache until the input has ended, and then go around the cycle."""
    keys = [b"ann", b"bob", b"cid", b"dan"]

    def read(rows: Block):
        def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
            for number in range(count):
                mine = [index for index, key in enumerate(rows.keys) if partition_for(key, count) == number]
                columns = [[column[index] for index in mine] for column in (rows.keys, rows.values, rows.timestamps)]
                yield [(number, Block(*columns, None, range(len(mine))))] if mine else []

        return read

    rates = [customers.value_serde.serialize(rate) for rate in range(4)]
    inputs = {
        "orders": read(Block(keys, keys[::-1], [0, 1, 2, 3], None, range(4))),
        "customers": read(Block(keys, rates, [10, 11, 12, 13], None, range(4))),
    }
    with run_bounded(
        topology, inputs, application_id="app", partitions=3, settings={"cache_max_bytes": 1_000_000}
    ) as finished:
        written = {
            billed.key_serde.deserialize(key): billed.value_serde.deserialize(value)
            for _, block in finished.read_output("billed")
            for key, value in zip(block.keys, block.values, strict=True)
        }

    assert written == {"ann": 3, "bob": 2, "cid": 1, "dan": 0}


def test_global_table_is_filled_before_the_first_record_is_joined():
    """However long its file is: otherwise what is joined would depend on who reads faster."""
    size = 50_000

    def topology(builder: StreamsBuilder) -> None:
        rates = builder.global_table(customers)
        builder.stream(orders).join(rates, lambda order, rate: rate, key=lambda key, name: name).to(billed)

    def read_orders(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        yield [(0, Block([b"first"], [f"c{size - 1}".encode()], [0], None, range(1)))]

    def read_customers(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        for start in range(0, size, 500):
            keys = [f"c{number}".encode() for number in range(start, start + 500)]
            values = [customers.value_serde.serialize(number) for number in range(start, start + 500)]
            yield [(0, Block(keys, values, [start] * 500, None, range(500)))]

    inputs = {"orders": read_orders, "customers": read_customers}
    seen = []
    with run_bounded(topology, inputs, application_id="app", progress=seen.append) as finished:
        values = [value for _, block in finished.read_output("billed") for value in block.values]

    assert values == [billed.value_serde.serialize(size - 1)]
    assert (seen[-1].records_in, seen[-1].records_total) == (1, 1)


def test_progress_counts_what_comes_out_without_repartition_topics():
    """A record that was written to a repartition topic and then to an output was told as two."""

    def topology(builder: StreamsBuilder) -> None:
        words = builder.stream("words", key=bytes, value=str)
        words.group_by(lambda _, word: word).count("counts").to_stream().to("out")

    def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        yield [(0, Block([b""] * 3, [b"a", b"b", b"a"], [0, 1, 2], None, range(3)))]

    seen = []
    run_bounded(topology, {"words": read}, application_id="app", progress=seen.append).close()

    assert (seen[-1].records_in, seen[-1].records_out) == (3, 3)
