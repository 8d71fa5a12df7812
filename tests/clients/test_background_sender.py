"""Records that no call waits for: a background thread sends, retries and completes them."""

import gc
import threading
from collections.abc import Iterator

import pytest

from streams import EmbeddedBroker, Producer, Topic
from streams.protocol.messages import Produce
from tests import waiting
from tests.clients.conftest import FaultyCluster, first

numbers = Topic("numbers", key=str, value=int)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic(numbers, partitions=1)
        yield broker


@pytest.fixture
def servers(broker: EmbeddedBroker) -> Iterator[str]:
    with broker.serve("127.0.0.1:0") as server:
        yield server.address


def senders(client_id: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"{client_id}-sender"]


def test_callback_over_tcp_runs_though_nobody_drives_the_producer(servers: str):
    heard: list[int] = []
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(numbers, 1, key="a").add_done_callback(lambda done: heard.append(done.result().offset))
        waiting.until(lambda: heard)

        assert heard == [0]


def test_callback_may_send_the_next_record(servers: str):
    heard: list[int] = []
    with Producer(bootstrap_servers=servers) as producer:

        def again(number: int) -> None:
            heard.append(number)
            if number < 5:
                producer.send(numbers, number, key="a").add_done_callback(lambda _: again(number + 1))

        again(0)
        waiting.until(lambda: len(heard) == 6)


def test_thread_starts_with_the_first_record_that_is_not_acknowledged_at_once(broker: EmbeddedBroker):
    """It sends the record again, though nobody drives the producer."""
    rule = first(0, Produce)
    cluster = FaultyCluster(broker, fails=lambda request: rule(request))
    with Producer(cluster, client_id="near") as producer:
        assert producer.send(numbers, 1).done()
        assert not senders("near")

        rule = first(1, Produce)
        delivery = producer.send(numbers, 2)
        assert senders("near")
        waiting.until(delivery.done)
    assert not senders("near")


def test_producer_without_background_sender_has_no_thread(broker: EmbeddedBroker):
    cluster = FaultyCluster(broker, fails=first(1, Produce))
    with Producer(cluster, client_id="alone", background_sender=False) as producer:
        delivery = producer.send(numbers, 1)
        assert not senders("alone")
        assert delivery.result().offset == 0


@pytest.mark.slow
def test_producer_that_is_dropped_leaves_no_thread_when_its_records_are_written(broker: EmbeddedBroker, servers: str):
    producer = Producer(bootstrap_servers=servers, client_id="dropped")
    producer.send(numbers, 1)
    del producer
    gc.collect()

    waiting.until(lambda: broker.end_offset(("numbers", 0)) == 1)
    waiting.until(lambda: not senders("dropped"))
