"""Requests above what a broker takes: it only closes, so the client says what that means, at once."""

import contextlib
import logging
from functools import partial
from operator import attrgetter

import pytest

from streams.broker import EmbeddedBroker
from streams.broker.tcp import Limits
from streams.clients import Producer
from streams.clients.producer.sender import _REQUEST_BYTES
from streams.clients.tcp import TcpCluster
from streams.core.blocks.chunking import chunks_by_size
from streams.core.errors import RecordTooLargeError
from tests.waiting import WATCHDOG_MS

MOST = 1 << 20


@pytest.fixture
def broker():
    with EmbeddedBroker() as broker:
        broker.create_topic("large", 4, config={"max.message.bytes": str(8 * MOST)})
        yield broker


@pytest.fixture
def producer(broker):
    """Of a broker that takes 1 MiB."""
    with broker.serve("127.0.0.1:0", limits=Limits(max_request_bytes=MOST)) as server:
        cluster = TcpCluster(server.bootstrap_servers, max_request_bytes=MOST)
        producer = Producer(cluster, max_request_bytes=8 * MOST)
        yield producer
        # It tells once more what it could not deliver.
        with contextlib.suppress(RecordTooLargeError):
            producer.close()


def refusals(caplog):
    return [record for record in caplog.records if "sent an invalid request" in record.getMessage()]


def test_a_record_above_what_brokers_take_fails_at_once(producer, caplog):
    """It was tried again for two minutes, and then said that the broker was not there."""
    with caplog.at_level(logging.WARNING, "streams.broker.tcp"):
        future = producer.send("large", bytes(2 * MOST))
        with pytest.raises(RecordTooLargeError, match=r"a request of 2\d+ bytes: brokers take 1048576"):
            future.result(WATCHDOG_MS)

    assert len(refusals(caplog)) == 1


def test_records_that_are_too_large_only_together_go_apart(producer, broker):
    """With the batches of a topic of one partition."""
    futures = [producer.send("large", bytes(300_000), partition=0) for _ in range(20)]
    producer.flush()

    assert [future.result(WATCHDOG_MS).offset for future in futures] == list(range(20))


def test_what_goes_to_one_broker_is_split_into_requests_that_it_takes():
    class Sized:
        def __init__(self, size_bytes):
            self.size_bytes = size_bytes

    requests_of = partial(chunks_by_size, size_of=attrgetter("size_bytes"), limit=_REQUEST_BYTES)
    parcels = [Sized(size) for size in (20 << 20, 10 << 20, 5 << 20, 200 << 20, 1)]

    sizes = [[parcel.size_bytes >> 20 for parcel in portion] for portion in requests_of(parcels)]

    assert sizes == [[20, 10], [5], [200], [0]]
