"""Murmur2 and the default partitioner agree with Java's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core import partitioning
from streams.core.partitioning import murmur2, partition_for, partitions_for

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


def test_memo_is_bounded_in_entries_and_key_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "_MEMO_LIMIT", 10)
    memo = partitioning._Memo()
    monkeypatch.setattr(partitioning, "_memo", memo)

    partitions_for([str(number).encode() for number in range(100)] + [bytes(10_000)], 7)

    assert len(memo) <= 10
    assert bytes(10_000) not in memo


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(2, 50))
def test_compiled_and_plain_partitioner_agree(keys: list[bytes], partitions: int) -> None:
    compiled = pytest.importorskip("streams.core.compiled_partitioning", reason="installed without a C compiler")

    assert compiled.partitions_for(keys, partitions) == partitioning.plain_partitions_for(keys, partitions)
    assert partitions_for(keys, partitions) == [murmur2(key) % 2**31 % partitions for key in keys]
