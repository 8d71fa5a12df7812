"""Records of the ``__share_group_state`` log, in Kafka's format (ShareSnapshot, ShareUpdate; KIP-932, KIP-1226).

A snapshot has the whole state of a share partition, an update what has changed since.  An update must not be taken for
the one before it, so the log is not compacted: what lies before the oldest last snapshot is deleted.  No I/O.
"""

from collections.abc import Iterable
from typing import NamedTuple

from attrs import define

from streams.broker.shares.partition import SharePartition, StateBatch
from streams.group.record_coding import decoded, encoded
from streams.group.wire import Reader, Writer
from streams.protocol.wire import INT8, INT16, INT32, INT64, Field, Fields, Message, array

_SNAPSHOT, _UPDATE = 0, 1
#: Updates until the next snapshot (Kafka's ``share.coordinator.snapshot.update.records.per.snapshot``).
UPDATES_PER_SNAPSHOT = 500
#: Records behind a snapshot after which it is written again, so that the log before it can be deleted.
RECORDS_BEHIND_SNAPSHOT = 10_000

_BATCHES = array(
    "state_batches",
    Field("first_offset", INT64),
    Field("last_offset", INT64),
    Field("delivery_state", INT8),
    Field("delivery_count", INT16),
)
_DONE = Field("delivery_complete_count", INT32, default=-1, tag=0)
_SNAPSHOT_VALUE = Message(
    "ShareSnapshotValue",
    0,
    (
        Field("snapshot_epoch", INT32),
        Field("state_epoch", INT32),
        Field("leader_epoch", INT32),
        Field("start_offset", INT64),
        _DONE,
        Field("create_timestamp", INT64),
        Field("write_timestamp", INT64),
        _BATCHES,
    ),
)
_UPDATE_VALUE = Message(
    "ShareUpdateValue",
    0,
    (
        Field("snapshot_epoch", INT32),
        Field("leader_epoch", INT32),
        Field("start_offset", INT64),
        _DONE,
        _BATCHES,
    ),
)


class ShareKey(NamedTuple):
    """A share partition: a partition as one group reads it."""

    group_id: str
    topic_id: bytes
    partition: int


@define(eq=False)
class StoredShare:
    """A share partition with what its records in the log need.

    ``start_offset`` of ``state`` is the group's start in the partition; ``snapshot_offset`` is where the last
    snapshot is in the log.
    """

    state: SharePartition
    #: Rises with each alteration of the offsets.
    state_epoch: int = 0
    snapshot_epoch: int = -1
    snapshot_offset: int = -1
    updates: int = 0
    created_ms: int = 0


@define(eq=False)
class _Loading:
    snapshot: Fields
    offset: int
    batches: list[StateBatch]
    start_offset: int
    updates: int = 0


def key_bytes(key: ShareKey, *, is_update: bool = False) -> bytes:
    """Return the key of a share partition's snapshots or updates."""
    writer = Writer().int16(_UPDATE if is_update else _SNAPSHOT).string(key.group_id)
    return writer.finish() + key.topic_id + Writer().int32(key.partition).finish()


def snapshot_value(share: StoredShare, wall_ms: int) -> bytes:
    """Return the value of a snapshot."""
    fields = {
        "state_epoch": share.state_epoch,
        "create_timestamp": share.created_ms,
        "write_timestamp": wall_ms,
    }
    return encoded(_SNAPSHOT_VALUE, fields | _common(share, share.state.batches()))


def update_value(share: StoredShare, changed: Iterable[StateBatch]) -> bytes:
    """Return the value of an update."""
    return encoded(_UPDATE_VALUE, _common(share, changed))


def _common(share: StoredShare, batches: Iterable[StateBatch]) -> Fields:
    return {
        "snapshot_epoch": share.snapshot_epoch,
        "leader_epoch": 0,
        "start_offset": share.state.start_offset,
        "delivery_complete_count": share.state.done,
        "state_batches": [batch._asdict() for batch in batches],
    }


def read_key(data: bytes) -> tuple[ShareKey, bool] | None:
    """Decode a key: the share partition, and whether the record is an update; None if it is another record."""
    reader = Reader(data)
    version = reader.int16()
    if version not in (_SNAPSHOT, _UPDATE):
        return None
    group_id = reader.string()
    place = data[-20:]
    return ShareKey(group_id, place[:16], int.from_bytes(place[16:], "big")), version == _UPDATE


def loaded(rows: Iterable[tuple[int, bytes, bytes | None]]) -> dict[ShareKey, StoredShare]:
    """Return the share partitions by the (offset, key, value) of the log, the one with the oldest snapshot first."""
    found: dict[ShareKey, _Loading] = {}
    for offset, key_data, value in rows:
        read = read_key(key_data)
        if read is None:
            continue
        key, is_update = read
        if value is None:
            found.pop(key, None)
        elif not is_update:
            found.pop(key, None)
            fields = decoded(_SNAPSHOT_VALUE, value)
            found[key] = _Loading(fields, offset, _batches(fields), fields["start_offset"])
        elif (known := found.get(key)) is not None:
            fields = decoded(_UPDATE_VALUE, value)
            if fields["snapshot_epoch"] == known.snapshot["snapshot_epoch"]:
                known.batches += _batches(fields)
                known.start_offset = max(known.start_offset, fields["start_offset"])
                known.updates += 1
    return {key: _share(loading) for key, loading in found.items()}


def _share(loading: _Loading) -> StoredShare:
    fields = loading.snapshot
    return StoredShare(
        SharePartition.of(loading.start_offset, loading.batches),
        fields["state_epoch"],
        fields["snapshot_epoch"],
        loading.offset,
        loading.updates,
        fields["create_timestamp"],
    )


def _batches(fields: Fields) -> list[StateBatch]:
    return [
        StateBatch(row["first_offset"], row["last_offset"], row["delivery_state"], row["delivery_count"])
        for row in fields["state_batches"]
    ]
