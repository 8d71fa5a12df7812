"""What a share consumer has acquired, and what it says about it: without a broker."""

import pytest

from streams.clients.errors import UndeliveredError
from streams.clients.share_decoding import Received, deliver
from streams.clients.share_records import GAP, AcknowledgeType, Deliveries, ShareOrigin, batches_of
from streams.clients.share_session import ClientShareSession
from streams.core.records import Block, TopicPartition
from streams.core.topic import Topic
from streams.protocol.error_codes import ErrorCode
from streams.protocol.share_group_messages import AcknowledgementBatch, AcquiredRecords, TopicIdPartition
from streams.protocol.wire import EncodedBlock

PLACE = TopicPartition("jobs", 0)
ORIGIN = ShareOrigin(PLACE, b"1" * 16, 3)
ONE, TWO = TopicIdPartition(b"1" * 16, 0), TopicIdPartition(b"2" * 16, 0)


def received(*ranges, values=(b"a", b"b", b"c", b"d"), block=None):
    """A response with records from offset 10 on."""
    count = len(values)
    if block is None:
        block = Block([b"k"] * count, list(values), [5] * count, offsets=range(10, 10 + count))
    return Received(ORIGIN, [block], [AcquiredRecords(*one) for one in ranges], 0)


def test_acknowledgements_of_successive_offsets_are_one_batch():
    """One type stands for all records of a batch."""
    types = {1: 1, 2: 1, 3: 1, 5: 2, 6: 0, 9: 3}

    assert batches_of(types) == [
        AcknowledgementBatch(1, 3, [1]),
        AcknowledgementBatch(5, 6, [2, 0]),
        AcknowledgementBatch(9, 9, [3]),
    ]
    assert batches_of({}) == []


def test_only_acquired_records_are_delivered_and_gaps_are_acknowledged():
    """The batch of the log is whole; offset 14 was acquired, but compaction has removed its record."""
    delivery = deliver(received((10, 10, 1), (13, 14, 2)), None)

    assert [(one.offset, one.value, one.delivery_count) for one in delivery.records] == [(10, b"a", 1), (13, b"d", 2)]
    assert delivery.acquisition.types == {14: GAP}
    assert delivery.error is None


def test_unreadable_records_are_kept_apart():
    """They are released unless the application decides otherwise, and do not hold up the others."""
    topic = Topic("jobs", key=str, value=int)
    delivery = deliver(received((10, 11, 1), values=(b"1" * 8, b"no")), topic)
    deliveries = Deliveries()
    deliveries.add(delivery.unreadable)

    assert [one.offset for one in delivery.records] == [10]
    assert delivery.unreadable.types == {11: AcknowledgeType.RELEASE}
    assert "at 11, delivery 1" in str(delivery.error)
    assert list(deliveries.unacknowledged()) == []

    deliveries.acknowledge(PLACE, 11, AcknowledgeType.REJECT)
    (parcel,) = deliveries.take()
    assert parcel.types == {11: AcknowledgeType.REJECT}


def test_damaged_batch_is_rejected():
    """Nobody can read it."""
    block = EncodedBlock.of(Block([b"k"] * 2, [b"a", b"b"], [5] * 2), 10)
    damaged = EncodedBlock(block.data[:61] + b"\xff" * (len(block.data) - 61), block.header)

    delivery = deliver(received((10, 11, 1), block=damaged), None)

    assert delivery.records == []
    assert set(delivery.unreadable.types.values()) == {AcknowledgeType.REJECT}
    assert delivery.error.next_offset == 12


def test_renewed_record_comes_back_when_its_lock_has_been_renewed():
    """Until then it cannot be acknowledged; after a refusal it is not this consumer's any more."""
    deliveries = Deliveries()
    deliveries.add(deliver(received((10, 11, 1)), None).acquisition)
    for offset in (10, 11):
        deliveries.acknowledge(PLACE, offset, AcknowledgeType.RENEW)
    (parcel,) = deliveries.take()

    assert deliveries.is_renewing
    with pytest.raises(UndeliveredError):
        deliveries.acknowledge(PLACE, 10, AcknowledgeType.ACCEPT)

    deliveries.finish(parcel)
    assert [record.offset for record in deliveries.deliver_renewed()] == [10, 11]
    deliveries.accept_all()
    (parcel,) = deliveries.take()
    assert parcel.offsets() == [10, 11]
    with pytest.raises(UndeliveredError, match="not among the 0 records"):
        deliveries.acknowledge(PLACE, 10, AcknowledgeType.ACCEPT)


def test_session_names_what_has_changed_and_counts_its_requests():
    """After a loss the next fetch names everything again, with epoch 0."""
    session = ClientShareSession()
    assert session.begin_fetch([ONE, TWO]) == ((ONE, TWO), (), 0)
    assert not session.is_open
    session.on_response(ErrorCode.NONE)
    assert session.begin_fetch([ONE]) == ((), (TWO,), 1)
    session.on_response(ErrorCode.NONE)
    assert session.begin_fetch([ONE, TWO]) == ((TWO,), (), 2)

    session.on_response(ErrorCode.INVALID_SHARE_SESSION_EPOCH)

    assert not session.is_open
    assert session.begin_fetch([ONE]) == ((ONE,), (), 0)
