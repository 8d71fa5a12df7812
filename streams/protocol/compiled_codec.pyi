from collections.abc import Sequence

from streams.core.records import Block
from streams.protocol.plain_codec import Columns

def encode_records(block: Block, base_timestamp: int, deltas: Sequence[int]) -> bytes: ...
def decode_records(data: bytes, count: int, base_timestamp: int) -> Columns: ...
