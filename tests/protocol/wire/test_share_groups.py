"""Records of a share group on their way from the broker to the client."""

from streams.core.records import Block
from streams.protocol.error_codes import ErrorCode
from streams.protocol.share_group_messages import (
    AcquiredRecords,
    SharedPartition,
    ShareFetch,
    ShareFetchResponse,
    TopicIdPartition,
)
from streams.protocol.wire import mapping, request_coder, response_coder

_ONE = TopicIdPartition(b"1" * 16, 0)


def test_records_arrive_with_what_is_acquired_of_them():
    """The batch is whole, and the client keeps to the acquired ranges."""
    block = Block([b"k"] * 4, [b"a", b"b", b"c", b"d"], [1] * 4, offsets=range(10, 14))
    acquired = (AcquiredRecords(10, 10, 1), AcquiredRecords(12, 13, 2))
    request = ShareFetch("g", "m", 0, 500, 1, 1 << 20, 10, 10, partitions={_ONE: ()})
    key, fields = mapping.build_request(request, 2)
    incoming = mapping.parse_request(key, 2, request_coder(key, 2).whole(request_coder(key, 2).to_bytes(fields)))
    sent = ShareFetchResponse(ErrorCode.NONE, "", 1, {_ONE: SharedPartition(blocks=(block,), acquired=acquired)})

    answer = response_coder(key, 2).to_bytes(mapping.build_response(incoming, [sent], None))
    found = mapping.parse_response(request, 2, response_coder(key, 2).whole(answer)).partitions[_ONE]

    assert found.acquired == acquired
    assert [list(one.values) for one in found.blocks] == [[b"a", b"b", b"c", b"d"]]
    assert [list(one.offsets) for one in found.blocks] == [[10, 11, 12, 13]]
