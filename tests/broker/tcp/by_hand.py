"""A client that speaks the protocol by hand: what it sends is what the test says."""

import socket
import struct
from collections.abc import Callable
from typing import Any, Self

from streams.broker import EmbeddedBroker
from streams.core.blocks.records import Block, TopicPartition
from streams.protocol import batch
from streams.protocol.messages import NO_TOPIC_ID
from streams.protocol.schema import Fields
from streams.protocol.wire import encode_request, read_response
from tests.waiting import WATCHDOG_S

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18


class Client:
    """One connection; requests by API key and version, in Kafka's words."""

    def __init__(self, address: str, wrap: Callable[[socket.socket], socket.socket] | None = None) -> None:
        host, _, port = address.rpartition(":")
        connected = socket.create_connection((host, int(port)), timeout=WATCHDOG_S)
        self._begin(connected if wrap is None else wrap(connected))

    @classmethod
    def over(cls, connected: socket.socket) -> Self:
        """Speak over a socket that is connected."""
        client = cls.__new__(cls)
        client._begin(connected)
        return client

    def _begin(self, connected: socket.socket) -> None:
        self.socket = connected
        self._asked: dict[int, tuple[int, int]] = {}
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, key: int, version: int, /, **message: Any) -> int:
        """Send a request, and return its correlation id."""
        self._next += 1
        self._asked[self._next] = (key, version)
        self.socket.sendall(b"".join(encode_request(key, version, self._next, "test", message)))
        return self._next

    def frame(self) -> bytes:
        """Return the next frame."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def receive(self) -> tuple[int, Fields]:
        """Return correlation id and message of the next answer."""
        frame = self.frame()
        (correlation_id,) = struct.unpack_from(">i", frame)
        return read_response(*self._asked[correlation_id], frame)

    def call(self, key: int, version: int, /, **message: Any) -> Fields:
        """Send a request and return its answer."""
        sent = self.send(key, version, **message)
        correlation_id, answer = self.receive()
        assert correlation_id == sent
        return answer

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    @property
    def is_closed(self) -> bool:
        """Whether the other side ends the connection; what still comes is read and dropped."""
        try:
            while self.socket.recv(4096):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True

    def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = -1, version: int = 8) -> Fields:
        """Produce a batch and return the row of its partition."""
        return self.produce_batch(topic, batch_of(*values), partition=partition, acks=acks, version=version)

    def produce_batch(self, topic: str, data: bytes, *, partition: int = 0, acks: int = -1, version: int = 8) -> Fields:
        """Produce bytes."""
        rows = [{"name": topic, "partition_data": [{"index": partition, "records": data}]}]
        if acks == 0:
            self.send(PRODUCE, version, acks=acks, timeout_ms=1000, topic_data=rows)
            return {}
        answer = self.call(PRODUCE, version, acks=acks, timeout_ms=1000, topic_data=rows)
        found: Fields = answer["responses"][0]["partition_responses"][0]
        return found

    def send_fetch(
        self, topic: str, offset: int = 0, *, version: int = 11, topic_id: bytes = NO_TOPIC_ID, **settings: Any
    ) -> int:
        """Ask for a partition's records, by the name of its topic, or by its ID from version 13 on."""
        partitions = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
        asked = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "topics": [{"topic": topic, "topic_id": topic_id, "partitions": partitions}],
        }
        return self.send(FETCH, version, **asked | settings)

    def fetch(self, topic: str, offset: int = 0, *, version: int = 11, **settings: Any) -> Fields:
        """Fetch, and return the row of the partition."""
        self.send_fetch(topic, offset, version=version, **settings)
        return row_of(self.receive()[1])

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError(f"the connection ended after {len(data)} of {count} bytes")
            data += more
        return data


def row_of(answer: Fields) -> Fields:
    """Return the one partition of an answer to Fetch."""
    found: Fields = answer["responses"][0]["partitions"][0]
    return found


def batch_of(*values: bytes, attributes: int = 0) -> bytes:
    """Return a batch as a producer sends it."""
    return batch.encode(Block([None] * len(values), list(values), [1] * len(values)), 0, attributes=attributes)


def values_in(row: Fields) -> list[bytes | None]:
    """Return the values that were fetched."""
    return [value for block in batch.decode_all(row["records"] or b"") for value in block.values]


def stored(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    """Return what a reader in this process finds."""
    return [value for block in broker.read(TopicPartition(topic, 0), 0) for value in block.values]
