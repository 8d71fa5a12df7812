"""Control records: transaction markers (see Kafka's protocol guide), and gap records, which stand in for
removed records.

Readers do not return either kind of record to the application.
"""

import struct
from typing import Final

from streams.core.blocks.records import NO_TIMESTAMP, Block, ProducerStamp

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_ABORT = 0
_COMMIT = 1

# A control record of an unknown type, which every reader skips (``ControlRecordType.UNKNOWN``).
_GAP_KEY: Final = b"\x00\x00\x7f\xff"
_NOBODY: Final = ProducerStamp(-1, -1, is_control=True)


def marker(producer_id: int, epoch: int, *, is_commit: bool, timestamp_ms: int, coordinator_epoch: int = 0) -> Block:
    """Return the block with the control record (commit or abort marker) that ends a producer's transaction."""
    return Block(
        [_KEY.pack(_VERSION, _COMMIT if is_commit else _ABORT)],
        [_VALUE.pack(_VERSION, coordinator_epoch)],
        [timestamp_ms],
        None,
        range(1),
        ProducerStamp(producer_id, epoch, -1, is_transactional=True, is_control=True),
    )


def is_commit_marker(block: Block) -> bool:
    """Whether the first record of a control block is a commit marker, which commits a transaction."""
    key = block.keys[0]
    return key is not None and len(key) >= _KEY.size and _KEY.unpack_from(key)[1] == _COMMIT


def gap(last_offset: int, timestamp_ms: int = NO_TIMESTAMP) -> Block:
    """Return the control record that replaces removed records up to ``last_offset``, so that readers can skip them."""
    return Block([_GAP_KEY], [None], [timestamp_ms], None, range(last_offset, last_offset + 1), _NOBODY)
