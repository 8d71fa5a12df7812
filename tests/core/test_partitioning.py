"""Murmur2 and the default partitioner agree with Java's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks import partitioning
from streams.core.blocks.partitioning import KEY_HASHES, fnv1a, murmur2, partition_for, partitions_for

# Key in hex, signed murmur2, partition of 10, partition of 100.
VECTORS = [
    ("", 275646681, 1, 81),
    ("6162", 316155434, 4, 34),
    ("61626364", -1323649548, 0, 0),
    ("3231", -973932308, 0, 40),
    ("612d6c6974746c652d6269742d6c6f6e672d737472696e67", -985981536, 2, 12),
    ("c3a9", 186971271, 1, 71),
    ("ffffffff", 644171429, 9, 29),
    ("0000000000000005", -1413176296, 2, 52),
    ("b2e6ca118c5f118f5757a1f633ec2123", -2118400039, 9, 9),
    ("ad4e075e7b1344d2c4f4f71d442d2fdde3a25a8b902634943c31eaa1381221391718", -56566224, 4, 24),
    ("bcf4351614ec40c1f35421af11ec2035d3faab3e72ce6cbd2e3f822eb5", 699374983, 3, 83),
]


@pytest.mark.parametrize(("key_hex", "hashed", "of_10", "of_100"), VECTORS)
def test_hash_and_partition_are_those_of_the_reference(key_hex: str, hashed: int, of_10: int, of_100: int) -> None:
    key = bytes.fromhex(key_hex)

    assert murmur2(key) == hashed
    assert (partition_for(key, 10), partition_for(key, 100)) == (of_10, of_100)
    assert partitions_for([key, key], 100) == [of_100, of_100]


def slow_murmur2(data: bytes) -> int:
    """Byte by byte, as the algorithm is usually written down."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    hashed = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * m & mask
        word = (word ^ (word >> 24)) * m & mask
        hashed = (hashed * m & mask) ^ word
    for place in reversed(range(len(data) - whole)):
        hashed ^= data[whole + place] << (8 * place)
        if place == 0:
            hashed = hashed * m & mask
    hashed = (hashed ^ (hashed >> 13)) * m & mask
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >= 1 << 31 else hashed


@given(st.binary(max_size=600))
def test_hash_is_that_of_the_plain_algorithm(data: bytes) -> None:
    assert murmur2(data) == slow_murmur2(data)


@given(st.lists(st.binary(max_size=300)), st.integers(1, 1000))
def test_block_form_is_the_single_form(keys: list[bytes], partitions: int) -> None:
    assert partitions_for(keys, partitions) == [(murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert partitions_for(keys, partitions) == [partition_for(key, partitions) for key in keys]


@given(st.lists(st.binary(max_size=30)), st.integers(1, 50), st.integers(0, 16))
def test_end_of_a_key_may_have_no_influence(keys: list[bytes], partitions: int, suffix: int) -> None:
    windowed = [key + bytes(suffix) for key in keys]

    assert partitions_for(windowed, partitions, suffix) == partitions_for(keys, partitions)


def test_memo_is_bounded_in_entries_and_key_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "_MEMO_LIMIT", 10)
    memo = partitioning._Memo()
    monkeypatch.setattr(partitioning, "_memo", memo)

    partitions_for([str(number).encode() for number in range(100)] + [bytes(10_000)], 7)

    assert len(memo) <= 10
    assert bytes(10_000) not in memo


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(2, 50))
def test_compiled_and_plain_partitioner_agree(keys: list[bytes], partitions: int) -> None:
    compiled = pytest.importorskip("streams.core.blocks.compiled_partitioning", reason="installed without a C compiler")

    assert compiled.partitions_for(keys, partitions) == partitioning.plain_partitions_for(keys, partitions)
    assert partitions_for(keys, partitions) == [murmur2(key) % 2**31 % partitions for key in keys]


#: Keys with their hashes, as librdkafka's tests have them (0048-partitioner.c, rdfnv1a.c): CRC32 by the ``crc32``
#: command, murmur2 by Java, FNV-1a by Go's hash/fnv with the sign removed as sarama does.
LIBRDKAFKA = [
    (b"23456", 0x058D780F, 0xB1B451D7, 0x27E6F469),
    (b"this is another string with more length to it perhaps", 0x4F7703DA, 0xB0150DF7, 0x155E3E5F),
    (b"hejsan", 0x5EC19395, 0xD077037E, 0x17B1E27A),
    (b"", 0x106E08D9, 0, 0x7EE3623B),
]


@pytest.mark.parametrize(("key", "murmur2_hash", "crc32_hash", "fnv1a_hash"), LIBRDKAFKA)
def test_hashes_of_other_clients_are_those_of_librdkafka(
    key: bytes, murmur2_hash: int, crc32_hash: int, fnv1a_hash: int
) -> None:
    by_name = {found.name: found.of(key) for found in KEY_HASHES}

    assert (by_name["murmur2"], by_name["CRC32"], by_name["FNV-1a"]) == (murmur2_hash, crc32_hash, fnv1a_hash)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [(b"kafka", 0xD33C4E1), (b"giberish123456789", 0x77A58295), (b"1234", 0x23BDD03), (b"234", 0x2DEA3CD2)],
)
def test_sign_of_fnv1a_is_removed_as_sarama_does(key: bytes, hashed: int) -> None:
    (absolute,) = (found for found in KEY_HASHES if found.name == "FNV-1a")

    assert absolute.of(key) == hashed
    assert absolute.of(key) in (fnv1a(key), 2**32 - fnv1a(key))


@pytest.mark.parametrize(
    ("key", "partitions", "partition"), [(b"blah", 2, 0), (b"blah", 3, 1), (b"boop", 3, 2), (b"20", 16, 1)]
)
def test_partitions_by_fnv1a_are_those_of_kafka_go(key: bytes, partitions: int, partition: int) -> None:
    (absolute,) = (found for found in KEY_HASHES if found.name == "FNV-1a")

    assert absolute.of(key) % partitions == partition
