"""Records that a share consumer has acquired, and what it has to say about them (KIP-932).

Between the responses of brokers, which acquire records, and the application, which acknowledges them.
Pure: no requests are sent here.  Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from attrs import define, field

from streams.clients.errors import UndeliveredError
from streams.core.errors import BrokerError
from streams.core.records import Headers, TopicPartition
from streams.protocol.share_group_messages import AcknowledgementBatch, TopicIdPartition

K = TypeVar("K")
V = TypeVar("V")

#: What is said of an acquired offset without a record, such as that of a transaction marker.
GAP: Final = 0


class AcknowledgeType(IntEnum):
    """What becomes of a record that a share consumer got."""

    #: It has been processed, and is not delivered again.
    ACCEPT = 1
    #: It is delivered again, perhaps to another consumer, until the group's limit of deliveries is reached.
    RELEASE = 2
    #: It cannot be processed, and is not delivered again.
    REJECT = 3
    #: It is still being processed: its lock begins anew (KIP-1222), and the next poll returns it again.
    RENEW = 4


class ShareRecord(NamedTuple, Generic[K, V]):
    """A record of a share group; key and value are bytes unless the topic was given as a typed ``Topic``.

    ``delivery_count`` is 1 for the first delivery to any member of the group.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K
    value: V
    headers: Headers
    delivery_count: int


class ShareOrigin(NamedTuple):
    """Where records were acquired: partition, topic ID, and the broker that holds their locks."""

    partition: TopicPartition
    topic_id: bytes
    node: int

    @property
    def by_id(self) -> TopicIdPartition:
        """The partition as requests name it."""
        return TopicIdPartition(self.topic_id, self.partition.partition)


@define(eq=False)
class AcknowledgementParcel:
    """Acknowledgements of one origin, which are sent together; ``error`` is valid once they are done."""

    origin: ShareOrigin
    #: The type for each offset.
    types: dict[int, int]
    is_done: bool = False
    #: Until when a retriable error is retried, in monotonic milliseconds.
    retry_until_ms: int = 0
    error: BrokerError | None = None

    @property
    def has_renewals(self) -> bool:
        """Whether a record is renewed."""
        return AcknowledgeType.RENEW in self.types.values()

    def offsets(self) -> list[int]:
        """Return the offsets of the acknowledged records, without gaps."""
        return [offset for offset, kind in self.types.items() if kind != GAP]


@define(eq=False)
class Acquisition:
    """Records of one partition that one response has acquired, and their acknowledgements.

    A record is in ``delivered`` until its acknowledgement is taken; then it is gone, or in ``_renewing`` until the
    broker has renewed its lock, and in ``_renewed`` until the next poll returns it.
    """

    origin: ShareOrigin
    delivered: dict[int, ShareRecord[Any, Any]] = field(factory=dict)
    #: Acknowledgements that have not been taken; gaps and unreadable records have no entry in ``delivered``.
    types: dict[int, int] = field(factory=dict)
    #: Offsets of records that could not be decoded; the application may choose another type for them.
    unreadable: set[int] = field(factory=set)
    _renewing: dict[int, ShareRecord[Any, Any]] = field(factory=dict)
    _renewed: dict[int, ShareRecord[Any, Any]] = field(factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be acknowledged or renewed."""
        return not (self.delivered or self.types or self._renewing or self._renewed)

    @property
    def is_renewing(self) -> bool:
        """Whether renewals are in flight."""
        return bool(self._renewing)

    def unacknowledged(self) -> Iterator[int]:
        """Yield the offsets of delivered records without an acknowledgement."""
        return (offset for offset in self.delivered if offset not in self.types)

    def take(self) -> AcknowledgementParcel | None:
        """Take the acknowledgements, or return None if there are none."""
        if not self.types:
            return None
        types, self.types = dict(sorted(self.types.items())), {}
        for offset, kind in types.items():
            record = self.delivered.pop(offset, None)
            if kind == AcknowledgeType.RENEW and record is not None:
                self._renewing[offset] = record
        self.unreadable.clear()
        return AcknowledgementParcel(self.origin, types)

    def finish_renewal(self, offsets: Iterable[int], *, is_renewed: bool) -> None:
        """Note that the renewal of offsets has succeeded or failed; after a failure the records are not ours."""
        for offset in offsets:
            record = self._renewing.pop(offset, None)
            if record is not None and is_renewed:
                self._renewed[offset] = record

    def deliver_renewed(self) -> list[ShareRecord[Any, Any]]:
        """Deliver the records again whose locks have been renewed."""
        renewed, self._renewed = self._renewed, {}
        self.delivered.update(renewed)
        return list(renewed.values())


@define(eq=False)
class Deliveries:
    """All records that the application has, or has acknowledged without a commit."""

    _parts: list[Acquisition] = field(factory=list)

    def add(self, acquired: Acquisition) -> None:
        """Add records that a poll returns."""
        self._parts.append(acquired)

    @property
    def is_renewing(self) -> bool:
        """Whether renewals are in flight, for whose end a poll waits."""
        return any(part.is_renewing for part in self._parts)

    def accept_all(self) -> None:
        """Accept all delivered records that have no acknowledgement."""
        for part in self._parts:
            part.types.update(dict.fromkeys(list(part.unacknowledged()), AcknowledgeType.ACCEPT))

    def unacknowledged(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield partition and offset of the delivered records without an acknowledgement."""
        for part in self._parts:
            for offset in part.unacknowledged():
                yield part.origin.partition, offset

    def acknowledge(self, partition: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Set the acknowledgement of a record.

        Raises:
            UndeliveredError: the consumer does not have the record, or has committed its acknowledgement.
        """
        for part in reversed(self._parts):
            if part.origin.partition == partition and (offset in part.delivered or offset in part.unreadable):
                part.types[offset] = kind
                return
        held = sum(len(part.delivered) for part in self._parts)
        raise UndeliveredError(
            f"{partition} at {offset} cannot be acknowledged: it is not among the {held} records that this consumer "
            "holds now.  Acknowledge a record between the poll that returned it and the next poll or commit; a record "
            "to be renewed is returned by the next poll again",
            partition,
            offset,
        )

    def take(self) -> list[AcknowledgementParcel]:
        """Take all acknowledgements that have not been taken."""
        parcels = [parcel for part in self._parts if (parcel := part.take()) is not None]
        self._forget()
        return parcels

    def finish(self, parcel: AcknowledgementParcel) -> None:
        """Note the outcome of acknowledgements, which matters for renewals."""
        renewals = [offset for offset, kind in parcel.types.items() if kind == AcknowledgeType.RENEW]
        if not renewals:
            return
        for part in self._parts:
            if part.origin == parcel.origin:
                part.finish_renewal(renewals, is_renewed=parcel.error is None)
        self._forget()

    def deliver_renewed(self) -> list[ShareRecord[Any, Any]]:
        """Deliver the records again whose locks have been renewed."""
        return [record for part in self._parts for record in part.deliver_renewed()]

    def _forget(self) -> None:
        self._parts = [part for part in self._parts if not part.is_over]


def batches_of(types: Mapping[int, int]) -> list[AcknowledgementBatch]:
    """Return acknowledgements, given by ascending offset, as batches of successive offsets."""
    batches: list[AcknowledgementBatch] = []
    run: list[int] = []
    first = last = -2
    for offset, kind in types.items():
        if offset != last + 1 and run:
            batches.append(_batch(first, last, run))
            run = []
        if not run:
            first = offset
        run.append(int(kind))
        last = offset
    if run:
        batches.append(_batch(first, last, run))
    return batches


def _batch(first: int, last: int, types: list[int]) -> AcknowledgementBatch:
    # One type stands for all offsets of a batch.
    return AcknowledgementBatch(first, last, types[:1] if len(set(types)) == 1 else types)
