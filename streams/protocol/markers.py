"""Markers: the records with which a transaction ends in a log (control batches of Kafka's protocol guide)."""

import struct

from streams.core.records import Block, ProducerStamp

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1


def marker(producer_id: int, epoch: int, *, is_commit: bool, timestamp_ms: int, coordinator_epoch: int = 0) -> Block:
    """Return the block that ends a producer's transaction."""
    return Block(
        [_KEY.pack(_VERSION, _COMMIT if is_commit else _ABORT)],
        [_VALUE.pack(_VERSION, coordinator_epoch)],
        [timestamp_ms],
        None,
        range(1),
        ProducerStamp(producer_id, epoch, -1, is_transactional=True, is_control=True),
    )


def is_commit_marker(block: Block) -> bool:
    """Whether a control block says that its transaction counts."""
    key = block.keys[0]
    return key is not None and len(key) >= _KEY.size and _KEY.unpack_from(key)[1] == _COMMIT
