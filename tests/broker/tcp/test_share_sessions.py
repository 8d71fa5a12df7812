"""A share session belongs to the connection whose fetch began it (KIP-932); other connections may use it."""

import pytest

from streams.clients import Admin
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import INITIAL_EPOCH
from tests import waiting
from tests.broker.tcp.by_hand import Client

HEARTBEAT, FETCH, ACKNOWLEDGE, RELEASE = 76, 78, 79, 2
#: An epoch that no session here comes to; a session that there is remains as it is.
_WRONG = 99


def share_fetch(client: Client, topic_id: bytes, member: str, epoch: int) -> dict:
    partitions = [{"partition_index": 0, "acknowledgement_batches": []}] if epoch == INITIAL_EPOCH else []
    return client.call(
        FETCH,
        1,
        group_id="workers",
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=1,
        max_records=500,
        batch_size=500,
        topics=[{"topic_id": topic_id, "partitions": partitions}] if partitions else [],
        forgotten_topics_data=[],
    )


def acquired(response: dict) -> list[tuple[int, int, int]]:
    return [
        (row["first_offset"], row["last_offset"], row["delivery_count"])
        for topic in response["responses"]
        for partition in topic["partitions"]
        for row in partition["acquired_records"]
    ]


@pytest.fixture
def topic_id(broker) -> bytes:
    with Admin(broker) as admin:
        admin.alter_group_configs("workers", {"share.auto.offset.reset": "earliest"})
        return admin.describe_topics(["words"])["words"].topic_id


def join(client: Client, member: str) -> None:
    joined = client.call(
        HEARTBEAT, 1, group_id="workers", member_id=member, member_epoch=0, subscribed_topic_names=["words"]
    )
    assert joined["error_code"] == ErrorCode.NONE


def test_the_end_of_another_connection_leaves_a_share_session(client, connect, topic_id):
    client.produce("words", b"a", b"b")
    join(client, "first")
    assert acquired(share_fetch(client, topic_id, "first", INITIAL_EPOCH)) == [(0, 1, 1)]
    other = connect()
    join(other, "its own")
    share_fetch(other, topic_id, "its own", INITIAL_EPOCH)
    batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [RELEASE]}]
    topics = [{"topic_id": topic_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": batches}]}]
    given_back = other.call(ACKNOWLEDGE, 1, group_id="workers", member_id="first", share_session_epoch=1, topics=topics)
    assert given_back["error_code"] == ErrorCode.NONE

    other.socket.close()

    ended = ErrorCode.SHARE_SESSION_NOT_FOUND
    waiting.until(lambda: share_fetch(client, topic_id, "its own", _WRONG)["error_code"] == ended)
    # What the session has locked stays locked, and its next epoch is known.
    assert acquired(share_fetch(client, topic_id, "first", 2)) == [(0, 0, 2)]
    join(client, "second")
    assert acquired(share_fetch(client, topic_id, "second", INITIAL_EPOCH)) == []


def test_the_end_of_its_connection_ends_a_share_session(client, connect, topic_id):
    client.produce("words", b"a")
    other = connect()
    join(other, "first")
    assert acquired(share_fetch(other, topic_id, "first", INITIAL_EPOCH)) == [(0, 0, 1)]
    join(client, "second")
    found = acquired(share_fetch(client, topic_id, "second", INITIAL_EPOCH))
    assert found == []

    other.socket.close()

    epoch = iter(range(1, 1 << 30))
    waiting.until(lambda: found, lambda: found.extend(acquired(share_fetch(client, topic_id, "second", next(epoch)))))
    assert found == [(0, 0, 2)]
    assert share_fetch(client, topic_id, "first", 1)["error_code"] == ErrorCode.SHARE_SESSION_NOT_FOUND
