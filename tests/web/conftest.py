"""A served application on the embedded broker."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import httpx
import pytest

from streams import EmbeddedBroker, Producer, State, Streams, StreamsBuilder, Topic
from streams.web import letters, peers, questions, status
from tests import waiting

#: Settings with which a test does not wait.
FAST: dict[str, Any] = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10}
words = Topic("words", key=str, value=str, partitions=4)


def until(holds: Callable[[], object]) -> None:
    waiting.until(holds, lambda: Event().wait(0.005))


def counting(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("kept")


@contextmanager
def running(broker: EmbeddedBroker, topology: Any = counting, **settings: Any) -> Iterator[Streams]:
    with Streams(topology, application_id="app", broker=broker, **FAST | settings) as streams:
        until(lambda: streams.state is State.RUNNING)
        yield streams


def send(broker: EmbeddedBroker, topic: Topic[Any, Any], rows: list[tuple[Any, Any]]) -> None:
    with Producer(broker) as producer:
        for number, (key, value) in enumerate(rows):
            producer.send(topic, value, key=key, timestamp_ms=number)


def processed(*instances: Streams) -> int:
    return sum(streams.metrics.get("process-total") for streams in instances)


@pytest.fixture(autouse=True, scope="module")
def patient() -> Iterator[None]:
    """Other instances and topics are asked, however slow the machine is.

    For a module, so that it begins before the applications that the tests of one share, and ends after them.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (peers, "CONNECT_S"),
            (peers, "ANSWER_S"),
            (status, "STATUS_S"),
            (letters, "READ_S"),
            (letters, "REDRIVE_S"),
            (questions, "_TURN_S"),
        ):
            patch.setattr(module, name, 3_600)
        yield


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        yield made


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=waiting.WATCHDOG_S) as made:
        yield made
