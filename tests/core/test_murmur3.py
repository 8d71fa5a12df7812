"""The 128-bit murmur3 hash, with the seed of Kafka Streams."""

import pytest

from streams.core.blocks.murmur3 import hash128


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"", "9d2764a018e329428c3cf3b035938518"),
        (b"a", "3361634e7e0f5188e9c7dda24eae326b"),
        (b"foobar", "e545263cde70bba21e8c9e2fc5c7ed4e"),
        (b"12345678", "ddec8f9026074d665e35523e4a34fe8c"),
        (b"123456789", "5a3e531c14a5f700faf8cf22625f37e7"),
        (b"0123456789abcdef", "1a6e941ec6a76967d7d82808f505d6b1"),
        (b"a-little-bit-longer-string", "81a5a6561e85ba630aacc70b39c2bb10"),
        (bytes(range(200, 256)), "8882fb409edfc10c7293d281a1b7e02c"),
    ],
)
def test_hashes_are_those_of_kafka_streams(data: bytes, hashed: str) -> None:
    """Reference values of the published algorithm (x64, 128 bits), seed 104729."""
    assert hash128(data).hex() == hashed
