"""Changelog records of ``suppress`` as releases of Kafka Streams before 2.5.1 wrote them, by their bytes."""

from struct import pack

import pytest

from streams import TopicPartition
from streams.core.blocks.records import Block, RecordMetadata
from streams.dsl.processing import buffer_upgrades
from streams.dsl.processing.buffered import parsed, written

AT = TopicPartition("app-held-store-changelog", 2)
KEY = b"ann"
#: Context of the input record: time, offset, topic, partition, one header.
CONTEXT = pack(">qqi", 70, 9, 6) + b"orders" + pack(">ii", 1, 1) + pack(">i", 1) + b"h" + pack(">i", -1)
ORIGIN = RecordMetadata("orders", 1, 9)


def sized(data: bytes | None) -> bytes:
    return pack(">i", -1) if data is None else pack(">i", len(data)) + data


def change(old: bytes | None, new: bytes | None) -> bytes:
    """Old and new value in one array, as FullChangeSerde once wrote them."""
    return sized(old) + sized(new)


def upgraded(*records, begin=40):
    """The rows of records, each (key, value, version or None)."""
    keys, values, versions = zip(*records, strict=True)
    headers = [() if version is None else (("v", version),) for version in versions]
    block = Block(list(keys), list(values), [50] * len(records), headers, range(begin, begin + len(records)))
    return buffer_upgrades(AT)(block).values


def test_version_0_has_the_place_of_its_changelog_record():
    (value,) = upgraded((KEY, pack(">q", 60) + change(b"1", b"2"), None))

    assert parsed(value) == (RecordMetadata(*AT, 40), 60, 50, None, b"1", b"1", b"2")


def test_version_1_has_the_context_of_the_input():
    (value,) = upgraded((KEY, pack(">q", 60) + CONTEXT + sized(change(None, b"2")), b"\x01"))

    assert parsed(value) == (ORIGIN, 60, 70, (("h", None),), None, None, b"2")


def test_version_2_has_the_value_before_the_first_change():
    (value,) = upgraded((KEY, CONTEXT + sized(change(b"1", b"2")) + sized(b"0") + pack(">q", 60), b"\x02"))

    assert parsed(value) == (ORIGIN, 60, 70, (("h", None),), b"0", b"1", b"2")


def test_the_present_layout_stays_also_where_it_was_named_2():
    value = written((ORIGIN, 60, 70, None, b"0", b"1", b"2"))

    assert upgraded((KEY, value, b"\x03"), (b"bob", value, b"\x02")) == [value, value]


def test_the_first_old_value_of_a_key_is_that_before_all_its_changes():
    """Until it is evicted, which is a deletion."""
    first, second = (pack(">q", 60) + change(*values) for values in ((b"1", b"2"), (b"2", b"3")))

    values = upgraded((KEY, first, None), (KEY, second, None), (KEY, None, None), (KEY, second, None))

    assert [None if value is None else parsed(value)[4] for value in values] == [b"1", b"1", None, b"2"]


@pytest.mark.parametrize("version", [None, b"\x01", b"\x02", b"\x04"])
@pytest.mark.parametrize("data", [b"", b"short", pack(">q", 60) + change(b"1", b"2") + b"more"])
def test_other_bytes_stay_as_they_are_and_are_refused_later(version, data):
    assert upgraded((KEY, data, version)) == [data]
