"""What every client of others must find right: records exactly as they were sent, in order, without a gap.

A ``Client`` is one library behind a few verbs; the assertions are the same for all.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from streams.core.clock import SystemClock
from tests import waiting

PARTITIONS = 3
_CLOCK = SystemClock()


class Sent(NamedTuple):
    """A record; ``offset`` is set where it was read."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int
    offset: int = -1


class Client(Protocol):
    """One library."""

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic."""
        ...

    def produce(self, topic: str, records: Sequence[Sent], **settings: Any) -> None:
        """Send records, and wait until all are acknowledged."""
        ...

    def consume(self, topic: str, count: int, *, is_committed_only: bool = False) -> list[Sent]:
        """Return so many records of all partitions, from the beginning."""
        ...


class Transactions(Protocol):
    """A transactional producer."""

    def begin(self) -> None:
        """Begin."""
        ...

    def send(self, topic: str, value: bytes) -> None:
        """Send to partition 0."""
        ...

    def commit(self) -> None:
        """Commit."""
        ...

    def abort(self) -> None:
        """Abort what was sent, and has arrived."""
        ...


class Member(Protocol):
    """A consumer of a group; ``seen`` are (partition, offset) of what it has read."""

    seen: set[tuple[int, int]]

    def poll(self) -> None:
        """Read what there is, for a moment."""
        ...

    def assigned(self) -> set[int]:
        """Return the partitions that it has."""
        ...

    def commit(self) -> None:
        """Commit what it has read."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


def records(count: int, seed: int = 1) -> list[Sent]:
    """Return records of every kind: without key, tombstones, empty values, headers that repeat."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        key = None if number % 7 == 3 else b"k%d" % (number % 97)
        value: bytes | None = b"%d|" % number + b"lorem ipsum " * chance.randint(1, 12) + chance.randbytes(8)
        if number % 11 == 5 and key is not None:
            value = None
        elif number % 13 == 7:
            value = b""
        headers = (("trace", b"%d" % number), ("trace", b"again"), ("empty", b"")) if number % 3 == 0 else ()
        made.append(Sent(number % PARTITIONS, key, value, headers, 1_700_000_000_000 + number))
    return made


def round_trip(client: Client, topic: str, **settings: Any) -> None:
    """What was sent is what is read."""
    sent = records(1_500)
    client.create_topic(topic, PARTITIONS)

    client.produce(topic, sent, **settings)

    found = client.consume(topic, len(sent))
    for partition in range(PARTITIONS):
        read = [record for record in found if record.partition == partition]
        assert [record.offset for record in read] == list(range(len(read)))
        assert [record._replace(offset=-1) for record in read] == [r for r in sent if r.partition == partition]


def transactions(client: Client, begin: Callable[[str], Transactions], topic: str, transactional_id: str) -> None:
    """What is aborted is not read; a second producer of the same id puts the first one out."""
    client.create_topic(topic, 1)
    producer = begin(transactional_id)
    producer.begin()
    producer.send(topic, b"committed")
    producer.commit()
    producer.begin()
    producer.send(topic, b"aborted")
    producer.abort()
    producer.begin()
    producer.send(topic, b"open")

    second = begin(transactional_id)
    second.begin()
    second.send(topic, b"second")
    second.commit()

    found = [record.value for record in client.consume(topic, 2, is_committed_only=True)]
    assert found == [b"committed", b"second"]
    try:
        producer.send(topic, b"too late")
        producer.commit()
    except Exception:
        return
    raise AssertionError("a producer that was put out could commit")


def group(client: Client, join: Callable[[str, str], Member], topic: str, group_id: str) -> None:
    """Two share the partitions, one goes on alone; the next goes on where they have committed."""
    client.create_topic(topic, 4)
    first, second = join(topic, group_id), join(topic, group_id)
    until(lambda: shared([first, second], 4), first, second)
    client.produce(topic, _plain(4, 10))
    until(lambda: len(first.seen | second.seen) == 40, first, second)
    assert not first.seen & second.seen
    first.commit()
    second.commit()
    second.close()
    until(lambda: first.assigned() == set(range(4)), first)
    client.produce(topic, _plain(4, 5))
    until(lambda: len(first.seen | second.seen) == 60, first)
    first.commit()
    first.close()

    third = join(topic, group_id)
    client.produce(topic, _plain(4, 1))
    until(lambda: len(third.seen) >= 4, third)
    assert third.seen == {(partition, 15) for partition in range(4)}
    third.close()


def _plain(partitions: int, each: int) -> list[Sent]:
    now_ms = _CLOCK.now_ms()
    return [Sent(number % partitions, None, b"v", (), now_ms) for number in range(partitions * each)]


def shared(members: Sequence[Member], partitions: int) -> bool:
    """Whether each has some of the partitions, and each partition one owner."""
    held = [member.assigned() for member in members]
    return all(held) and sorted(p for one in held for p in one) == list(range(partitions))


def until(is_done: Callable[[], object], *members: Member) -> None:
    """Let members poll until something is so."""

    def poll() -> None:
        for member in members:
            member.poll()

    waiting.until(is_done, poll, lambda: f"members have {[member.assigned() for member in members]}")
