"""Time to live of individual records.

A record of a topic with ``streams.record.ttl.ms`` expires when the broker time reaches the record
timestamp plus the time to live, which is the ``streams.ttl.ms`` header if present, or else the topic
setting.  Records with a time to live of -1 or without a timestamp never expire.  Expired records are
not returned.  They are removed by the next compaction, or by retention when no live record precedes
them.  Offsets do not change.  The functions receive the blocks and the current time as arguments.
"""

from collections.abc import Iterable
from typing import Final

from streams.broker.logs.storage import picked
from streams.core.blocks.records import Block, Headers
from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.markers import gap

#: Header with the time to live of a single record: milliseconds in decimal digits, -1 = unlimited.
TTL_HEADER: Final = "streams.ttl.ms"


def ttl_header(ttl_ms: int) -> tuple[str, bytes]:
    """Return the header that sets the time to live of a single record, in milliseconds (-1 = unlimited).

    >>> ttl_header(5000)
    ('streams.ttl.ms', b'5000')
    """
    if ttl_ms < -1:
        raise ValueError(f"time to live of {ttl_ms} ms: use -1 for no limit, or 0 or more")
    return TTL_HEADER, b"%d" % ttl_ms


def check_ttl(block: Block, place: object) -> None:
    """Check the time-to-live headers of the records in a block; ``place`` is named in error messages.

    Raises:
        BrokerError: a header value is not a number of milliseconds (``INVALID_RECORD``).
    """
    for headers in block.headers or ():
        for name, content in headers:
            if name == TTL_HEADER and _parsed(content) is None:
                raise BrokerError(
                    f"record for {place}: header {TTL_HEADER} is {content!r}; use decimal milliseconds, or -1",
                    code=ErrorCode.INVALID_RECORD,
                )


def expires_ms(timestamp_ms: int, headers: Headers, topic_ttl_ms: int) -> int | None:
    """Return the time in epoch milliseconds at which a record expires, or None if it never expires."""
    ttl_ms = topic_ttl_ms
    for name, content in headers:
        if name == TTL_HEADER:
            own = _parsed(content)
            ttl_ms = topic_ttl_ms if own is None else own
    return None if ttl_ms < 0 or timestamp_ms < 0 else timestamp_ms + ttl_ms


def live_indexes(block: Block, topic_ttl_ms: int, now_ms: int) -> list[int]:
    """Return the indexes of the records in a block that have not expired."""
    if block.headers is None:
        if topic_ttl_ms < 0:
            return list(range(len(block)))
        limit_ms = now_ms - topic_ttl_ms
        return [index for index, timestamp in enumerate(block.timestamps) if timestamp > limit_ms or timestamp < 0]
    live = []
    for index, (timestamp, headers) in enumerate(zip(block.timestamps, block.headers, strict=True)):
        due_ms = expires_ms(timestamp, headers, topic_ttl_ms)
        if due_ms is None or due_ms > now_ms:
            live.append(index)
    return live


def live(block: Block, topic_ttl_ms: int, now_ms: int) -> Block | None:
    """Return a block without its expired records, None if all have expired, or the same block if none has expired."""
    if block.producer is not None and block.producer.is_control:
        return block
    indexes = live_indexes(block, topic_ttl_ms, now_ms)
    if len(indexes) == len(block):
        return block
    return picked(block, indexes) if indexes else None


def without_expired(blocks: Iterable[Block], topic_ttl_ms: int, now_ms: int) -> list[Block]:
    """Return the blocks without expired records.

    Expired records at the end are replaced by a control record, so that readers advance.
    """
    result: list[Block] = []
    last_offset = next_offset = -1
    for block in blocks:
        last_offset = block.offsets[-1]
        live_block = live(block, topic_ttl_ms, now_ms)
        if live_block is not None:
            result.append(live_block)
            next_offset = live_block.offsets[-1]
    if last_offset > next_offset:
        result.append(gap(last_offset, now_ms))
    return result


def _parsed(content: bytes | None) -> int | None:
    try:
        ttl_ms = int(content or b"")
    except ValueError:
        return None
    return ttl_ms if ttl_ms >= -1 else None
