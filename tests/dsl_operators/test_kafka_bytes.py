"""Bytes that operators share with Kafka Streams, in stores and changelogs."""

from struct import pack

import pytest

from streams.core.blocks.records import RecordMetadata
from streams.core.errors import ForeignFormatError
from streams.core.serdes.serdes import LONG, STRING
from streams.dsl.processing import SUPPRESSED_CHANGE, WAITING_RECORD, buffer_spec, unmatched_store

ORDERS = RecordMetadata("orders", 2, 7)
CONTEXT = pack(">qqi", 5, 7, 6) + b"orders"
PLAIN = CONTEXT + pack(">ii", 2, 0)
WITH_HEADERS = CONTEXT + pack(">iii", 2, 2, 1) + b"a" + pack(">i", 1) + b"x" + pack(">i", 1) + b"b" + pack(">i", -1)
ONE, TWO = pack(">q", 1), pack(">q", 2)

CHANGES = [
    # Nothing was emitted before.
    ((ORDERS, 9, 5, None, None, None, 1), PLAIN + pack(">iii", -1, -1, 8) + ONE + pack(">q", 9)),
    # The old value is that which was emitted last; a deletion.
    ((ORDERS, 9, 5, None, 1, 1, None), PLAIN + pack(">i", 8) + ONE + pack(">ii", -2, -1) + pack(">q", 9)),
    (
        (ORDERS, 9, 5, (("a", b"x"), ("b", None)), None, 1, 2),
        WITH_HEADERS + pack(">ii", -1, 8) + ONE + pack(">i", 8) + TWO + pack(">q", 9),
    ),
    # A record of a punctuation is of no topic.
    ((None, 9, 5, None, None, None, 1), pack(">qqiiiiii", 5, -1, 0, -1, 0, -1, -1, 8) + ONE + pack(">q", 9)),
]


@pytest.mark.parametrize(("row", "data"), CHANGES)
def test_a_buffered_record_has_the_bytes_of_kafka_streams(row, data):
    serde = buffer_spec("held", SUPPRESSED_CHANGE, STRING, LONG).value_serde

    assert serde.serialize(row) == data
    assert serde.deserialize(data) == row


def test_a_record_context_of_before_there_were_headers_has_none():
    serde = buffer_spec("held", WAITING_RECORD, STRING, LONG).value_serde
    data = CONTEXT + pack(">iiiii", 2, -1, -1, -1, 8) + ONE + pack(">q", 0)

    assert serde.deserialize(data) == (ORDERS, 0, 5, None, None, None, 1)


@pytest.mark.parametrize(
    "data", [b"", b"\xf5S\x01" + bytes(60), CHANGES[0][1][:-1], CHANGES[0][1] + b"\0", CHANGES[0][1][8:]]
)
def test_other_bytes_are_no_buffered_record(data):
    with pytest.raises(ForeignFormatError, match="no suppressed change as Kafka Streams writes it"):
        buffer_spec("held", SUPPRESSED_CHANGE, STRING, LONG).value_serde.deserialize(data)


@pytest.mark.parametrize(
    ("row", "data"),
    [
        ((1, "ab"), pack(">biiB", 1, 1, 3, 1) + b"ab"),
        ((0, 1, 2), pack(">biiB", 1, 2, 9, 0) + ONE + pack(">iB", 9, 0) + TWO),
    ],
)
def test_records_without_a_partner_have_the_bytes_of_kafka_streams(row, data):
    serde = unmatched_store("pairs", STRING, STRING, LONG).value_serde

    assert serde.serialize(row) == data
    assert serde.deserialize(data) == row


@pytest.mark.parametrize(
    "data",
    [
        b"",
        # A value of its own, as nobody writes it, and the former layout of this library.
        b"\x01ab",
        b"\xf5U\x01\x01" + pack(">i", 2) + b"ab",
        pack(">biiB", 1, 1, 4, 1) + b"ab",
        pack(">biiB", 1, 1, 2, 1) + b"ab",
        pack(">biiB", 0, 1, 3, 1) + b"ab",
        pack(">biiB", 1, 1, 3, 2) + b"ab",
        pack(">bi", 1, 0),
        # Values of both sides.
        pack(">biiB", 1, 2, 1, 1) + pack(">iB", 1, 0),
    ],
)
def test_other_bytes_are_no_records_without_a_partner(data):
    with pytest.raises(ForeignFormatError, match="no record without a partner as Kafka Streams writes it"):
        unmatched_store("pairs", STRING, STRING, LONG).value_serde.deserialize(data)
