"""The client side of a fetch session (KIP-227): what one broker has been asked for, and what changes next.

Pure: no requests are sent here.  Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from attrs import define, field

from streams.clients.consumer.subscription import Confirmation, PartitionState
from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import FINAL_EPOCH, INITIAL_EPOCH, FetchResponse

_MOST: Final = 0x7FFF_FFFF
#: Most fetch sessions with one broker.  Each has one request in flight, so that those for partitions without new
#: records, which wait at the broker, do not delay the others.
_SESSIONS: Final = 3


class Asked(NamedTuple):
    """The state of a partition when it was asked for, and the position from which it is read."""

    state: PartitionState
    position: int


class FetchChanges(NamedTuple):
    """The fields of a fetch request that depend on its session."""

    positions: dict[TopicPartition, int]
    forgotten: tuple[TopicPartition, ...]
    session_id: int
    session_epoch: int


@define(eq=False)
class FetchSession:
    """One fetch at a time of one broker, and its session there; without ``is_kept`` it is a single fetch."""

    is_kept: bool = True
    #: The partitions that the broker reads for this session.
    asked: Mapping[TopicPartition, Asked] = field(factory=dict, init=False)
    #: Whether a request is in flight.
    is_open: bool = field(default=False, init=False)
    #: The partitions that the last request named.
    named: Mapping[TopicPartition, int] = field(factory=dict, init=False)
    #: The change count of the subscription at which ``asked`` was what it wanted.
    wanted_at: int = field(default=-1, init=False)
    confirmation: Confirmation = field(factory=Confirmation, init=False)
    _session_id: int = field(default=0, init=False)
    _epoch: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._epoch = INITIAL_EPOCH if self.is_kept else FINAL_EPOCH

    @property
    def session_id(self) -> int:
        """The ID of the session, or 0 if there is none."""
        return self._session_id

    def waits_for(self, partition: TopicPartition, state: PartitionState, position: int) -> bool:
        """Whether a response for this position of a partition is still to come."""
        return self.is_open and self.asked.get(partition) == (state, position)

    def begin(self, partitions: Mapping[TopicPartition, Asked]) -> FetchChanges:
        """Return what the next request names, so that the broker reads ``partitions`` and no others."""
        before = self.asked
        self.asked = partitions
        gone = [partition for partition in before if partition not in partitions]
        for partition in gone:
            before[partition].state.release(self.confirmation)
        named: dict[TopicPartition, int] = {}
        if self._epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            named = {partition: asked.position for partition, asked in partitions.items()}
            gone = []
        else:
            for partition, asked in partitions.items():
                old = before.get(partition)
                if old != asked:
                    # A new state is named, too: nobody has heard yet that its position is the end.
                    named[partition] = asked.position
                if old is not None:
                    if old.state is not asked.state:
                        # The broker does not repeat what it has told to the previous state of the partition.
                        asked.state.take_over(old.state)
                    # Another session may have told the end last, which this one confirms from now on.
                    asked.state.confirm_by(self.confirmation)
        self.named = named
        self.is_open = True
        return FetchChanges(named, tuple(gone), self._session_id, self._epoch)

    def again(self) -> FetchChanges:
        """Return the fields of a request that changes nothing."""
        self.named = {}
        self.is_open = True
        return FetchChanges({}, (), self._session_id, self._epoch)

    def on_response(self, response: FetchResponse, now_ms: int) -> None:
        """Note a response: it confirms the ends of all partitions that it leaves out."""
        self.is_open = False
        if response.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = 0
        if response.error is not ErrorCode.NONE:
            self.on_failure()
        elif self.is_kept:
            self.confirmation.at_ms = now_ms
            self._session_id = response.session_id
            if not response.session_id:
                self._epoch = INITIAL_EPOCH
            else:
                self._epoch = 1 if self._epoch == _MOST else self._epoch + 1

    def on_failure(self) -> None:
        """Note that the broker may have performed the request or not: the next one begins another session."""
        self.is_open = False
        if self.is_kept:
            self._epoch = INITIAL_EPOCH


@define(eq=False)
class ConsumerSessions:
    """The fetch sessions of one consumer with all brokers."""

    #: Broker IDs and sessions whose last response brought nothing.
    quiet: list[tuple[int, FetchSession]] = field(factory=list, init=False)
    _by_node: dict[int, list[FetchSession]] = field(factory=dict, init=False)
    #: The session in which a partition was asked for last.
    _last: dict[TopicPartition, FetchSession] = field(factory=dict, init=False)

    def wait_for(self, partition: TopicPartition, state: PartitionState, position: int) -> bool:
        """Whether a response for this position of a partition is still to come."""
        session = self._last.get(partition)
        return session is not None and session.waits_for(partition, state, position)

    def begin(self, node: int, partitions: Mapping[TopicPartition, Asked]) -> tuple[FetchSession, FetchChanges]:
        """Return a session that has no request in flight and reads ``partitions``, and its next request.

        If there are too many sessions, the request is a single fetch without one.
        """
        sessions = self._by_node.setdefault(node, [])
        session = next((one for one in sessions if not one.is_open), None)
        if session is None:
            session = FetchSession(is_kept=len(sessions) < _SESSIONS)
            if session.is_kept:
                sessions.append(session)
        before = session.asked
        changes = session.begin(partitions)
        for partition in changes.forgotten:
            if self._last.get(partition) is session:
                del self._last[partition]
        for partition in before.keys() - partitions.keys():
            last = self._last.get(partition)
            if last is not None and last is not session and partition in last.asked:
                # This session may have told the end last; the other one goes on reading the partition, and confirms it.
                last.asked[partition].state.confirm_by(last.confirmation)
        self._last.update(dict.fromkeys(partitions, session))
        return session, changes

    def idle(self) -> Iterator[tuple[int, int]]:
        """Yield broker ID and session ID of the sessions that have no request in flight."""
        for node, sessions in self._by_node.items():
            for session in sessions:
                if session.session_id and not session.is_open:
                    yield node, session.session_id
