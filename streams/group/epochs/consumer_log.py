"""Records of consumer groups in the ``__consumer_offsets`` log, in Kafka's format (KIP-848).  No I/O."""

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from streams.group.state.consumer_group import ConsumerGroup, ConsumerGroupMember, Places
from streams.group.state.epoch_log import (
    ASSIGNMENT_EPOCH,
    EPOCH,
    REBALANCE_TIMEOUT,
    WHO,
    Column,
    GroupLog,
    GroupRecord,
    progress,
    record,
)
from streams.protocol.schema import INT32, STRING, UUID, Field, Fields, Message, array


def _rows_of(places: Places) -> list[Fields]:
    """Return partitions as the rows of a record: one for each topic ID."""
    return [
        {"topic_id": topic_id, "partitions": [number for _, number in of_topic]}
        for topic_id, of_topic in groupby(sorted(places), key=lambda place: place[0])
    ]


def _places_of(rows: Iterable[Fields]) -> Places:
    return frozenset((row["topic_id"], number) for row in rows for number in row["partitions"])


def _partitions(name: str) -> Field:
    return array(name, Field("topic_id", UUID), array("partitions", INT32))


CONSUMER_LOG: Final = GroupLog(
    ConsumerGroup,
    ConsumerGroupMember,
    group=record(3, "ConsumerGroupMetadataValue", EPOCH),
    target=record(6, "ConsumerGroupTargetAssignmentMetadataValue", ASSIGNMENT_EPOCH),
    member=record(
        5,
        "ConsumerGroupMemberMetadataValue",
        *WHO,
        Column(array("subscribed_topic_names", STRING), "topics", sorted, frozenset),
        Column(Field("subscribed_topic_regex", STRING, nullable=0), "topic_regex"),
        REBALANCE_TIMEOUT,
        Column(Field("server_assignor", STRING, nullable=0), "server_assignor"),
    ),
    current=record(
        8,
        "ConsumerGroupCurrentMemberAssignmentValue",
        *progress(0),
        Column(_partitions("assigned_partitions"), "assigned", _rows_of, _places_of),
        Column(_partitions("partitions_pending_revocation"), "revoking", _rows_of, _places_of),
    ),
    target_member=GroupRecord(
        7,
        Message("ConsumerGroupTargetAssignmentMemberValue", 0, (_partitions("topic_partitions"),)),
        lambda places: {"topic_partitions": _rows_of(places)},
        lambda fields: {"target": _places_of(fields["topic_partitions"])},
    ),
)
